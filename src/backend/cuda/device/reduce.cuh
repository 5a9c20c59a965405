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

// Sums of integers, so in any order. Every lane must call.
__device__ inline int WarpTotal(int value) { return __reduce_add_sync(kAllLanes, value); }
__device__ inline uint64_t WarpTotal(uint64_t value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

// Of the lanes up to this one.
template <typename T>
__device__ T WarpSumThrough(T value) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const T before = __shfl_up_sync(kAllLanes, value, offset);
    value += lane >= offset ? before : 0;
  }
  return value;
}

// Of the threads of a block of kThreads up to this one; *total, where it is asked for, of all. All must call. `warps` holds
// kThreads / 32 values and may be used again behind the next barrier.
template <int kThreads, typename T>
__device__ T SumThrough(T value, T* warps, T* total = nullptr) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  value = WarpSumThrough(value);
  if (lane == kWarp - 1) warps[warp] = value;
  __syncthreads();
  const T of_warp = lane < kThreads / kWarp ? warps[lane] : 0;
  if (total != nullptr) *total = WarpTotal(of_warp);
  return value + WarpTotal(lane < warp ? of_warp : T{0});
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

// 1 / sqrt(mean square + eps) of a row in shared memory that the block has just written, summed by its first kThreads. Every thread must
// call; every thread gets the result. `shared` holds kThreads / 32 values, read until the next barrier. Little code: what runs once a
// launch is bound by reading instructions.
template <int kThreads>
__device__ inline float InverseRmsOfShared(const float* row, int dim, float eps, float* shared) {
  const int t = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (t < kThreads) {
    float sum = 0.0f;
#pragma unroll 1
    for (int i = t; i < dim; i += kThreads) sum += row[i] * row[i];
    sum = WarpSum(sum);
    if (t % kWarp == 0) shared[t / kWarp] = sum;
  }
  __syncthreads();
  float sum = shared[0];
#pragma unroll
  for (int warp = 1; warp < kThreads / kWarp; ++warp) sum += shared[warp];
  return 1.0f / sqrtf(sum / static_cast<float>(dim) + eps);
}

}  // namespace deepinfer::backend::cuda
