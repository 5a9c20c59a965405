// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/moe/dispatch.h"

#include <algorithm>

#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/linear/packed.h"
#include "core/check.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPlanThreads = static_cast<int>(kDispatchExpertsMax);

// One block an expert.
__global__ void CountKernel(DispatchParams p, int32_t* counts) {
  __shared__ int total;
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

// One block, one thread an expert: where each expert's positions and token tiles begin.
__global__ void __launch_bounds__(kPlanThreads) PlanKernel(DispatchParams p, const int32_t* counts, int32_t* begins, Dispatch d) {
  __shared__ int shared[kPlanThreads];
  __shared__ int num_tiles;
  const int expert = static_cast<int>(threadIdx.x);
  const int count = expert < p.num_experts ? counts[expert] : 0;
  const int padded = (count + kGroupRows - 1) / kGroupRows * kGroupRows;
  const int tiles = (count + p.tile_tokens - 1) / p.tile_tokens;
  const int begin = ScanBlock(padded, shared) - padded;
  const int tile_end = ScanBlock(tiles, shared);
  if (expert < p.num_experts) begins[expert] = begin;
  for (int i = 0; i < tiles; ++i) {
    d.tiles[tile_end - tiles + i] = {expert, begin + i * p.tile_tokens, min(p.tile_tokens, count - i * p.tile_tokens)};
  }
  if (expert == kPlanThreads - 1) num_tiles = tile_end;
  __syncthreads();
  for (int64_t i = num_tiles + expert; i < d.num_tiles; i += kPlanThreads) d.tiles[i] = {0, 0, 0};
}

// One block an expert: its slots in ascending order.
__global__ void PlaceKernel(DispatchParams p, const int32_t* begins, Dispatch d) {
  __shared__ int warps[kThreads / kWarp];
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
    if (mine) {
      d.row_of_position[position + before] = static_cast<int32_t>(slot / p.topk);
      d.weight_of_position[position + before] = p.weights[slot];
      d.position_of_slot[slot] = position + before;
    }
    position += all;
  }
}

// grid (rows, columns / threads)
__global__ void CombineKernel(CombineParams p) {
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
  auto* counts = context.Take<int32_t>(p.num_experts);
  auto* begins = context.Take<int32_t>(p.num_experts);
  d.row_of_position = context.Take<int32_t>(d.positions);
  d.weight_of_position = context.Take<float>(d.positions);
  d.position_of_slot = context.Take<int32_t>(slots);
  d.tiles = context.Take<TokenTile>(d.num_tiles);
  d.ok = counts != nullptr && begins != nullptr && d.row_of_position != nullptr && d.weight_of_position != nullptr &&
         d.position_of_slot != nullptr && d.tiles != nullptr;
  if (!d.ok) return d;
  const auto experts = static_cast<unsigned>(p.num_experts);
  context.Record(cudaMemsetAsync(d.row_of_position, 0xFF, static_cast<size_t>(d.positions) * sizeof(int32_t), context.stream()),
                 "experts: clearing positions");
  CountKernel<<<experts, kThreads, 0, context.stream()>>>(p, counts);
  PlanKernel<<<1, kPlanThreads, 0, context.stream()>>>(p, counts, begins, d);
  PlaceKernel<<<experts, kThreads, 0, context.stream()>>>(p, begins, d);
  return d;
}

void Combine(Context& context, const CombineParams& p) {
  const dim3 grid(static_cast<unsigned>(p.rows), static_cast<unsigned>((p.hidden + kThreads - 1) / kThreads));
  CombineKernel<<<grid, kThreads, 0, context.stream()>>>(p);
}

}  // namespace deepinfer::backend::cuda
