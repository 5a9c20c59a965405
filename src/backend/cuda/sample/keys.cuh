// SPDX-License-Identifier: Apache-2.0
// Order of tokens as one integer, and sums and maxima of integers over a block: neither has an order of its own, so the
// results are fixed.
#pragma once

#include <cstdint>

#include "backend/cuda/device/reduce.cuh"

namespace deepinfer::backend::cuda {

// Monotone in the score; 0 is below all scores. Minus and plus zero are equal.
__device__ inline uint32_t Ordered(float score) {
  const unsigned bits = __float_as_uint(score + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

// Greater for a better score, then for a lower id; 0: none.
__device__ inline uint64_t Key(float score, uint32_t token) {
  return static_cast<uint64_t>(Ordered(score)) << 32 | (0xFFFFFFFFu - token);
}
__device__ inline uint32_t TokenOf(uint64_t key) { return 0xFFFFFFFFu - static_cast<uint32_t>(key); }
__device__ inline float ScoreOf(uint64_t key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float(ordered >> 31 != 0 ? ordered & 0x7FFFFFFFu : ~ordered);
}

// Every thread of a block of kThreads must call; every thread gets the result. `shared` holds kThreads / 32 values and may be
// used again at once.
template <int kThreads>
__device__ inline uint64_t BlockMaximum(uint64_t value, uint64_t* shared) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, value, offset);
    value = other > value ? other : value;
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  for (int warp = 0; warp < kThreads / kWarp; ++warp) value = shared[warp] > value ? shared[warp] : value;
  __syncthreads();
  return value;
}

template <int kThreads>
__device__ inline uint64_t BlockTotal(uint64_t value, uint64_t* shared) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  uint64_t total = 0;
  for (int warp = 0; warp < kThreads / kWarp; ++warp) total += shared[warp];
  __syncthreads();
  return total;
}

}  // namespace deepinfer::backend::cuda
