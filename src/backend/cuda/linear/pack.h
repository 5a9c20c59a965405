// SPDX-License-Identifier: Apache-2.0
// Rewrites a row-major matrix on the device into the layout of packed.h.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/api/types.h"

namespace deepinfer::backend::cuda {

// To `format`: row_major's own, or its aligned one.
// REQUIRES: IsPacked(format); out holds PackedBytes(format, ..), 16-byte aligned. Aligned: cols % 128 == 0, 16-byte aligned data, and for
// kFp8Tile32 rows % 32 == 0.
void Pack(cudaStream_t stream, const Matrix& row_major, WeightFormat format, void* out);

}  // namespace deepinfer::backend::cuda
