// SPDX-License-Identifier: Apache-2.0
// Decodes the keys that many rows can see, once: of each run of neighbouring rows of one request the window keys from the first one's to
// the last position, then all latents up to that position. Numbers count decoded keys over all runs, from 1 on.
#include <algorithm>
#include <climits>

#include "backend/cuda/attention/gather_launch.h"
#include "backend/cuda/attention/sparse_decode_sm90.cuh"
#include "backend/cuda/attention/sparse_places_sm90.cuh"

namespace deepinfer::backend::cuda {
namespace {

using namespace sparse;  // NOLINT: sizes and places

constexpr int kPlanThreads = 1024, kRowsOfThread = 8;

// What a row adds to its run.
struct RowOfRun {
  int request;
  int first, end;  // positions of window keys
};
__device__ RowOfRun LoadRow(const SparseParams& p, int row) {
  if (row >= p.op.rows) return {-1, INT_MAX, 0};
  const int position = p.op.positions[row], first = max(max(position - p.op.window + 1, p.op.window_floor[row]), 0);
  return {p.op.requests[row], first <= position ? first : INT_MAX, position + 1};
}

// Adds what rows of a run need.
__device__ void Widen(int* first, int* end, int run, const RowOfRun& all) {
  if (all.first < INT_MAX) atomicMin(&first[run], all.first);
  if (all.end > 0) atomicMax(&end[run], all.end);
}

// One block finds the runs, and where each one's keys go. A thread has neighbouring rows, whose loads are on their way at once.
__global__ void __launch_bounds__(kPlanThreads) PlanKernel(const __grid_constant__ SparseParams p, const DecodedKeys keys) {
  __shared__ int first[DecodedRuns::kRunsMax], end[DecodedRuns::kRunsMax], warps[2][kPlanThreads / kWarp];
  const int t = static_cast<int>(threadIdx.x), rows = static_cast<int>(p.op.rows);
  DecodedRuns& runs = *keys.runs;
  first[t] = INT_MAX;
  end[t] = 0;
  __syncthreads();
  int num_runs = 0, turn = 0;
  for (int begin = t * kRowsOfThread; begin - t * kRowsOfThread < rows; begin += kPlanThreads * kRowsOfThread, turn ^= 1) {
    RowOfRun row[kRowsOfThread];
#pragma unroll
    for (int i = 0; i < kRowsOfThread; ++i) row[i] = LoadRow(p, begin + i);
    int before = begin > 0 && begin < rows ? p.op.requests[begin - 1] : -1, starts = 0, more = 0;
    const int before_first = before;
#pragma unroll
    for (int i = 0; i < kRowsOfThread; ++i) {
      starts += row[i].request != before && row[i].request >= 0 ? 1 : 0;
      before = row[i].request;
    }
    int run = num_runs - 1 - starts + SumThrough<kPlanThreads>(starts, warps[turn], &more);
    num_runs += more;
    if (num_runs > DecodedRuns::kRunsMax) break;
    before = before_first;
    RowOfRun all = {before, INT_MAX, 0};
#pragma unroll
    for (int i = 0; i < kRowsOfThread; ++i) {
      if (begin + i >= rows) break;
      if (row[i].request != all.request) {
        Widen(first, end, run, all);
        runs.requests[++run] = row[i].request;
        all = {row[i].request, INT_MAX, 0};
      }
      keys.begins[begin + i].x = run;
      all.first = min(all.first, row[i].first);
      all.end = max(all.end, row[i].end);
    }
    Widen(first, end, run, all);
  }
  __syncthreads();
  if (num_runs > DecodedRuns::kRunsMax) {
    if (t == 0) runs.num_keys = 0;
    return;
  }
  const int window = t < num_runs ? max(end[t] - first[t], 0) : 0;
  const int latents = t < num_runs && p.op.has_latents ? end[t] / p.op.latent_cache.ratio : 0;
  int total = 0;
  const int through = SumThrough<kPlanThreads>(min(window + latents, keys.keys_max), warps[turn], &total);
  const int begin = 1 + through - window - latents;  // 0 is no key's number
  if (t < num_runs) {
    runs.first_window[t] = first[t];
    runs.window_keys[t] = window;
    runs.begins[t] = begin;
  }
  if (t == 0) {
    runs.num_runs = num_runs;
    runs.num_keys = total < keys.keys_max ? total + 1 : 0;
  }
  first[t] = begin - first[t];
  end[t] = begin + window;
  __syncthreads();
  for (int r = t; r < rows; r += kPlanThreads) {
    const int run = keys.begins[r].x;
    keys.begins[r] = make_int2(first[run], end[run]);
  }
}

// A lane's sixteen channels of a key: where they lie, and what scales them.
struct Sixteen {
  const uint8_t* codes;   // nullptr: no key
  const uint8_t* scale;
  bool is_window;
};

// The key with this number; every lane has its own.
__device__ Sixteen FindKey(const SparseParams& p, const DecodedRuns& runs, int number) {
  if (number == 0 || number >= runs.num_keys) return {nullptr, nullptr, true};
  int run = 0;
  for (int step = DecodedRuns::kRunsMax / 2; step > 0; step /= 2) {
    if (run + step < runs.num_runs && runs.begins[run + step] <= number) run += step;
  }
  const int key = number - runs.begins[run], window = runs.window_keys[run], request = runs.requests[run];
  if (key < window) {
    const WindowRow row = FindWindowRow(p.op.window_cache, request, runs.first_window[run] + key);
    return {row.codes, row.scales, true};
  }
  const GlobalRow row = FindGlobalRow(p.op.latent_cache, request, key - window);
  return {row.latent_codes, row.latent_scales, false};
}

constexpr int kDecodeThreads = 256, kKeysOfWarp = 8, kKeysInFlight = 4;

// A warp has eight keys at a time, a lane sixteen channels of each.
__global__ void __launch_bounds__(kDecodeThreads) DecodeKeysKernel(const __grid_constant__ SparseParams p, const DecodedKeys keys) {
  const DecodedRuns& runs = *keys.runs;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, num_keys = runs.num_keys;
  const int warp = static_cast<int>(blockIdx.x * (kDecodeThreads / kWarp) + threadIdx.x / kWarp);
  const int warps = static_cast<int>(gridDim.x) * (kDecodeThreads / kWarp);
  // In a chunk of 64 channels units A come before units B, in odd chunks behind them.
  const int chunk = lane / 4, unit = lane % 4 + chunk % 2 * 4, to = chunk * 128 + unit * 16;
  for (int begin = warp * kKeysOfWarp; begin < num_keys; begin += warps * kKeysOfWarp) {
    const Sixteen own = FindKey(p, runs, begin + lane % kKeysOfWarp);
    for (int first = 0; first < kKeysOfWarp; first += kKeysInFlight) {
      uint4 codes[kKeysInFlight];
      uint32_t scale[kKeysInFlight];
      int kinds[kKeysInFlight];
#pragma unroll
      for (int i = 0; i < kKeysInFlight; ++i) {
        const auto at = reinterpret_cast<const uint8_t*>(__shfl_sync(kAllLanes, reinterpret_cast<uint64_t>(own.codes), first + i));
        const auto scales = reinterpret_cast<const uint8_t*>(__shfl_sync(kAllLanes, reinterpret_cast<uint64_t>(own.scale), first + i));
        const bool is_window = __shfl_sync(kAllLanes, own.is_window ? 1 : 0, first + i) != 0;
        kinds[i] = is_window ? 1 : 0;
        codes[i] = make_uint4(0, 0, 0, 0);
        scale[i] = 0;
        if (at == nullptr) continue;
        if (is_window) {
          codes[i] = *reinterpret_cast<const uint4*>(at + lane * 16);
          scale[i] = scales[lane / 2];
        } else {
          const auto two = *reinterpret_cast<const uint2*>(at + lane * 8);
          codes[i].x = two.x;
          codes[i].y = two.y;
          scale[i] = scales[lane];
        }
      }
#pragma unroll
      for (int i = 0; i < kKeysInFlight; ++i) {
        const int number = begin + first + i;
        if (number >= num_keys) break;
        uint4 units[2];
        if (kinds[i] != 0) {
          const uint32_t words[4] = {codes[i].x, codes[i].y, codes[i].z, codes[i].w};
          DecodeWindow(words, WindowScale(scale[i]), units);
        } else {
          uint32_t factors[2];
          LatentScales(scale[i], factors);
          DecodeLatent(codes[i].x, codes[i].y, factors[0], units);
        }
        uint8_t* key = keys.keys + size_t{static_cast<uint32_t>(number)} * (kDim * 2);
        *reinterpret_cast<uint4*>(key + to) = units[0];
        *reinterpret_cast<uint4*>(key + (to ^ 64)) = units[1];
      }
    }
  }
}

}  // namespace

// A row saves some 70 ns where it decodes nothing, or 15 where keys come from memory: far more than fit into the second-level cache. A
// decoded key costs some 0.5.
int32_t DecodedKeysMax(const SparseParams& p) {
  constexpr int64_t kRowsMin = 1024, kKeysOfRow = 32, kKeysMax = 128 << 10;
  return p.op.rows >= kRowsMin ? static_cast<int32_t>(std::min(p.op.rows * kKeysOfRow, kKeysMax)) : 0;
}

DecodedKeys DecodeKeys(Context& context, const SparseParams& p, int32_t keys_max) {
  const DecodedKeys keys{.keys = context.Take<uint8_t>(int64_t{keys_max} * kDim * 2),
                         .runs = context.Take<DecodedRuns>(1),
                         .begins = context.Take<int2>(p.op.rows),
                         .keys_max = keys_max};
  if (keys.keys == nullptr || keys.runs == nullptr || keys.begins == nullptr) return {};
  PlanKernel<<<1, kPlanThreads, 0, context.stream()>>>(p, keys);
  DecodeKeysKernel<<<static_cast<unsigned>(context.num_sms() * 8), kDecodeThreads, 0, context.stream()>>>(p, keys);
  return keys;
}

}  // namespace deepinfer::backend::cuda
