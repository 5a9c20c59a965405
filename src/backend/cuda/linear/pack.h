// SPDX-License-Identifier: Apache-2.0
// Rewrites a row-major matrix on the device into the layout of packed.h.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/api/types.h"

namespace deepinfer::backend::cuda {

// REQUIRES: IsPacked(row_major.format); out holds PackedBytes(row_major), 16-byte aligned.
void Pack(cudaStream_t stream, const Matrix& row_major, void* out);

}  // namespace deepinfer::backend::cuda
