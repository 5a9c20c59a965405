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
constexpr int64_t kSlotsLate = 32;
constexpr int kPlanThreads = static_cast<int>(kDispatchExpertsMax), kPlanWarps = kPlanThreads / kWarp;
// What one block sorts, and a lane of it.
constexpr int kSegmentSlots = 4096, kLaneSlots = kSegmentSlots / kPlanThreads;

// Thread e of a block of kPlanThreads has expert e with `count` slots: writes its token tiles and clears the positions that pad it;
// returns its first position.
__device__ int Plan(const DispatchParams& p, const Dispatch& d, int count) {
  __shared__ int used[3];  // positions, tiles, rest
  __shared__ uint64_t warps[kPlanWarps];
  const int expert = static_cast<int>(threadIdx.x);
  const int padded = (count + kGroupRows - 1) / kGroupRows * kGroupRows;
  const int last = count % p.tile_tokens, rest = last > 0 && last <= p.rest_tokens ? 1 : 0;
  const int tiles = (count + p.tile_tokens - 1) / p.tile_tokens - rest;
  // Three sums at once, of 24, 20 and 20 bits.
  const uint64_t counts = static_cast<uint64_t>(padded) | static_cast<uint64_t>(tiles) << 24 | static_cast<uint64_t>(rest) << 44;
  const uint64_t ends = SumThrough<kPlanThreads>(counts, warps);
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

// The slots of a segment in the hands of a block: warp w has its w-th part, a lane at most kLaneSlots of them.
struct SegmentSlots {
  int first;               // this lane's first slot; the others are kWarp further each
  int chosen[kLaneSlots];  // the slot's expert, or -1
  int lower[kLaneSlots];   // slots of the same expert before it in its warp
};

// Shared memory of a block that sorts: [warp][expert], how many slots.
__device__ inline uint16_t* WarpCounts() {
  extern __shared__ uint32_t sorting[];
  return reinterpret_cast<uint16_t*>(sorting);
}
size_t SortBytes(int64_t experts) { return static_cast<size_t>((kPlanWarps * experts + 1) / 2 * 4); }

// Reads a segment and counts. All threads call; what other kernels wrote is read behind GridWait.
__device__ SegmentSlots CountSegment(const DispatchParams& p, int segment) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp, experts = static_cast<int>(p.num_experts);
  auto* cleared = reinterpret_cast<uint32_t*>(WarpCounts());
  for (int i = thread; i < (kPlanWarps * experts + 1) / 2; i += kPlanThreads) cleared[i] = 0;
  ptx::GridWait();
  const int begin = segment * kSegmentSlots, end = min(begin + kSegmentSlots, static_cast<int>(p.rows * p.topk));
  const int rounds = (end - begin + kPlanThreads - 1) / kPlanThreads;
  SegmentSlots slots;
  slots.first = begin + warp * rounds * kWarp + lane;
#pragma unroll
  for (int i = 0; i < kLaneSlots; ++i) {
    const int slot = slots.first + i * kWarp;
    slots.chosen[i] = i < rounds && slot < end ? p.chosen[slot] : -1;
    if (slots.chosen[i] >= experts) slots.chosen[i] = -1;
  }
  __syncthreads();
  uint16_t* own = WarpCounts() + warp * experts;
#pragma unroll
  for (int i = 0; i < kLaneSlots; ++i) {
    const int chosen = slots.chosen[i];
    const unsigned same = __match_any_sync(kAllLanes, chosen);
    const int lower = __popc(same & ((1u << lane) - 1)), sooner = chosen >= 0 ? own[chosen] : 0;
    __syncwarp();
    if (chosen >= 0 && lower == 0) own[chosen] = static_cast<uint16_t>(sooner + __popc(same));
    slots.lower[i] = lower + sooner;
    __syncwarp();
  }
  __syncthreads();
  return slots;
}

// Thread e: the slots of expert e in the block's segment; the counts of warps become those of the warps before.
__device__ int SumWarps(int experts) {
  const int expert = static_cast<int>(threadIdx.x);
  if (expert >= experts) return 0;
  int count = 0;
#pragma unroll 8
  for (int w = 0; w < kPlanWarps; ++w) {
    uint16_t& in_warp = WarpCounts()[w * experts + expert];
    const int more = in_warp;
    in_warp = static_cast<uint16_t>(count);
    count += more;
  }
  return count;
}

// begin: thread e's first position of expert e's slots of this segment.
__device__ void PlaceSegment(const DispatchParams& p, const Dispatch& d, const SegmentSlots& slots, int begin) {
  __shared__ int begins[kPlanThreads];
  begins[threadIdx.x] = begin;
  __syncthreads();
  const uint16_t* before = WarpCounts() + threadIdx.x / kWarp * p.num_experts;
#pragma unroll
  for (int i = 0; i < kLaneSlots; ++i) {
    const int expert = slots.chosen[i], slot = slots.first + i * kWarp;
    if (expert < 0) continue;
    const int position = begins[expert] + before[expert] + slots.lower[i];
    d.row_of_position[position] = slot / static_cast<int>(p.topk);
    d.weight_of_position[position] = p.weights[slot];
    d.position_of_slot[slot] = position;
  }
}

// All of it in one block, for one segment.
__global__ void __launch_bounds__(kPlanThreads) SmallDispatchKernel(DispatchParams p, Dispatch d) {
  // What comes next takes room on all multiprocessors. Few slots leave time beside them, which the shared expert shall have first.
  const bool is_late = p.rows * p.topk <= kSlotsLate;
  if (!is_late) ptx::GridTrigger();
  const SegmentSlots slots = CountSegment(p, 0);
  if (is_late) ptx::GridTrigger();
  const int count = SumWarps(static_cast<int>(p.num_experts));
  PlaceSegment(p, d, slots, Plan(p, d, count));
}

// One block a segment: counts [segment][expert].
__global__ void __launch_bounds__(kPlanThreads) CountKernel(DispatchParams p, int32_t* counts) {
  ptx::GridTrigger();
  CountSegment(p, static_cast<int>(blockIdx.x));
  const int experts = static_cast<int>(p.num_experts), count = SumWarps(experts);
  if (static_cast<int>(threadIdx.x) < experts) counts[blockIdx.x * experts + threadIdx.x] = count;
}

// One block: counts become the first position of each expert's slots of each segment.
__global__ void __launch_bounds__(kPlanThreads) PlanKernel(DispatchParams p, int32_t* counts, int segments, Dispatch d) {
  ptx::GridTrigger();
  ptx::GridWait();
  const int expert = static_cast<int>(threadIdx.x), experts = static_cast<int>(p.num_experts);
  int count = 0;
  if (expert < experts) {
    for (int s = 0; s < segments; ++s) count += counts[s * experts + expert];
  }
  int begin = Plan(p, d, count);
  if (expert >= experts) return;
  for (int s = 0; s < segments; ++s) {
    const int more = counts[s * experts + expert];
    counts[s * experts + expert] = begin;
    begin += more;
  }
}

// One block a segment.
__global__ void __launch_bounds__(kPlanThreads) PlaceKernel(DispatchParams p, const int32_t* begins, Dispatch d) {
  ptx::GridTrigger();
  const SegmentSlots slots = CountSegment(p, static_cast<int>(blockIdx.x));
  const int experts = static_cast<int>(p.num_experts), expert = static_cast<int>(threadIdx.x);
  SumWarps(experts);
  PlaceSegment(p, d, slots, expert < experts ? begins[blockIdx.x * experts + threadIdx.x] : 0);
}

__device__ void Add(float& sum, float v) { sum += v; }
__device__ void Add(float4& sum, const float4& v) {
  sum.x += v.x;
  sum.y += v.y;
  sum.z += v.z;
  sum.w += v.w;
}

struct Float8 {
  float4 low, high;
};
__device__ void Add(Float8& sum, const Float8& v) {
  Add(sum.low, v.low);
  Add(sum.high, v.high);
}

__device__ float ToFloats(uint16_t v) { return __uint_as_float(uint32_t{v} << 16); }
__device__ float4 ToFloats(const uint2& v) {
  return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xFFFF0000u), __uint_as_float(v.y << 16),
                     __uint_as_float(v.y & 0xFFFF0000u));
}
__device__ Float8 ToFloats(const uint4& v) { return {ToFloats(make_uint2(v.x, v.y)), ToFloats(make_uint2(v.z, v.w))}; }
__device__ float ToFloats(float v) { return v; }
__device__ float4 ToFloats(const float4& v) { return v; }

// grid (columns / threads, rows); T: float4 or eight floats where rows are 16-byte aligned, `width` of them; Outputs: the same of the
// experts' outputs.
template <typename T, typename Outputs>
__global__ void CombineKernel(CombineParams p, int width) {
  ptx::GridTrigger();
  ptx::GridWait();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= width) return;
  const int64_t row = blockIdx.y;
  const auto* outputs = reinterpret_cast<const Outputs*>(p.outputs != nullptr ? static_cast<const void*>(p.outputs) : p.outputs_bf16);
  const int32_t* positions = p.position_of_slot + row * p.topk;
  T sum{};
#pragma unroll 8
  for (int k = 0; k < static_cast<int>(p.topk); ++k) Add(sum, ToFloats(outputs[int64_t{positions[k]} * width + i]));
  if (p.shared != nullptr) {
    const auto* shared = reinterpret_cast<const T*>(p.shared) + row * width + i;
    T own = shared[0];
    for (int s = 1; s < p.shared_spans; ++s) Add(own, shared[s * p.rows * width]);
    Add(sum, own);
  }
  reinterpret_cast<T*>(p.y)[row * width + i] = sum;
}

template <typename Kernel>
void AllowShared(Context& context, Kernel kernel, size_t bytes) {
  context.Record(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
                 "dispatch: shared memory");
}

}  // namespace

Dispatch MakeDispatch(Context& context, const DispatchParams& p) {
  DI_CHECK(p.num_experts >= 1 && p.num_experts <= kDispatchExpertsMax);
  Dispatch d;
  const int64_t slots = p.rows * p.topk, used_max = std::min(slots, p.num_experts);
  d.positions = (slots + used_max * (kGroupRows - 1) + kGroupRows - 1) / kGroupRows * kGroupRows;
  d.num_tiles = slots / p.tile_tokens + used_max;
  d.num_rest = p.rest_tokens > 0 ? used_max : 0;
  const auto segments = static_cast<int>((slots + kSegmentSlots - 1) / kSegmentSlots);
  auto* counts = context.Take<int32_t>(segments * p.num_experts);
  d.row_of_position = context.Take<int32_t>(d.positions);
  d.weight_of_position = context.Take<float>(d.positions);
  d.position_of_slot = context.Take<int32_t>(slots);
  d.tiles = context.Take<TokenTile>(d.num_tiles);
  d.rest = context.Take<TokenTile>(std::max<int64_t>(d.num_rest, 1));
  d.ok = counts != nullptr && d.row_of_position != nullptr && d.weight_of_position != nullptr &&
         d.position_of_slot != nullptr && d.tiles != nullptr && d.rest != nullptr;
  if (!d.ok) return d;
  const size_t shared_bytes = SortBytes(p.num_experts);
  if (segments <= 1) {
    AllowShared(context, SmallDispatchKernel, shared_bytes);
    LaunchAfter(context, SmallDispatchKernel, 1, kPlanThreads, shared_bytes, p, d);
    return d;
  }
  AllowShared(context, CountKernel, shared_bytes);
  AllowShared(context, PlaceKernel, shared_bytes);
  LaunchAfter(context, CountKernel, segments, kPlanThreads, shared_bytes, p, counts);
  LaunchAfter(context, PlanKernel, 1, kPlanThreads, 0, p, counts, segments, d);
  LaunchAfter(context, PlaceKernel, segments, kPlanThreads, shared_bytes, p, counts, d);
  return d;
}

void Combine(Context& context, const CombineParams& p) {
  // Outputs are in scratch memory, which is aligned.
  const bool aligned = (reinterpret_cast<uintptr_t>(p.y) | reinterpret_cast<uintptr_t>(p.shared)) % 16 == 0;
  const auto run = [&](auto kernel, int64_t values) {
    const auto width = static_cast<int>(p.hidden / values);
    const dim3 grid(static_cast<unsigned>((width + kThreads - 1) / kThreads), static_cast<unsigned>(p.rows));
    LaunchAfter(context, kernel, grid, kThreads, 0, p, width);
  };
  if (p.outputs_bf16 != nullptr) {
    constexpr int64_t kManyRows = 1024;  // 16 bytes a load then; of fewer rows more threads are faster
    if (aligned && p.hidden % 8 == 0 && p.rows >= kManyRows) return run(CombineKernel<Float8, uint4>, 8);
    if (aligned && p.hidden % 4 == 0) return run(CombineKernel<float4, uint2>, 4);
    return run(CombineKernel<float, uint16_t>, 1);
  }
  if (aligned && p.hidden % 4 == 0) return run(CombineKernel<float4, float4>, 4);
  run(CombineKernel<float, float>, 1);
}

}  // namespace deepinfer::backend::cuda
