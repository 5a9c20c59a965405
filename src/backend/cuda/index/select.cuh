// SPDX-License-Identifier: Apache-2.0
// The k best of a list of keys, exactly, ties to the lower index, result ascending, by one block of threads. A descent over
// three bits at a time, from the first that differs, counts keys until few enough are left; a pass in order then numbers the
// chosen. A block is alone on its row and runs this once or twice, so what counts is dependent instructions and the size of the
// code, which has to be fetched: loops are short, keys lie in shared memory. Lists of up to kSelectRound are read once.
#pragma once

#include <climits>

#include "backend/cuda/device/order.cuh"
#include "backend/cuda/device/reduce.cuh"

namespace deepinfer::backend::cuda {

inline constexpr int kSelectThreads = 256;
inline constexpr int kSelectWarps = kSelectThreads / kWarp;
inline constexpr int kSelectKeys = 32;  // of a thread: every kSelectThreads-th
inline constexpr int kSelectRound = kSelectThreads * kSelectKeys;
inline constexpr int64_t kSelectMax = int64_t{60} * kSelectRound;  // counts of a warp are 16 bits

struct SelectShared {
  uint32_t keys[kSelectKeys][kSelectThreads];  // of a round: ScoreKey of element j * kSelectThreads + t, 0 where none is
  uint32_t counts[2][kSelectWarps][4];         // of digits (0, 2), (1, 3), (4, 6), (5, 7), 16 bits each; two turns
  uint32_t common[2][kSelectWarps];
  int before[kSelectKeys][kSelectWarps];       // chosen before the warp's keys: above in the high half, equal in the low one
  int total;
};

// Source: int At(int i), where element i < count stands; bool Has(int at), whether it is there; float Value(int at), whatever is
// there.
template <typename Source>
class Selection {
 public:
  __device__ Selection(const Source& source, int count, SelectShared& shared) : source_(source), shared_(&shared), count_(count) {
    rounds_ = (count + kSelectRound - 1) / kSelectRound;
    each_ = rounds_ > 1 ? kSelectKeys : (count + kSelectThreads - 1) / kSelectThreads;
  }

  // Reads the keys of the list.
  __device__ void Read() {
    for (int round = 0; round < rounds_; ++round) {
      Load(round);
      NoteAll();
    }
  }
  // Instead, where others put all keys into shared memory.
  __device__ void NoteAll() {
#pragma unroll 2
    for (int j = 0; j < each_; ++j) {
      any_ |= Key(j);
      all_ &= Key(j) == 0 ? ~0u : Key(j);
    }
  }

  // Finds what the k best have in common; at least k elements are there. Chooses those k, or more, but at most `limit`, where the
  // search can end sooner. With kAllTies all that equal the last are chosen, however many; returns how many are chosen.
  template <bool kAllTies>
  __device__ int Descend(int k, int limit) {
    int low = VaryingBits(), above_all = 0, inside_all = count_;
    for (int turn = 0; low > 0; turn ^= 1) {
      const int width = min(low, 3);
      low -= width;
      int counts[8];
      CountDigits(low, width, turn, counts);
      int digit = 0, above = 0, inside = 0, so_far = 0;
#pragma unroll
      for (int d = 7; d >= 0; --d) {
        const bool here = so_far < k && k <= so_far + counts[d];
        digit = here ? d : digit;
        above = here ? so_far : above;
        inside = here ? counts[d] : inside;
        so_far += counts[d];
      }
      kth_ |= static_cast<uint32_t>(digit) << low;
      k -= above;
      above_all += above;
      inside_all = inside;
      if (above_all + inside <= limit && kth_ > 0) {
        // All that begin like this are chosen.
        --kth_;
        ties_ = 0;
        return above_all + inside;
      }
    }
    ties_ = kAllTies ? INT_MAX : k;
    return above_all + (kAllTies ? inside_all : k);
  }
  // Keys above it are chosen. After Descend with kAllTies nothing else is.
  __device__ uint32_t Floor() const { return ties_ > 0 ? kth_ - 1 : kth_; }

  // Calls emit(place, i) for each of the best, places ascending with i.
  template <typename Emit>
  __device__ void Collect(const Emit& emit) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
    int above_earlier = 0, equal_earlier = 0;  // in rounds before
    for (int round = 0; round < rounds_; ++round) {
      if (rounds_ > 1) Load(round);
#pragma unroll 2
      for (int j = 0; j < each_; ++j) {
        const uint32_t key = Key(j);
        const int above = __popc(__ballot_sync(kAllLanes, key > kth_)), equal = __popc(__ballot_sync(kAllLanes, key == kth_));
        if (lane == 0) shared_->before[j][warp] = above << 16 | equal;
      }
      __syncthreads();
      if (warp == 0) ScanBefore();
      __syncthreads();
#pragma unroll 2
      for (int j = 0; j < each_; ++j) {
        const uint32_t key = Key(j);
        const unsigned lower = (1u << lane) - 1;
        const unsigned above = __ballot_sync(kAllLanes, key > kth_), equal = __ballot_sync(kAllLanes, key == kth_);
        const int before = shared_->before[j][warp], tie = equal_earlier + (before & 0xFFFF) + __popc(equal & lower);
        const int place = above_earlier + (before >> 16) + __popc(above & lower) + min(tie, ties_);
        if (key > kth_ || (key == kth_ && tie < ties_)) emit(place, Element(round, j));
      }
      above_earlier += shared_->total >> 16;
      equal_earlier += shared_->total & 0xFFFF;
      __syncthreads();
    }
  }

 private:
  __device__ static int Element(int round, int j) { return round * kSelectRound + j * kSelectThreads + static_cast<int>(threadIdx.x); }
  __device__ uint32_t& Key(int j) const { return shared_->keys[j][threadIdx.x]; }

  __device__ void Load(int round) {
#pragma unroll 1
    for (int first = 0; first < each_; first += 4) {
      int at[4];
      float values[4];
      // Four loads side by side; behind the last key, the last element again.
#pragma unroll
      for (int j = 0; j < 4; ++j) at[j] = source_.At(min(Element(round, first + j), count_ - 1));
#pragma unroll
      for (int j = 0; j < 4; ++j) values[j] = source_.Value(at[j]);
#pragma unroll
      for (int j = 0; j < 4; ++j) Key(first + j) = Element(round, first + j) < count_ && source_.Has(at[j]) ? ScoreKey(values[j]) : 0;
    }
  }

  // How many low bits differ among keys that are there; kth_ gets the others.
  __device__ int VaryingBits() {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
    uint32_t any = __reduce_or_sync(kAllLanes, any_), all = __reduce_and_sync(kAllLanes, all_);
    if (lane == 0) {
      shared_->common[0][warp] = any;
      shared_->common[1][warp] = all;
    }
    __syncthreads();
    any = __reduce_or_sync(kAllLanes, shared_->common[0][lane % kSelectWarps]);
    all = __reduce_and_sync(kAllLanes, shared_->common[1][lane % kSelectWarps]);
    const int low = 32 - __clz(static_cast<int>(any ^ all));
    kth_ = low == 32 ? 0 : all >> low << low;
    return low;
  }

  // Counts by the `width` bits above `low` the keys that agree with kth_ above these.
  __device__ void CountDigits(int low, int width, int turn, int (&counts)[8]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
    uint32_t words[4] = {};
    for (int round = 0; round < rounds_; ++round) {
      if (rounds_ > 1) Load(round);
      uint64_t bytes = 0;
#pragma unroll 4
      for (int j = 0; j < each_; ++j) {
        const uint32_t digit = (Key(j) ^ kth_) >> low;
        bytes += ShiftOne(digit >> width == 0 ? 8 * digit : 64);
      }
      const auto first = static_cast<uint32_t>(bytes), second = static_cast<uint32_t>(bytes >> 32);
      constexpr uint32_t kBytes = 0x00FF00FF;
      words[0] += first & kBytes;
      words[1] += first >> 8 & kBytes;
      words[2] += second & kBytes;
      words[3] += second >> 8 & kBytes;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = __reduce_add_sync(kAllLanes, words[i]);
      if (lane == i) shared_->counts[turn][warp][i] = words[i];
    }
    __syncthreads();
    static_assert(kSelectWarps * 4 == kWarp);
    const uint32_t of_warp = shared_->counts[turn][lane / 4][lane % 4];
    uint32_t even = of_warp & 0xFFFF, odd = of_warp >> 16;
#pragma unroll
    for (int offset = 4; offset < kWarp; offset *= 2) {
      even += __shfl_xor_sync(kAllLanes, even, offset);
      odd += __shfl_xor_sync(kAllLanes, odd, offset);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int digit = i / 2 * 4 + i % 2;
      counts[digit] = static_cast<int>(__shfl_sync(kAllLanes, even, i));
      counts[digit + 2] = static_cast<int>(__shfl_sync(kAllLanes, odd, i));
    }
  }

  // 2^shift; 0 from 64 on.
  __device__ static uint64_t ShiftOne(uint32_t shift) {
    uint64_t result;
    asm("shl.b64 %0, %1, %2;" : "=l"(result) : "l"(uint64_t{1}), "r"(shift));
    return result;
  }

  // By the first warp: counts of a round to sums of those before, lane l for keys l.
  __device__ void ScanBefore() {
    static_assert(kSelectKeys == kWarp);
    const int lane = static_cast<int>(threadIdx.x);
    int* counts = shared_->before[lane];
    const bool some = lane < each_;
    int sum = 0;
#pragma unroll
    for (int i = 0; i < kSelectWarps; ++i) sum += some ? counts[i] : 0;
    const int through = WarpSumThrough(sum);
    if (lane == kWarp - 1) shared_->total = through;
    int before = through - sum;
#pragma unroll 1
    for (int i = 0; i < kSelectWarps; ++i) {
      const int count = counts[i];
      counts[i] = before;
      before += count;
    }
  }

  Source source_;
  SelectShared* shared_;
  int count_, rounds_;
  int each_;  // keys of a thread that a round can have
  uint32_t any_ = 0, all_ = ~0u;  // of the keys that this thread noted
  uint32_t kth_ = 0;
  int ties_ = 0;
};

// Calls emit(place, i) for the min(k, count) best, places ascending with i; returns how many. If count > k, at least k of the
// elements are there. All threads call with the same arguments; `shared` may be used again at once.
template <typename Source, typename Emit>
__device__ int SelectBest(const Source& source, int count, int k, SelectShared& shared, const Emit& emit) {
  if (count <= k) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSelectThreads) emit(i, i);
    __syncthreads();
    return count;
  }
  Selection<Source> selection(source, count, shared);
  selection.Read();
  selection.template Descend<false>(k, k);
  selection.Collect(emit);
  return k;
}

}  // namespace deepinfer::backend::cuda
