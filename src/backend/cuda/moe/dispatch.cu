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
__device__ int ScanBlock(int value, int* shared) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int offset = 1; offset < kPlanThreads; offset *= 2) {
    const int before = static_cast<int>(threadIdx.x) >= offset ? shared[threadIdx.x - offset] : 0;
    __syncthreads();
    shared[threadIdx.x] += before;
    __syncthreads();
  }
  const int sum = shared[threadIdx.x];
  __syncthreads();
  return sum;
}

// Thread e of a block of kPlanThreads has expert e with `count` slots: writes its token tiles and clears the positions that pad it;
// returns its first position.
__device__ int Plan(const DispatchParams& p, const Dispatch& d, int count) {
  __shared__ int scan[kPlanThreads];
  __shared__ int used[3];  // positions, tiles, rest
  const int expert = static_cast<int>(threadIdx.x);
  const int padded = (count + kGroupRows - 1) / kGroupRows * kGroupRows;
  const int last = count % p.tile_tokens, rest = last > 0 && last <= p.rest_tokens ? 1 : 0;
  const int tiles = (count + p.tile_tokens - 1) / p.tile_tokens - rest;
  const int position_end = ScanBlock(padded, scan), tile_end = ScanBlock(tiles, scan), rest_end = ScanBlock(rest, scan);
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

// All of it in one block, for few slots. Warp w has the w-th part of the slots.
__global__ void __launch_bounds__(kPlanThreads) SmallDispatchKernel(DispatchParams p, Dispatch d) {
  constexpr int kWarps = kPlanThreads / kWarp;
  __shared__ uint16_t before[kWarps][kSmallExpertsMax];  // slots of an expert in a warp, then in the warps before and its own so far
  __shared__ int begins[kSmallExpertsMax];
  ptx::GridTrigger();
  ptx::GridWait();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  for (int i = thread; i < kWarps * kSmallExpertsMax; i += kPlanThreads) before[i / kSmallExpertsMax][i % kSmallExpertsMax] = 0;
  __syncthreads();
  const int slots = static_cast<int>(p.rows * p.topk), experts = static_cast<int>(p.num_experts);
  const int part = (slots + kPlanThreads - 1) / kPlanThreads * kWarp;
  // Calls act(slot, expert, slots of the expert in lower lanes, whether this lane is its lowest, their number) for each slot.
  const auto for_slots = [&](const auto& act) {
    for (int at = warp * part; at < min((warp + 1) * part, slots); at += kWarp) {
      const int slot = at + lane, chosen = slot < slots ? p.chosen[slot] : -1;
      const bool valid = chosen >= 0 && chosen < experts;
      const unsigned same = __match_any_sync(kAllLanes, chosen);
      const int lower = __popc(same & ((1u << lane) - 1));
      if (valid) act(slot, chosen, lower);
      __syncwarp();
      if (valid && lower == 0) before[warp][chosen] = static_cast<uint16_t>(before[warp][chosen] + __popc(same));
      __syncwarp();
    }
  };
  for_slots([](int, int, int) {});
  __syncthreads();
  int count = 0;
  if (thread < experts) {
    for (int w = 0; w < kWarps; ++w) {
      const int own = before[w][thread];
      before[w][thread] = static_cast<uint16_t>(count);
      count += own;
    }
  }
  const int begin = Plan(p, d, count);
  if (thread < experts) begins[thread] = begin;
  __syncthreads();
  for_slots([&](int slot, int expert, int lower) { Place(p, d, slot, begins[expert] + before[warp][expert] + lower); });
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

// grid (rows, columns / threads)
__global__ void CombineKernel(CombineParams p) {
  ptx::GridTrigger();
  ptx::GridWait();
  const int64_t row = blockIdx.x, i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= p.hidden) return;
  float sum = 0.0f;
  for (int64_t k = 0; k < p.topk; ++k) sum += p.outputs[p.position_of_slot[row * p.topk + k] * p.hidden + i];
  if (p.shared != nullptr) sum += p.shared[row * p.hidden + i];
  p.y[row * p.hidden + i] = sum;
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
  const dim3 grid(static_cast<unsigned>(p.rows), static_cast<unsigned>((p.hidden + kThreads - 1) / kThreads));
  LaunchAfter(context, CombineKernel, grid, kThreads, 0, p);
}

}  // namespace deepinfer::backend::cuda
