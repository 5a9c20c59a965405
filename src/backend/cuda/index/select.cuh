// SPDX-License-Identifier: Apache-2.0
// The k best of a list of scores, exactly, ties to the lower index, result ascending: a radix descent over the bits of
// the scores finds the k-th best value, then one ordered pass collects what lies above it and the first few that equal it.
#pragma once

#include "backend/cuda/device/reduce.cuh"

namespace deepinfer::backend::cuda {

inline constexpr int kSelectThreads = 512;

// Orders floats as unsigned integers; -0 counts as +0.
__device__ inline uint32_t ScoreKey(float score) {
  const uint32_t bits = __float_as_uint(score + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct SelectShared {
  int histogram[256];
  int warps[kSelectThreads / kWarp];
  int chosen;   // digit of the k-th best
  int above;    // how many lie strictly above it so far
};

// Position of this thread's flag among the set flags of the block, and their number.
__device__ inline int RankInBlock(bool flag, SelectShared& shared, int* total) {
  const unsigned ballot = __ballot_sync(kAllLanes, flag);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  if (lane == 0) shared.warps[warp] = __popc(ballot);
  __syncthreads();
  int before = 0, sum = 0;
  for (int w = 0; w < kSelectThreads / kWarp; ++w) {
    before += w < warp ? shared.warps[w] : 0;
    sum += shared.warps[w];
  }
  __syncthreads();
  *total = sum;
  return before + __popc(ballot & ((1u << lane) - 1));
}

// The key of the k-th best of count scores (1 <= k <= count), and how many of the scores that equal it are needed.
template <typename ScoreAt>
__device__ uint32_t KthBest(const ScoreAt& score_at, int count, int k, SelectShared& shared, int* ties_needed) {
  uint32_t prefix = 0;
  int needed = k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += kSelectThreads) shared.histogram[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += kSelectThreads) {
      const uint32_t key = ScoreKey(score_at(i));
      if (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8)) atomicAdd(&shared.histogram[key >> shift & 255], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int above = 0, digit = 255;
      while (above + shared.histogram[digit] < needed) above += shared.histogram[digit--];
      shared.chosen = digit;
      shared.above = above;
    }
    __syncthreads();
    prefix |= static_cast<uint32_t>(shared.chosen) << shift;
    needed -= shared.above;
    __syncthreads();
  }
  *ties_needed = needed;
  return prefix;
}

// Calls emit(place, i) for the min(k, count) best, places ascending with i; returns how many. The whole block calls.
template <typename ScoreAt, typename Emit>
__device__ int SelectBest(const ScoreAt& score_at, int count, int k, SelectShared& shared, const Emit& emit) {
  if (count <= k) {
    for (int i = threadIdx.x; i < count; i += kSelectThreads) emit(i, i);
    return count;
  }
  int ties_needed = 0;
  const uint32_t kth = KthBest(score_at, count, k, shared, &ties_needed);
  int placed = 0, ties = 0;
  for (int begin = 0; begin < count && placed < k; begin += kSelectThreads) {
    const int i = begin + static_cast<int>(threadIdx.x);
    const uint32_t key = i < count ? ScoreKey(score_at(i)) : 0;
    int num_ties = 0, num_kept = 0;
    const bool tie = i < count && key == kth;
    const int tie_rank = ties + RankInBlock(tie, shared, &num_ties);
    const bool keep = i < count && (key > kth || (tie && tie_rank < ties_needed));
    const int place = placed + RankInBlock(keep, shared, &num_kept);
    if (keep) emit(place, i);
    ties += num_ties;
    placed += num_kept;
  }
  return k;
}

}  // namespace deepinfer::backend::cuda
