// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/moe/dispatch.h"

#include <algorithm>

#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/ptx/grid.cuh"
#include "core/check.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPlanThreads = static_cast<int>(kDispatchExpertsMax);
// What one block sorts alone.
constexpr int kSmallExpertsMax = 384;
constexpr int64_t kSmallSlotsMax = 4096;

// One block an expert.
__global__ void CountKernel(DispatchParams p, int32_t* counts) {
  __shared__ int total;
  ptx::GridTrigger();
  ptx::GridWait();
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  int count = 0;
  for (int64_t slot = threadIdx.x; slot < p.rows * p.topk; slot += kThreads) {
    count += p.chosen[slot] == static_cast<int32_t>(blockIdx.x);
  }
  if (count > 0) atomicAdd(&total, count);  // integers: any order gives the same sum
  __syncthreads();
  if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// Inclusive sum over the threads of a block.
__device__ uint64_t ScanBlock(uint64_t value) {
  __shared__ uint64_t warps[kPlanThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const auto scan_warp = [&](uint64_t v) {
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const uint64_t before = __shfl_up_sync(kAllLanes, v, offset);
      v += lane >= offset ? before : 0;
    }
    return v;
  };
  value = scan_warp(value);
  if (lane == kWarp - 1) warps[warp] = value;
  __syncthreads();
  if (warp == 0) warps[lane] = scan_warp(warps[lane]);
  __syncthreads();
  return warp == 0 ? value : value + warps[warp - 1];
}

// Thread e of a block of kPlanThreads has expert e with `count` slots: writes its token tiles and clears the positions that pad it;
// returns its first position.
__device__ int Plan(const DispatchParams& p, const Dispatch& d, int count) {
  __shared__ int used[3];  // positions, tiles, rest
  const int expert = static_cast<int>(threadIdx.x);
  const int padded = (count + kGroupRows - 1) / kGroupRows * kGroupRows;
  const int last = count % p.tile_tokens, rest = last > 0 && last <= p.rest_tokens ? 1 : 0;
  const int tiles = (count + p.tile_tokens - 1) / p.tile_tokens - rest;
  // Three sums at once, of 24, 20 and 20 bits.
  const uint64_t ends = ScanBlock(static_cast<uint64_t>(padded) | static_cast<uint64_t>(tiles) << 24 | static_cast<uint64_t>(rest) << 44);
  const int position_end = static_cast<int>(ends & 0xFFFFFF), tile_end = static_cast<int>(ends >> 24 & 0xFFFFF);
  const int rest_end = static_cast<int>(ends >> 44);
  const int begin = position_end - padded;
  for (int i = 0; i < tiles; ++i) {
    d.tiles[tile_end - tiles + i] = {expert, begin + i * p.tile_tokens, min(p.tile_tokens, count - i * p.tile_tokens)};
  }
  if (rest > 0) d.rest[rest_end - 1] = {expert, begin + tiles * p.tile_tokens, last};
  for (int i = count; i < padded; ++i) d.row_of_position[begin + i] = -1;
  if (expert == kPlanThreads - 1) {
    used[0] = position_end;
    used[1] = tile_end;
    used[2] = rest_end;
  }
  __syncthreads();
  for (int64_t i = used[0] + expert; i < d.positions; i += kPlanThreads) d.row_of_position[i] = -1;
  for (int64_t i = used[1] + expert; i < d.num_tiles; i += kPlanThreads) d.tiles[i] = {0, 0, 0};
  for (int64_t i = used[2] + expert; i < d.num_rest; i += kPlanThreads) d.rest[i] = {0, 0, 0};
  return begin;
}

// One block, one thread an expert: where each expert's positions and token tiles begin.
__global__ void __launch_bounds__(kPlanThreads) PlanKernel(DispatchParams p, const int32_t* counts, int32_t* begins, Dispatch d) {
  ptx::GridTrigger();
  ptx::GridWait();
  const int expert = static_cast<int>(threadIdx.x);
  const int begin = Plan(p, d, expert < p.num_experts ? counts[expert] : 0);
  if (expert < p.num_experts) begins[expert] = begin;
}

__device__ void Place(const DispatchParams& p, const Dispatch& d, int64_t slot, int position) {
  d.row_of_position[position] = static_cast<int32_t>(slot / p.topk);
  d.weight_of_position[position] = p.weights[slot];
  d.position_of_slot[slot] = position;
}

// All of it in one block, for few slots. Warp w has the w-th part of the slots, a lane at most kLaneSlots of them.
__global__ void __launch_bounds__(kPlanThreads) SmallDispatchKernel(DispatchParams p, Dispatch d) {
  constexpr int kWarps = kPlanThreads / kWarp, kLaneSlots = static_cast<int>(kSmallSlotsMax) / kPlanThreads;
  __shared__ uint32_t cleared[kWarps * kSmallExpertsMax / 2];
  __shared__ int begins[kSmallExpertsMax];
  // [warp][expert]: slots of an expert in a warp, then in the warps before and its own so far.
  auto* before = reinterpret_cast<uint16_t*>(cleared);
  ptx::GridTrigger();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  for (int i = thread; i < kWarps * kSmallExpertsMax / 2; i += kPlanThreads) cleared[i] = 0;
  ptx::GridWait();
  const int slots = static_cast<int>(p.rows * p.topk), experts = static_cast<int>(p.num_experts);
  const int rounds = (slots + kPlanThreads - 1) / kPlanThreads, first = warp * rounds * kWarp + lane;
  int chosen[kLaneSlots], lower[kLaneSlots];  // the slot's expert or -1; slots of the same in lower lanes
#pragma unroll
  for (int i = 0; i < kLaneSlots; ++i) {
    const int slot = first + i * kWarp;
    chosen[i] = i < rounds && slot < slots ? p.chosen[slot] : -1;
    if (chosen[i] >= experts) chosen[i] = -1;
  }
  __syncthreads();
  uint16_t* own = before + warp * kSmallExpertsMax;
#pragma unroll
  for (int i = 0; i < kLaneSlots; ++i) {
    const unsigned same = __match_any_sync(kAllLanes, chosen[i]);
    lower[i] = __popc(same & ((1u << lane) - 1));
    const int sooner = chosen[i] >= 0 ? own[chosen[i]] : 0;
    __syncwarp();
    if (chosen[i] >= 0 && lower[i] == 0) own[chosen[i]] = static_cast<uint16_t>(sooner + __popc(same));
    lower[i] += sooner;
    __syncwarp();
  }
  __syncthreads();
  int count = 0;
  if (thread < experts) {
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const int in_warp = before[w * kSmallExpertsMax + thread];
      before[w * kSmallExpertsMax + thread] = static_cast<uint16_t>(count);
      count += in_warp;
    }
  }
  const int begin = Plan(p, d, count);
  if (thread < experts) begins[thread] = begin;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kLaneSlots; ++i) {
    if (chosen[i] >= 0) Place(p, d, first + i * kWarp, begins[chosen[i]] + own[chosen[i]] + lower[i]);
  }
}

// One block an expert: its slots in ascending order.
__global__ void PlaceKernel(DispatchParams p, const int32_t* begins, Dispatch d) {
  __shared__ int warps[kThreads / kWarp];
  ptx::GridTrigger();
  ptx::GridWait();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int position = begins[blockIdx.x];
  for (int64_t begin = 0; begin < p.rows * p.topk; begin += kThreads) {
    const int64_t slot = begin + threadIdx.x;
    const bool mine = slot < p.rows * p.topk && p.chosen[slot] == static_cast<int32_t>(blockIdx.x);
    const unsigned ballot = __ballot_sync(kAllLanes, mine);
    if (lane == 0) warps[warp] = __popc(ballot);
    __syncthreads();
    int before = __popc(ballot & ((1u << lane) - 1)), all = 0;
    for (int w = 0; w < kThreads / kWarp; ++w) {
      before += w < warp ? warps[w] : 0;
      all += warps[w];
    }
    __syncthreads();
    if (mine) Place(p, d, slot, position + before);
    position += all;
  }
}

__device__ void Add(float& sum, float v) { sum += v; }
__device__ void Add(float4& sum, const float4& v) {
  sum.x += v.x;
  sum.y += v.y;
  sum.z += v.z;
  sum.w += v.w;
}

// grid (columns / threads, rows); T: float4 where rows are 16-byte aligned, `width` of them.
template <typename T>
__global__ void CombineKernel(CombineParams p, int width) {
  ptx::GridTrigger();
  ptx::GridWait();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= width) return;
  const int64_t row = blockIdx.y;
  const auto* outputs = reinterpret_cast<const T*>(p.outputs);
  const int32_t* positions = p.position_of_slot + row * p.topk;
  T sum{};
#pragma unroll 8
  for (int k = 0; k < static_cast<int>(p.topk); ++k) Add(sum, outputs[int64_t{positions[k]} * width + i]);
  if (p.shared != nullptr) {
    const auto* shared = reinterpret_cast<const T*>(p.shared) + row * width + i;
    T own = shared[0];
    for (int s = 1; s < p.shared_spans; ++s) Add(own, shared[s * p.rows * width]);
    Add(sum, own);
  }
  reinterpret_cast<T*>(p.y)[row * width + i] = sum;
}

}  // namespace

Dispatch MakeDispatch(Context& context, const DispatchParams& p) {
  DI_CHECK(p.num_experts >= 1 && p.num_experts <= kDispatchExpertsMax);
  Dispatch d;
  const int64_t slots = p.rows * p.topk, used_max = std::min(slots, p.num_experts);
  d.positions = (slots + used_max * (kGroupRows - 1) + kGroupRows - 1) / kGroupRows * kGroupRows;
  d.num_tiles = slots / p.tile_tokens + used_max;
  d.num_rest = p.rest_tokens > 0 ? used_max : 0;
  const bool small = slots <= kSmallSlotsMax && p.num_experts <= kSmallExpertsMax;
  auto* counts = context.Take<int32_t>(small ? 1 : p.num_experts);
  auto* begins = context.Take<int32_t>(small ? 1 : p.num_experts);
  d.row_of_position = context.Take<int32_t>(d.positions);
  d.weight_of_position = context.Take<float>(d.positions);
  d.position_of_slot = context.Take<int32_t>(slots);
  d.tiles = context.Take<TokenTile>(d.num_tiles);
  d.rest = context.Take<TokenTile>(std::max<int64_t>(d.num_rest, 1));
  d.ok = counts != nullptr && begins != nullptr && d.row_of_position != nullptr && d.weight_of_position != nullptr &&
         d.position_of_slot != nullptr && d.tiles != nullptr && d.rest != nullptr;
  if (!d.ok) return d;
  if (small) {
    LaunchAfter(context, SmallDispatchKernel, 1, kPlanThreads, 0, p, d);
    return d;
  }
  const auto experts = static_cast<unsigned>(p.num_experts);
  LaunchAfter(context, CountKernel, experts, kThreads, 0, p, counts);
  LaunchAfter(context, PlanKernel, 1, kPlanThreads, 0, p, counts, begins, d);
  LaunchAfter(context, PlaceKernel, experts, kThreads, 0, p, begins, d);
  return d;
}

void Combine(Context& context, const CombineParams& p) {
  // Outputs are in scratch memory, which is aligned.
  const bool vectors = p.hidden % 4 == 0 && (reinterpret_cast<uintptr_t>(p.y) | reinterpret_cast<uintptr_t>(p.shared)) % 16 == 0;
  const auto width = static_cast<int>(p.hidden / (vectors ? 4 : 1));
  const dim3 grid(static_cast<unsigned>((width + kThreads - 1) / kThreads), static_cast<unsigned>(p.rows));
  LaunchAfter(context, vectors ? CombineKernel<float4> : CombineKernel<float>, grid, kThreads, 0, p, width);
}

}  // namespace deepinfer::backend::cuda
