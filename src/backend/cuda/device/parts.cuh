// SPDX-License-Identifier: Apache-2.0
// fp32 values as bf16 parts, high to low; three of them are the value.
#pragma once

#include "backend/cuda/ptx/bf16.cuh"

namespace deepinfer::backend::cuda {

inline constexpr int kUnit = 8;  // values of a 16-byte unit; eight units are a row of an atom (linear/packed.h)

// bf16(v); leaves in v what that lost.
__device__ inline uint4 TakePart(float (&v)[kUnit]) {
  uint32_t words[kUnit / 2];
#pragma unroll
  for (int i = 0; i < kUnit / 2; ++i) {
    words[i] = ptx::PackBf16x2(v[2 * i], v[2 * i + 1]);
    v[2 * i] -= __uint_as_float(words[i] << 16);
    v[2 * i + 1] -= __uint_as_float(words[i] & 0xFFFF0000u);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

}  // namespace deepinfer::backend::cuda
