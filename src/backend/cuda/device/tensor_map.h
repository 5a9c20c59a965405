// SPDX-License-Identifier: Apache-2.0
// Maps of arrays in global memory, by which the copy engine brings boxes of them (ptx/tensor_copy.cuh).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "backend/cuda/context.h"

namespace deepinfer::backend::cuda {

// Three dimensions, the innermost first and dense. A box's lines are 128 bytes: 32 values, whose units of 16 bytes are swizzled:
// unit u of line n lies at u ^ n % 8. Boxes in shared memory are aligned to 1,024 bytes.
struct FloatMap {
  static constexpr uint32_t kLine = 32;

  const float* data;            // 16-byte aligned
  uint64_t sizes[3];
  uint64_t strides_bytes[2];    // of the second and the third dimension; multiples of 16
  uint32_t box[2];              // in the second and the third dimension
};

// False where that fails, with the error recorded.
bool MakeMap(Context& context, const FloatMap& map, CUtensorMap* result);

}  // namespace deepinfer::backend::cuda
