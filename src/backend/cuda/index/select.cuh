// SPDX-License-Identifier: Apache-2.0
// The k best of a list of scores, exactly, ties to the lower index, result ascending. A cluster of blocks shares a list:
// each has a run of it. A descent over the bits of the scores counts how many reach a value; it ends when k do, or with the
// k-th best value. Two ordered passes then number the ties and the chosen. Nothing depends on how the list is cut.
#pragma once

#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/ptx/cluster.cuh"

namespace deepinfer::backend::cuda {

inline constexpr int kSelectThreads = 1024;
inline constexpr int kSelectKeys = 8;  // of a thread and round: neighbours
inline constexpr int kSelectRound = kSelectThreads * kSelectKeys;
inline constexpr int kSelectClusterMax = 8;

// Orders floats as unsigned integers; -0 counts as +0; 0 is below all.
__device__ inline uint32_t ScoreKey(float score) {
  const uint32_t bits = __float_as_uint(score + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct SelectShared {
  int warps[2][kSelectThreads / kWarp];
  int total[2];
};

// A block's run of the list, which begins at a 16-byte boundary.
class SelectRun {
 public:
  __device__ SelectRun(const float* scores, int count, SelectShared& shared) : scores_(scores), shared_(&shared) {
    const int size = ptx::ClusterSize(), rounds = (count + kSelectRound - 1) / kSelectRound;
    rounds_ = (rounds + size - 1) / size;
    begin_ = ptx::ClusterRank() * rounds_ * kSelectRound;
    end_ = min(begin_ + rounds_ * kSelectRound, count);
    Load(0);
  }

  // How many scores of the cluster's list reach `key`.
  __device__ int CountAtLeast(uint32_t key) {
    int count = 0;
    for (int round = 0; round < rounds_; ++round) {
      if (rounds_ > 1) Load(round);
#pragma unroll
      for (int i = 0; i < kSelectKeys; ++i) count += keys_[i] >= key ? 1 : 0;
    }
    count = BlockSum(__reduce_add_sync(kAllLanes, count));
    const int size = ptx::ClusterSize();
    if (size == 1) return count;
    if (threadIdx.x == 0) shared_->total[turn_] = count;
    ptx::ClusterSync();
    int sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += ptx::ReadOfBlock(&shared_->total[turn_], rank);
    return sum;
  }

  // Calls emit(place, i) for every score above kth and the first `ties` that equal it, places ascending with i.
  template <typename Emit>
  __device__ void Collect(uint32_t kth, int ties, const Emit& emit) {
    int above = 0, equal = 0;
    for (int round = 0; round < rounds_; ++round) {
      if (rounds_ > 1) Load(round);
      above += Above(kth);
      equal += Equal(kth);
    }
    // What the blocks before this one have.
    int above_before = 0, equal_before = 0;
    const int size = ptx::ClusterSize(), my_rank = ptx::ClusterRank();
    if (size > 1) {
      ptx::ClusterSync();  // the counts of the descent have been read
      above = BlockSum(__reduce_add_sync(kAllLanes, above));
      equal = BlockSum(__reduce_add_sync(kAllLanes, equal));
      if (threadIdx.x == 0) {
        shared_->total[0] = above;
        shared_->total[1] = equal;
      }
      ptx::ClusterSync();
      for (int rank = 0; rank < my_rank; ++rank) {
        above_before += ptx::ReadOfBlock(&shared_->total[0], rank);
        equal_before += ptx::ReadOfBlock(&shared_->total[1], rank);
      }
      ptx::ClusterSync();  // a block that ends takes its shared memory along
    }
    for (int round = 0; round < rounds_; ++round) {
      if (rounds_ > 1) Load(round);
      int above_total = 0, equal_total = 0;
      const int above_at = above_before + Scan(Above(kth), &above_total), equal_at = equal_before + Scan(Equal(kth), &equal_total);
      const int first = begin_ + round * kSelectRound + static_cast<int>(threadIdx.x) * kSelectKeys;
      int place = above_at + min(equal_at, ties), tie = equal_at;
#pragma unroll
      for (int i = 0; i < kSelectKeys; ++i) {
        const bool chosen = keys_[i] > kth || (keys_[i] == kth && tie < ties);
        tie += keys_[i] == kth ? 1 : 0;
        if (chosen) emit(place++, first + i);
      }
      above_before += above_total;
      equal_before += equal_total;
    }
  }

 private:
  __device__ void Load(int round) {
    const int first = begin_ + round * kSelectRound + static_cast<int>(threadIdx.x) * kSelectKeys;
    if (first + kSelectKeys <= end_) {
      const auto* four = reinterpret_cast<const float4*>(scores_ + first);
#pragma unroll
      for (int i = 0; i < kSelectKeys / 4; ++i) {
        const float4 v = four[i];
        keys_[4 * i] = ScoreKey(v.x);
        keys_[4 * i + 1] = ScoreKey(v.y);
        keys_[4 * i + 2] = ScoreKey(v.z);
        keys_[4 * i + 3] = ScoreKey(v.w);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kSelectKeys; ++i) keys_[i] = first + i < end_ ? ScoreKey(scores_[first + i]) : 0;
    }
  }
  __device__ int Above(uint32_t kth) const {
    int count = 0;
#pragma unroll
    for (int i = 0; i < kSelectKeys; ++i) count += keys_[i] > kth ? 1 : 0;
    return count;
  }
  __device__ int Equal(uint32_t kth) const {
    int count = 0;
#pragma unroll
    for (int i = 0; i < kSelectKeys; ++i) count += keys_[i] == kth ? 1 : 0;
    return count;
  }

  // Sum over the block of what each warp brings; calls use two places in turn, so one barrier does.
  __device__ int BlockSum(int warp_sum) {
    turn_ ^= 1;
    if (threadIdx.x % kWarp == 0) shared_->warps[turn_][threadIdx.x / kWarp] = warp_sum;
    __syncthreads();
    return __reduce_add_sync(kAllLanes, shared_->warps[turn_][threadIdx.x % kWarp]);
  }

  // Sum over the threads before this one, and over all.
  __device__ int Scan(int value, int* total) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
    int sum = value;
#pragma unroll
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const int before = __shfl_up_sync(kAllLanes, sum, offset);
      if (lane >= offset) sum += before;
    }
    *total = BlockSum(__shfl_sync(kAllLanes, sum, kWarp - 1));
    const int of_warps = __reduce_add_sync(kAllLanes, lane < warp ? shared_->warps[turn_][lane] : 0);
    return of_warps + sum - value;
  }

  const float* scores_;
  SelectShared* shared_;
  uint32_t keys_[kSelectKeys];
  int begin_, end_, rounds_;
  int turn_ = 0;
};

// Calls emit(place, i) for the min(k, count) best, places ascending with i; returns how many. All blocks of the cluster call
// with the same arguments.
template <typename Emit>
__device__ int SelectBest(const float* scores, int count, int k, SelectShared& shared, const Emit& emit) {
  if (count <= k) {
    for (int i = ptx::ClusterRank() * kSelectThreads + static_cast<int>(threadIdx.x); i < count; i += ptx::ClusterSize() * kSelectThreads) {
      emit(i, i);
    }
    return count;
  }
  SelectRun run(scores, count, shared);
  uint32_t kth = 0;
  int above = 0;  // how many lie above kth
  for (int bit = 31; bit >= 0; --bit) {
    const int reach = run.CountAtLeast(kth | 1u << bit);
    if (reach < k) {
      above = reach;
      continue;
    }
    kth |= 1u << bit;
    if (reach == k) {
      // The k best are those that reach kth: all above kth - 1.
      run.Collect(kth - 1, 0, emit);
      return k;
    }
  }
  run.Collect(kth, k - above, emit);
  return k;
}

}  // namespace deepinfer::backend::cuda
