// SPDX-License-Identifier: Apache-2.0
// Mixes of many rows, in one pass over memory: streams come once, the expanded ones and the collapsed rows go once.
//
// A block owns a slice of ten groups, whose weights its warps keep in registers, and walks through tiles of 16 rows, as the blocks of
// all other slices do. The copy engine brings a tile's streams in boxes of whole lines, stages ahead. Ten warps multiply, a group
// each; another adds the groups up; two store the collapsed rows. Their norm needs all slices: the collapsed channels stay in shared
// memory until the tile's other blocks have told their square sums, in words of global memory that carry the kernel's number. So
// blocks wait for each other and must run at the same time: at most one a multiprocessor, launched as a cooperative kernel.
//
// Bytes: a tile of a slice is 40 KB of streams (and 10 KB of y), three stages of which are on their way: 120 KB a multiprocessor. At
// 4.1 TB/s it needs 31 KB a microsecond: 2,500 cycles a tile, 5,000 where it is expanded. The warps that multiply need some 1,000.
// A load that another block has just written takes 2,000 while memory is busy, a warp alone 4 an instruction: so what single warps do
// for a tile is counted in instructions, and the mixes have a kernel of their own behind, a warp a row.
#include <algorithm>
#include <type_traits>

#include "backend/cuda/device/release.cuh"
#include "backend/cuda/device/tensor_map.h"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/mhc/finish.cuh"
#include "backend/cuda/mhc/group.cuh"
#include "backend/cuda/ptx/grid.cuh"
#include "backend/cuda/ptx/pipeline.cuh"
#include "backend/cuda/ptx/tensor_copy.cuh"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kBoxChannels = FloatMap::kLine;
constexpr int kBoxes = kSliceGroups * kGroup / kBoxChannels;
constexpr int kSliceChannels = kSliceGroups * kGroup;
constexpr int kTilePartial = kMixRows * kHcPartial;
constexpr int kPartials = 2;
// Warps behind those that multiply.
constexpr int kCopyWarp = kSliceGroups, kAddWarp = kCopyWarp + 1, kScaleWarp = kAddWarp + 1, kScaleWarps = 2;
constexpr int kThreads = (kScaleWarp + kScaleWarps) * kWarp;

template <bool kExpand>
struct Shared {
  static constexpr int kStages = 3;
  static constexpr int kHeld = kExpand ? 3 : 6;  // collapsed tiles that wait for their norm
  struct Streams {
    float x[kBoxes][kHcStreams][kMixRows][kBoxChannels];
  };
  struct ExpandedStreams : Streams {
    float y[kBoxes][kMixRows][kBoxChannels];
  };
  using Stage = std::conditional_t<kExpand, ExpandedStreams, Streams>;
  // What belongs to the rows of a stage.
  struct Weights {
    float4 collapse[kMixRows];
  };
  struct ExpandedWeights : Weights {
    float4 post[kMixRows];
    float4 comb[kMixRows][kHcStreams];
  };
  using OfRows = std::conditional_t<kExpand, ExpandedWeights, Weights>;
  Stage stages[kStages];
  float partial[kPartials][kSliceGroups][kTilePartial];
  float4 collapsed[kHeld][kMixRows][kSliceChannels / 4];
  OfRows of_rows[kStages];
  uint64_t filled[kStages], emptied[kStages];
  uint64_t summed[kPartials], added[kPartials];  // a group's sums are there; are added up
  uint64_t collected[kHeld], scaled[kHeld];      // collapsed channels are there; are stored
};

struct ManyParams {
  HcMixParams mix;
  HcExpandParams expand;
  float* partial;    // [tiles, slices, kMixRows, kHcPartial]
  uint64_t* number;  // of this kernel but one; the next is counted when all is done
  uint64_t* norms;   // [tiles, slices, kMixRows]: square sums of the collapsed rows and, above, the number of their kernel
  int tiles;
};

// A block's place: its slice, and its first tile of rows with the step to the next.
struct Walk {
  int slices, first_group, groups, first_tile, step, tiles;

  __device__ explicit Walk(const ManyParams& p)
      : slices(static_cast<int>(gridDim.x)),
        first_group(static_cast<int>(blockIdx.x) * kSliceGroups),
        groups(min(static_cast<int>(p.mix.hidden) / kGroup - first_group, kSliceGroups)),
        first_tile(static_cast<int>(blockIdx.y)),
        step(static_cast<int>(gridDim.y)),
        tiles(p.tiles) {}

  // Calls visit(i, tile), i counting from 0.
  template <typename Visit>
  __device__ void ForTiles(const Visit& visit) const {
#pragma unroll 1
    for (int i = 0, tile = first_tile; tile < tiles; ++i, tile += step) visit(i, tile);
  }
};

// Parity of the phase of a barrier that turn i of n in a ring waits for: that it was filled; that turn i - n is through with it.
__device__ uint32_t FilledParity(int i, int n) { return static_cast<uint32_t>(i / n) & 1; }
__device__ uint32_t EmptiedParity(int i, int n) { return FilledParity(i, n) ^ 1; }

template <bool kExpand>
__device__ void CopyTiles(const ManyParams& p, const CUtensorMap& map_x, const CUtensorMap& map_y, const Walk& walk,
                          Shared<kExpand>& shared) {
  constexpr int kStages = Shared<kExpand>::kStages;
  const int boxes = (walk.groups + 1) / 2;
  walk.ForTiles([&](int i, int tile) {
    const int s = i % kStages, first_row = tile * kMixRows, rows = min(kMixRows, static_cast<int>(p.mix.rows) - first_row);
    auto& stage = shared.stages[s];
    auto& of_rows = shared.of_rows[s];
    const uint32_t filled = ptx::SharedAddress(&shared.filled[s]);
    ptx::BarrierWait(&shared.emptied[s], EmptiedParity(i, kStages));
    const int row_bytes = rows * static_cast<int>(sizeof(float4));
    int bytes = boxes * static_cast<int>(sizeof(stage.x[0])) + row_bytes;
    if constexpr (kExpand) bytes += boxes * static_cast<int>(sizeof(stage.y[0])) + row_bytes * (1 + kHcStreams);
    ptx::BarrierArriveExpect(filled, static_cast<uint32_t>(bytes));
    for (int b = 0; b < boxes; ++b) {
      const int channel = walk.first_group * kGroup + b * kBoxChannels;
      ptx::CopyBox(ptx::SharedAddress(stage.x[b]), map_x, {channel, first_row, 0}, filled);
      if constexpr (kExpand) ptx::CopyBox(ptx::SharedAddress(stage.y[b]), map_y, {channel, first_row, 0}, filled);
    }
    const auto copy_rows = [&](void* to, const float* from, int each) {
      ptx::BulkCopy(ptx::SharedAddress(to), from + int64_t{first_row} * each, static_cast<uint32_t>(rows * each * 4), filled);
    };
    copy_rows(of_rows.collapse, p.mix.collapse, kHcStreams);
    if constexpr (kExpand) {
      copy_rows(of_rows.post, p.expand.post, kHcStreams);
      copy_rows(of_rows.comb, p.expand.comb, kHcStreams * kHcStreams);
    }
  });
}

// The warp is done with something.
__device__ void Arrive(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % kWarp < kReleasingLanes) ptx::BarrierArrive(barrier);
}

// Row of the tile of which a lane holds channels as row h * 8 + lane / 4 of the product: of rows next to each other in a load one has
// bit 2 set, so that their swizzled units lie in different banks.
__device__ int LaneRow(int h) {
  const int g = static_cast<int>(threadIdx.x) % kWarp / 4;
  return h * 8 + (g / 2 | (g & 1) << 2);
}

// One of the warps that multiply.
template <bool kExpand>
class GroupWarp {
 public:
  static constexpr int kStages = Shared<kExpand>::kStages, kHeld = Shared<kExpand>::kHeld;

  __device__ GroupWarp(const ManyParams& p, const Walk& walk, Shared<kExpand>& shared)
      : p_(p),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        c_(static_cast<int>(threadIdx.x) % 4),
        channel_((walk.first_group + warp_) * kGroup + 4 * c_) {
    const int output = static_cast<int>(threadIdx.x) % kWarp / 4;
#pragma unroll
    for (int s = 0; s < kHcStreams; ++s) {
#pragma unroll
      for (int t = 0; t < kOutputTiles; ++t) {
        const float* fn = static_cast<const float*>(p.mix.fn.data) + ((t * 8 + output) * int64_t{kHcStreams} + s) * p.mix.hidden;
        weights_[s][t] = *reinterpret_cast<const float4*>(fn + channel_);
      }
    }
  }

  __device__ void Tile(int i, int tile) {
    const int s = i % kStages;
    ptx::BarrierWait(&shared_.filled[s], FilledParity(i, kStages));
    float4 x[kHcStreams][2], collapse[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = LaneRow(h);
#pragma unroll
      for (int stream = 0; stream < kHcStreams; ++stream) x[stream][h] = Staged(shared_.stages[s].x[warp_ / 2][stream][row], row);
      collapse[h] = shared_.of_rows[s].collapse[row];
    }
    if constexpr (kExpand) ExpandRows(s, tile, x);
    Arrive(&shared_.emptied[s]);
    const float of_stream[kHcStreams][2] = {
        {collapse[0].x, collapse[1].x}, {collapse[0].y, collapse[1].y}, {collapse[0].z, collapse[1].z}, {collapse[0].w, collapse[1].w}};
    GroupSums sums;
#pragma unroll
    for (int stream = 0; stream < kHcStreams; ++stream) sums.Stream(x[stream], weights_[stream], of_stream[stream]);
    Store(i, sums);
  }

 private:
  // The lane's unit of a line of a box.
  __device__ float4 Staged(const float (&line)[kBoxChannels], int row) const {
    return reinterpret_cast<const float4*>(line)[(warp_ % 2 * 4 + c_) ^ (row & 7)];
  }

  __device__ void ExpandRows(int s, int tile, float4 (&x)[kHcStreams][2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = LaneRow(h), at = tile * kMixRows + row;
      float4 of_row[kHcStreams] = {x[0][h], x[1][h], x[2][h], x[3][h]};
      Expand(shared_.of_rows[s].post[row], shared_.of_rows[s].comb[row], Staged(shared_.stages[s].y[warp_ / 2][row], row), of_row);
      float* to = p_.expand.x + int64_t{at} * kHcStreams * p_.mix.hidden + channel_;
#pragma unroll
      for (int stream = 0; stream < kHcStreams; ++stream) {
        x[stream][h] = of_row[stream];
        if (at < p_.mix.rows) *reinterpret_cast<float4*>(to + stream * p_.mix.hidden) = of_row[stream];
      }
    }
  }

  __device__ void Store(int i, const GroupSums& sums) {
    const Results results = sums.Finish();
    ptx::BarrierWait(&shared_.scaled[i % kHeld], EmptiedParity(i, kHeld));
#pragma unroll
    for (int h = 0; h < 2; ++h) shared_.collapsed[i % kHeld][LaneRow(h)][warp_ * (kGroup / 4) + c_] = sums.mixed[h];
    Arrive(&shared_.collected[i % kHeld]);
    ptx::BarrierWait(&shared_.added[i % kPartials], EmptiedParity(i, kPartials));
    float* partial = shared_.partial[i % kPartials][warp_];
    ForResults(results, [&](int h, int o, float value) { partial[LaneRow(h) * kHcPartial + o] = value; });
    Arrive(&shared_.summed[i % kPartials]);
  }

  const ManyParams& p_;
  Shared<kExpand>& shared_;
  const int warp_, c_, channel_;
  float4 weights_[kHcStreams][kOutputTiles];
};

__device__ uint64_t Number(const ManyParams& p) { return *p.number + 1; }

// Adds the groups up, in order, and tells the other blocks the square sums of the collapsed rows.
template <bool kExpand>
__device__ void AddGroups(const ManyParams& p, const Walk& walk, Shared<kExpand>& shared) {
  constexpr int kUnits = kTilePartial / 4, kEach = (kUnits + kWarp - 1) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint64_t number = Number(p) << 32;
  walk.ForTiles([&](int i, int tile) {
    const int64_t at = int64_t{tile} * walk.slices + blockIdx.x;
    ptx::BarrierWait(&shared.summed[i % kPartials], FilledParity(i, kPartials));
    const auto& partial = shared.partial[i % kPartials];
    if (lane < kMixRows) {
      float norm = partial[0][lane * kHcPartial + kHcPartial - 1];
#pragma unroll
      for (int g = 1; g < kSliceGroups; ++g) norm += partial[g][lane * kHcPartial + kHcPartial - 1];
      ptx::StoreWord(p.norms + at * kMixRows + lane, number | __float_as_uint(norm));
    }
    float4 sums[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int unit = min(lane + k * kWarp, kUnits - 1);
      sums[k] = reinterpret_cast<const float4*>(partial[0])[unit];
#pragma unroll
      for (int g = 1; g < kSliceGroups; ++g) {
        const float4 more = reinterpret_cast<const float4*>(partial[g])[unit];
        sums[k] = make_float4(sums[k].x + more.x, sums[k].y + more.y, sums[k].z + more.z, sums[k].w + more.w);
      }
    }
    Arrive(&shared.added[i % kPartials]);
    auto* to = reinterpret_cast<float4*>(p.partial + at * kTilePartial);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if (lane + k * kWarp < kUnits) to[lane + k * kWarp] = sums[k];
    }
  });
}

// Square sum of a tile's collapsed row lane % 16, slices in order, when all slices have told theirs.
__device__ float JoinNorms(const ManyParams& p, const Walk& walk, int tile, uint32_t number) {
  const uint64_t* first = p.norms + int64_t{tile} * walk.slices * kMixRows + threadIdx.x % kMixRows;
  bool is_there;
  float sum;
  do {
    is_there = true;
    sum = 0.0f;
#pragma unroll 32
    for (const uint64_t *norm = first, *end = first + walk.slices * kMixRows; norm < end; norm += kMixRows) {
      const uint64_t word = ptx::LoadWord(norm);
      is_there = is_there && word >> 32 == number;
      sum += __uint_as_float(static_cast<uint32_t>(word));
    }
  } while (!__all_sync(kAllLanes, is_there));
  return sum;
}

// Scales the slice's channels of the collapsed rows and stores them; every other tile. A lane has every eighth unit of every fourth row.
template <bool kExpand>
__device__ void ScaleTiles(const ManyParams& p, const Walk& walk, int turn, Shared<kExpand>& shared) {
  constexpr int kHeld = Shared<kExpand>::kHeld, kLanes = 8, kEach = kSliceChannels / 4 / kLanes, kRows = kWarp / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, first = walk.first_group * kGroup, units = walk.groups * kGroup / 4;
  const auto number = static_cast<uint32_t>(Number(p));
  const int64_t part_bytes = PartBytes(p.mix.rows);
  float4 weight[kEach];
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    weight[k] = reinterpret_cast<const float4*>(p.mix.norm_weight + first)[min(lane % kLanes + k * kLanes, units - 1)];
  }
  walk.ForTiles([&](int i, int tile) {
    if (i % kScaleWarps != turn) return;
    const float sum = JoinNorms(p, walk, tile, number);
    const float scale = 1.0f / sqrtf(sum / static_cast<float>(p.mix.hidden) + p.mix.norm_eps);
    ptx::BarrierWait(&shared.collected[i % kHeld], FilledParity(i, kHeld));
#pragma unroll
    for (int r = 0; r < kMixRows; r += kRows) {
      const int row = r + lane / kLanes, global_row = tile * kMixRows + row;
      const float by = __shfl_sync(kAllLanes, scale, row);
      const float4* from = shared.collapsed[i % kHeld][row];
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const int unit = lane % kLanes + k * kLanes;
        const float4 x = from[unit], w = weight[k];
        if (unit >= units || global_row >= p.mix.rows) continue;
        const float4 y = make_float4(x.x * by * w.x, x.y * by * w.y, x.z * by * w.z, x.w * by * w.w);
        const int channel = first + 4 * unit;
        *reinterpret_cast<float4*>(p.mix.collapsed + global_row * p.mix.hidden + channel) = y;
        StoreInputs(p.mix, global_row, channel, y, part_bytes);
      }
    }
    Arrive(&shared.scaled[i % kHeld]);
  });
}

constexpr int kFinishRows = 8;

// Behind it, a warp a row: the mixes. Counts the kernels.
__global__ void __launch_bounds__(kFinishRows * kWarp) ManyFinishKernel(const __grid_constant__ ManyParams p, int slices) {
  ptx::GridTrigger();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = static_cast<int>(blockIdx.x) * kFinishRows + static_cast<int>(threadIdx.x) / kWarp;
  const OutputScale<kHcStreams> output(p.mix, lane);
  ptx::GridWait();
  if (blockIdx.x == 0 && threadIdx.x == 0) ++*p.number;
  if (row >= p.mix.rows) return;
  const float* partial = p.partial + int64_t{row / kMixRows} * slices * kTilePartial + row % kMixRows * kHcPartial;
  FinishMixes<kHcStreams>(p.mix, row, JoinSlices<kHcPartial>(partial, kTilePartial, slices, lane), output);
}

// grid (slices, walkers)
template <bool kExpand>
__global__ void __launch_bounds__(kThreads, 1)
    ManyRowsKernel(const __grid_constant__ ManyParams p, const __grid_constant__ CUtensorMap map_x,
                   const __grid_constant__ CUtensorMap map_y) {
  extern __shared__ __align__(1024) uint8_t raw_shared[];
  auto& shared = *reinterpret_cast<Shared<kExpand>*>(raw_shared);
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarp, 0);
  const Walk walk(p);
  ptx::GridTrigger();
  if (threadIdx.x == 0) {
    const auto groups = static_cast<uint32_t>(walk.groups * kReleasingLanes);
    for (int s = 0; s < Shared<kExpand>::kStages; ++s) {
      ptx::BarrierInit(&shared.filled[s], 1);
      ptx::BarrierInit(&shared.emptied[s], groups);
    }
    for (int s = 0; s < kPartials; ++s) {
      ptx::BarrierInit(&shared.summed[s], groups);
      ptx::BarrierInit(&shared.added[s], kReleasingLanes);
    }
    for (int s = 0; s < Shared<kExpand>::kHeld; ++s) {
      ptx::BarrierInit(&shared.collected[s], groups);
      ptx::BarrierInit(&shared.scaled[s], kReleasingLanes);
    }
    ptx::FenceBarrierInit();
  }
  // What groups that are not there add to the sums: nothing, not even to a sign.
  for (int i = walk.groups * kTilePartial + static_cast<int>(threadIdx.x); i < kSliceGroups * kTilePartial; i += kThreads) {
    for (auto& partial : shared.partial) partial[i / kTilePartial][i % kTilePartial] = -0.0f;
  }
  __syncthreads();
  if (warp < kSliceGroups) {
    if (warp >= walk.groups) return;
    GroupWarp<kExpand> group(p, walk, shared);
    ptx::GridWait();
    walk.ForTiles([&](int i, int tile) { group.Tile(i, tile); });
    return;
  }
  ptx::GridWait();
  if (warp == kCopyWarp) {
    if (threadIdx.x % kWarp == 0) CopyTiles<kExpand>(p, map_x, map_y, walk, shared);
  } else if (warp == kAddWarp) {
    AddGroups<kExpand>(p, walk, shared);
  } else {
    ScaleTiles<kExpand>(p, walk, warp - kScaleWarp, shared);
  }
}

template <bool kExpand>
constexpr int kBytes = sizeof(Shared<kExpand>);

template <bool kExpand>
void AllowSharedMemory(Context& context) {
  static_assert(kBytes<kExpand> <= 227 * 1024);
  context.Record(cudaFuncSetAttribute(ManyRowsKernel<kExpand>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes<kExpand>),
                 "mixes: shared memory");
}

// Blocks that can wait for each other.
template <bool kExpand>
int BlocksAtOnce(Context& context) {
  return context.AskOnce(reinterpret_cast<const void*>(ManyRowsKernel<kExpand>), [&context] {
    AllowSharedMemory<kExpand>(context);
    int of_each = 0;
    context.Record(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_each, ManyRowsKernel<kExpand>, kThreads, kBytes<kExpand>),
                   "mixes: blocks at once");
    return of_each * context.num_sms();
  });
}

template <bool kExpand>
void Launch(Context& context, const ManyParams& p, dim3 grid) {
  AllowSharedMemory<kExpand>(context);
  const auto rows = static_cast<uint64_t>(p.mix.rows), hidden = static_cast<uint64_t>(p.mix.hidden), line = hidden * sizeof(float);
  CUtensorMap map_x{}, map_y{};
  if (!MakeMap(context, {p.mix.x, {hidden, rows, kHcStreams}, {kHcStreams * line, line}, {kMixRows, kHcStreams}}, &map_x)) return;
  if (kExpand && !MakeMap(context, {p.expand.y, {hidden, rows, 1}, {line, rows * line}, {kMixRows, 1}}, &map_y)) return;
  if (!LaunchWith(context, {.together = true}, ManyRowsKernel<kExpand>, grid, kThreads, kBytes<kExpand>, p, map_x, map_y)) return;
  const auto finish_blocks = static_cast<unsigned>((p.mix.rows + kFinishRows - 1) / kFinishRows);
  const bool finishes = LaunchAfter(context, ManyFinishKernel, finish_blocks, kFinishRows * kWarp, 0, p, static_cast<int>(grid.x));
  // Nobody counts this kernel then: the next one would have its number, and take its norms for its own.
  if (!finishes) context.ClearMarks();
}

constexpr int64_t kNumbers = 2;  // words before the norms, of which the first is in use

int64_t Tiles(const HcMixParams& p) { return (p.rows + kMixRows - 1) / kMixRows; }

}  // namespace

bool ManyMixTakes(Context& context, const HcMixParams& p, bool expands) {
  constexpr int64_t kManyRows = 1024;  // fewer are sooner through the other kernels
  if (!TensorMixTakes(p) || p.rows < kManyRows) return false;
  const int slices = TensorMixSlices(p);
  if (kNumbers + Tiles(p) * kMixRows * slices > Context::kNumMarks) return false;
  return slices <= std::min(context.num_sms(), expands ? BlocksAtOnce<true>(context) : BlocksAtOnce<false>(context));
}

void ManyMix(Context& context, const HcMixParams& p, const HcExpandParams* expand) {
  const int slices = TensorMixSlices(p), tiles = static_cast<int>(Tiles(p));
  auto* partial = context.Take<float>(int64_t{tiles} * slices * kTilePartial);
  if (partial == nullptr) return;
  uint64_t* marks = context.marks();
  ManyParams many{.mix = p, .expand = {}, .partial = partial, .number = marks, .norms = marks + kNumbers, .tiles = tiles};
  const dim3 grid(static_cast<unsigned>(slices), static_cast<unsigned>(std::min(context.num_sms() / slices, tiles)));
  if (expand == nullptr) return Launch<false>(context, many, grid);
  many.expand = *expand;
  Launch<true>(context, many, grid);
}

}  // namespace deepinfer::backend::cuda
