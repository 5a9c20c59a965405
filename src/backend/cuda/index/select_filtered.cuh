// SPDX-License-Identifier: Apache-2.0
// The k best items of a row by way of a bound. The best score of each run of items is known, of long rows also that of each wide
// run. A score that at least k runs reach is reached by at least k items; so all of the k best reach it, and lie in runs that do.
// Such a bound need not be exact: it is taken from the list of runs with a quarter more runs above it than needed, which a short
// descent finds. What reaches it is read run by run, and the k best are chosen among that, exactly. Of a list of more than eight times
// k the bound is taken from the best of each four, a fourth of the keys to count.
//
// Example, k = 512 of 8,192 items: some 600 of 1,024 runs reach the bound, and of their 4,800 items some 750. Of 65,536 items: some
// 600 of 2,048 fours of runs, 650 of 8,192 runs, 700 items.
#pragma once

#include "backend/cuda/index/select.cuh"

namespace deepinfer::backend::cuda {

inline constexpr int kFilterRuns = 1024;  // that may reach the bound
inline constexpr int kFilterTopkMax = kFilterRuns * 4 / 5;

// Beside SelectShared, whose keys get those of the items.
struct FilterShared {
  int32_t items[kFilterRuns * kRunItems];
  int32_t runs[kFilterRuns];
  int32_t wide_runs[kFilterRuns];
};
static_assert(kFilterRuns * kRunItems <= kSelectRound);

inline constexpr int kFour = 4;

// The keys of a list, which begins at a multiple of 16 bytes, into shared memory, or the best of each four; behind a barrier they are
// there. Returns how many.
template <bool kFours>
__device__ int ReadList(const float* list, int count, SelectShared& shared) {
  constexpr int kAtOnce = 8, kStep = kFour * kSelectThreads;
  const int end = (count + kSelectThreads - 1) / kSelectThreads * kSelectThreads, fours = (count + kFour - 1) / kFour;
  uint32_t* keys = &shared.keys[0][0];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const int at = i * kStep + kFour * static_cast<int>(threadIdx.x);
    if (kFours ? i * kSelectThreads >= fours : at >= end) break;
    float v[kFour] = {};
    if (at + kFour <= count) {
      const float4 four = *reinterpret_cast<const float4*>(list + at);
      v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
    } else {
#pragma unroll
      for (int j = 0; j < kFour; ++j) v[j] = at + j < count ? list[at + j] : 0.0f;
    }
    uint32_t key[kFour];
#pragma unroll
    for (int j = 0; j < kFour; ++j) key[j] = at + j < count ? ScoreKey(v[j]) : 0;
    if (kFours) {
      keys[at / kFour] = max(max(key[0], key[1]), max(key[2], key[3]));
    } else {
      *reinterpret_cast<uint4*>(keys + at) = make_uint4(key[0], key[1], key[2], key[3]);
    }
  }
  static_assert(kAtOnce * kStep == kSelectRound);
  return kFours ? fours : count;
}

// Elements of the listed groups of kSize values whose keys are above `floor`: calls emit(place, element, value), places ascending
// with the elements; returns how many there are. Elements from `limit` on are none. At most kFilterRuns groups.
template <int kSize, typename Emit>
__device__ int Filter(const float* values, int limit, const int32_t* groups, int count, uint32_t floor, SelectShared& shared,
                      const Emit& emit) {
  constexpr int kGroups = kFilterRuns / kSelectThreads;
  static_assert(kGroups * kSize <= 64);
  const float least = ScoreOfKey(floor + 1);
  const int each = (count + kSelectThreads - 1) / kSelectThreads, first = each * static_cast<int>(threadIdx.x);
  float v[kGroups][kSize];
  int begin[kGroups];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    begin[i] = i < each && first + i < count ? groups[first + i] * kSize : limit;
#pragma unroll
    for (int j = 0; j < kSize; j += 4) {
      if (begin[i] + j + 4 <= limit) {
        const float4 four = *reinterpret_cast<const float4*>(values + begin[i] + j);
        v[i][j] = four.x, v[i][j + 1] = four.y, v[i][j + 2] = four.z, v[i][j + 3] = four.w;
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) v[i][j + e] = begin[i] + j + e < limit ? values[begin[i] + j + e] : 0.0f;
      }
    }
  }
  uint64_t reaches = 0;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      // Of a NaN, whose place is above all numbers or which says that all keys are above `floor`, this is true.
      if (begin[i] + j < limit && !(v[i][j] < least)) reaches |= uint64_t{1} << (i * kSize + j);
    }
  }
  int total;
  const int count_here = __popcll(reaches);
  int place = SumThrough<kSelectThreads>(count_here, shared.before[0], &total) - count_here;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      if (reaches >> (i * kSize + j) & 1) emit(place++, begin[i] + j, v[i][j]);
    }
  }
  return total;
}

// Keys that lie in shared memory already.
struct NoSource {
  __device__ int At(int i) const { return i; }
  __device__ bool Has(int) const { return false; }
  __device__ float Value(int) const { return 0.0f; }
};

// A bound that at least k elements of the list reach, and which do, into `chosen`, ascending; `*floor`: the key below the bound's.
// -1: too many.
__device__ inline int ElementsAbove(const float* list, int count, int k, SelectShared& shared, FilterShared& to, int32_t* chosen,
                                    uint32_t* floor) {
  const bool fours = count > 2 * kFour * k;
  const int keys = fours ? ReadList<true>(list, count, shared) : ReadList<false>(list, count, shared);
  __syncthreads();
  Selection<NoSource> selection(NoSource{}, keys, shared);
  selection.NoteAll();
  int above = selection.template Descend<true>(k, k + k / 4);
  if (above > kFilterRuns) return -1;
  *floor = selection.Floor();
  selection.Collect([&](int place, int i) { (fours ? to.items : chosen)[place] = i; });
  __syncthreads();
  if (!fours) return above;
  above = Filter<kFour>(list, count, to.items, above, *floor, shared, [&](int place, int i, float) {
    if (place < kFilterRuns) chosen[place] = i;
  });
  __syncthreads();
  return above > kFilterRuns ? -1 : above;
}

// The runs that reach a bound, into to.runs, ascending; `*floor`: the key below the bound's. -1: too many.
template <int kWideRuns>
__device__ int RunsAbove(const float* wide, const float* best, int runs, int k, SelectShared& shared, FilterShared& to, uint32_t* floor) {
  const bool is_wide = runs > kSelectRound;
  const int count = is_wide ? (runs + kWideRuns - 1) / kWideRuns : runs;
  if (count > kSelectRound) return -1;
  int32_t* chosen = is_wide ? to.wide_runs : to.runs;
  const float* list = is_wide ? wide : best;
  int above = count;
  *floor = 0;
  if (count <= k) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSelectThreads) chosen[i] = i;
    __syncthreads();
  } else {
    above = ElementsAbove(list, count, k, shared, to, chosen, floor);
  }
  if (above < 0 || !is_wide) return above;
  above = Filter<kWideRuns>(best, runs, to.wide_runs, above, *floor, shared, [&](int place, int run, float) {
    if (place < kFilterRuns) to.runs[place] = run;
  });
  __syncthreads();
  return above > kFilterRuns ? -1 : above;
}

// Calls emit(place, item) for the k best of `items` scores, more than k, places ascending with the items, and returns true; or
// returns false without a call where the bound leaves too many (many equal scores, very long rows).
template <int kWideRuns, typename Emit>
__device__ bool SelectFiltered(const float* scores, const float* best, const float* wide, int items, int k, SelectShared& shared,
                               FilterShared& filter, const Emit& emit) {
  if (k > kFilterTopkMax) return false;
  uint32_t floor;
  const int runs = RunsAbove<kWideRuns>(wide, best, (items + kRunItems - 1) / kRunItems, k, shared, filter, &floor);
  if (runs < 0) return false;
  uint32_t* keys = &shared.keys[0][0];
  const int count = Filter<kRunItems>(scores, items, filter.runs, runs, floor, shared, [&](int place, int item, float score) {
    keys[place] = ScoreKey(score);
    filter.items[place] = item;
  });
  const int end = (count + kSelectThreads - 1) / kSelectThreads * kSelectThreads;
  if (count + static_cast<int>(threadIdx.x) < end) keys[count + static_cast<int>(threadIdx.x)] = 0;
  __syncthreads();
  Selection<NoSource> among(NoSource{}, count, shared);
  among.NoteAll();
  among.template Descend<false>(k, k);
  among.Collect([&](int place, int i) { emit(place, filter.items[i]); });
  return true;
}

}  // namespace deepinfer::backend::cuda
