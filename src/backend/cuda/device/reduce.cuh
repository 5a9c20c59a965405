// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over a warp or a block in one fixed order: the same bits whatever else runs.
#pragma once

#include <cstdint>

namespace deepinfer::backend::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;
inline constexpr int kWarp = 32;

// Every lane must call; every lane gets the result.
__device__ inline float WarpSum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

__device__ inline float WarpMax(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  return value;
}

// Every thread of a block of kThreads must call; every thread gets the result. `shared` holds kThreads / 32 values and
// may be used again at once.
template <int kThreads>
__device__ inline float BlockSum(float value, float* shared) {
  value = WarpSum(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = shared[0];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) sum += shared[warp];
  __syncthreads();
  return sum;
}

}  // namespace deepinfer::backend::cuda
