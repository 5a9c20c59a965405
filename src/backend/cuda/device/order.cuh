// SPDX-License-Identifier: Apache-2.0
// Scores as integers in their order.
#pragma once

#include <cstdint>

namespace deepinfer::backend::cuda {

// Orders floats as unsigned integers above 0; -0 counts as +0. 0 stands for what is not there.
__device__ inline uint32_t ScoreKey(float score) {
  const uint32_t bits = __float_as_uint(score + 0.0f);
  return max(bits & 0x80000000u ? ~bits : bits | 0x80000000u, 1u);
}

// A score that has this key, or a NaN where none has.
__device__ inline float ScoreOfKey(uint32_t key) { return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key); }

}  // namespace deepinfer::backend::cuda
