// SPDX-License-Identifier: Apache-2.0
// A warp takes 16 rows and a group of 16 channels of every stream at a time: rows are the M of mma.sync, outputs its N. Inputs and
// weights pass through shared memory as units of four channels, so that much is on its way and ldmatrix hands them out as operands.
//
// Few rows: a warp a group, a block a slice, so that one row keeps as many multiprocessors busy as there are slices. Many rows: a
// block keeps the weights of its slice, and each of its warps walks through tiles of rows.
#include "backend/cuda/mhc/mhc_tensor.h"

#include <algorithm>

#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/ptx/grid.cuh"
#include "backend/cuda/ptx/mma.cuh"
#include "backend/cuda/ptx/pipeline.cuh"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kGroup = 16;  // channels
constexpr int kSliceGroups = 10;
constexpr int kTileRows = 16;
constexpr int kOutputTiles = kHcOutputs / 8;
constexpr int64_t kManyRows = 512;  // from here on warps are plenty

// TF32 parts of a value; their sum is the value but for its last two bits.
struct Parts {
  uint32_t high;
  uint32_t low;
};
__device__ Parts Split(float value) {
  constexpr uint32_t kTf32 = 0xFFFFE000u;
  const uint32_t high = __float_as_uint(value) & kTf32;
  return {high, __float_as_uint(value - __uint_as_float(high)) & kTf32};
}

// Outputs of a row tile: high x high and the mixed products.
struct Sums {
  float high[kOutputTiles][4];
  float low[kOutputTiles][4];
};

// Eight channels.
__device__ void Multiply(const uint32_t (&x)[4], const uint32_t (&w)[kOutputTiles][2], Sums& sums) {
  uint32_t high[4], low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Parts parts = Split(__uint_as_float(x[i]));
    high[i] = parts.high;
    low[i] = parts.low;
  }
#pragma unroll
  for (int t = 0; t < kOutputTiles; ++t) {
    const Parts b0 = Split(__uint_as_float(w[t][0])), b1 = Split(__uint_as_float(w[t][1]));
    ptx::MmaTf32(sums.high[t], high, b0.high, b1.high);
    ptx::MmaTf32(sums.low[t], high, b0.low, b1.low);
    ptx::MmaTf32(sums.low[t], low, b0.high, b1.high);
  }
}

__device__ float QuadSum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

// A group in one stream: of rows 0 .. 7 and 8 .. 15, of eight outputs each, units of four channels, at Place.
using StagedInputs = float4[2][kWarp];
using StagedWeights = float4[kOutputTiles][kWarp];

// Unit `unit` of four of row (or output) r of eight: ldmatrix reads one unit of eight rows at a time, which lie in different banks.
__device__ int Place(int r, int unit) { return r * 4 + (unit ^ r / 2); }

// The unit that a lane copies: of row lane / 4.
__device__ int LanePlace() {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return Place(lane / 4, lane % 4);
}
__device__ int LaneChannel(int group) { return group * kGroup + static_cast<int>(threadIdx.x) % 4 * 4; }

// The rows of a tile that a lane looks after: lane / 4 and that and 8.
struct LaneRows {
  int row[2];  // the last one of all where there is none
  bool is_row[2];

  __device__ LaneRows(const HcMixParams& p, int first_row) {
    const int rows = static_cast<int>(p.rows);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = first_row + h * 8 + static_cast<int>(threadIdx.x) % kWarp / 4;
      is_row[h] = at < rows;
      row[h] = min(at, rows - 1);
    }
  }
  __device__ const float* Inputs(const HcMixParams& p, int h) const { return p.x + int64_t{row[h]} * kHcStreams * p.hidden; }
};

__device__ void StartWeights(const HcMixParams& p, int group, int s, StagedWeights& staged) {
  const int output = static_cast<int>(threadIdx.x) % kWarp / 4;
#pragma unroll
  for (int t = 0; t < kOutputTiles; ++t) {
    const float* fn = static_cast<const float*>(p.fn.data) + ((t * 8 + output) * int64_t{kHcStreams} + s) * p.hidden;
    ptx::CopyUnit(&staged[t][LanePlace()], fn + LaneChannel(group), 16);
  }
}

// What a lane holds of a tile's results, of a group or added up: outputs as mma.sync leaves them, square sums of its two rows.
struct Results {
  float outputs[kOutputTiles][4];
  float row[2];
  float collapsed[2];

  __device__ void Add(const Results& other) {
#pragma unroll
    for (int t = 0; t < kOutputTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) outputs[t][e] += other.outputs[t][e];
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      row[h] += other.row[h];
      collapsed[h] += other.collapsed[h];
    }
  }
};

// One group: Stream is called for each stream in order. Of its rows a lane holds channel lane % 4 of each unit.
struct GroupSums {
  static constexpr int kUnits = kGroup / 4;
  Sums sums = {};
  float mixed[2][kUnits] = {};
  float squares[2] = {};

  // Behind a barrier of the warp that all copied.
  __device__ void Stream(const StagedInputs& inputs, const StagedWeights& weights, const float (&collapse)[2]) {
    const int r = static_cast<int>(threadIdx.x) % 8, matrix = static_cast<int>(threadIdx.x) % kWarp / 8;
    uint32_t x[2][4], w[kOutputTiles][4];
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      ptx::LoadMatrices(ptx::SharedAddress(&inputs[matrix % 2][Place(r, 2 * step + matrix / 2)]), x[step]);
    }
#pragma unroll
    for (int t = 0; t < kOutputTiles; ++t) ptx::LoadMatrices(ptx::SharedAddress(&weights[t][Place(r, matrix)]), w[t]);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint32_t b[kOutputTiles][2];
#pragma unroll
      for (int t = 0; t < kOutputTiles; ++t) {
        b[t][0] = w[t][2 * step];
        b[t][1] = w[t][2 * step + 1];
      }
      Multiply(x[step], b, sums);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        const float value = __uint_as_float(x[unit / 2][h + unit % 2 * 2]);
        squares[h] = __fmaf_rn(value, value, squares[h]);
        mixed[h][unit] = __fmaf_rn(collapse[h], value, mixed[h][unit]);
      }
    }
  }

  // Stores the collapsed channels.
  __device__ Results Finish(const HcMixParams& p, const LaneRows& rows, int group) const {
    Results results;
#pragma unroll
    for (int t = 0; t < kOutputTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) results.outputs[t][e] = sums.high[t][e] + sums.low[t][e];
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float collapsed = 0.0f;
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) collapsed = __fmaf_rn(mixed[h][unit], mixed[h][unit], collapsed);
      results.row[h] = QuadSum(squares[h]);
      results.collapsed[h] = QuadSum(collapsed);
      if (!rows.is_row[h]) continue;
      float* out = p.collapsed + int64_t{rows.row[h]} * p.hidden + group * kGroup + threadIdx.x % 4;
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) out[4 * unit] = mixed[h][unit];
    }
    return results;
  }
};

// Calls store(h, o, value) for each of the lane's results.
template <typename Store>
__device__ void ForResults(const Results& results, const Store& store) {
  const int c = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int t = 0; t < kOutputTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 2; ++e) store(h, t * 8 + 2 * c + e, results.outputs[t][2 * h + e]);
    }
    if (c == 0) store(h, kHcOutputs, results.row[h]);
    if (c == 1) store(h, kHcOutputs + 1, results.collapsed[h]);
  }
}

// The collapse weights of a lane's rows.
__device__ void ReadCollapse(const HcMixParams& p, const LaneRows& rows, float (&collapse)[kHcStreams][2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float4 of_row = reinterpret_cast<const float4*>(p.collapse)[rows.row[h]];
    collapse[0][h] = of_row.x, collapse[1][h] = of_row.y, collapse[2][h] = of_row.z, collapse[3][h] = of_row.w;
  }
}

// A row's four channels of every stream expanded, in the order of operations of HcExpandKernel.
__device__ void Expand(const HcExpandParams& p, int row, const float4& y, float4 (&x)[kHcStreams]) {
  const float4 of_y = reinterpret_cast<const float4*>(p.post)[row];
  const float post[kHcStreams] = {of_y.x, of_y.y, of_y.z, of_y.w};
  float4 expanded[kHcStreams];
#pragma unroll
  for (int k = 0; k < kHcStreams; ++k) expanded[k] = make_float4(post[k] * y.x, post[k] * y.y, post[k] * y.z, post[k] * y.w);
#pragma unroll
  for (int j = 0; j < kHcStreams; ++j) {
    const float4 of_x = reinterpret_cast<const float4*>(p.comb)[row * kHcStreams + j];
    const float comb[kHcStreams] = {of_x.x, of_x.y, of_x.z, of_x.w};
#pragma unroll
    for (int k = 0; k < kHcStreams; ++k) {
      expanded[k].x += comb[k] * x[j].x;
      expanded[k].y += comb[k] * x[j].y;
      expanded[k].z += comb[k] * x[j].z;
      expanded[k].w += comb[k] * x[j].w;
    }
  }
#pragma unroll
  for (int k = 0; k < kHcStreams; ++k) x[k] = expanded[k];
}

constexpr int kFewThreads = kSliceGroups * kWarp;

struct FewShared {
  StagedInputs inputs[kSliceGroups][kHcStreams];
  union {
    StagedWeights weights[kSliceGroups][kHcStreams];
    float partial[kSliceGroups][kTileRows][kHcPartial];
  };
};

// Expands what a lane copied of its rows, in its place, and stores it.
__device__ void ExpandStaged(const HcExpandParams& e, const LaneRows& rows, int group, StagedInputs (&staged)[kHcStreams]) {
  const int channel = LaneChannel(group), place = LanePlace();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float4 x[kHcStreams];
#pragma unroll
    for (int s = 0; s < kHcStreams; ++s) x[s] = staged[s][h][place];
    Expand(e, rows.row[h], *reinterpret_cast<const float4*>(e.y + int64_t{rows.row[h]} * e.hidden + channel), x);
#pragma unroll
    for (int s = 0; s < kHcStreams; ++s) {
      staged[s][h][place] = x[s];
      if (rows.is_row[h]) *reinterpret_cast<float4*>(e.x + (int64_t{rows.row[h]} * kHcStreams + s) * e.hidden + channel) = x[s];
    }
  }
}

// grid (slices, tiles of rows)
template <bool kExpand>
__global__ void __launch_bounds__(kFewThreads, 2)
    FewRowsKernel(const __grid_constant__ HcMixParams p, const __grid_constant__ HcExpandParams e, float* partial) {
  extern __shared__ float4 raw[];
  auto& shared = *reinterpret_cast<FewShared*>(raw);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first_row = static_cast<int>(blockIdx.y) * kTileRows, first_group = static_cast<int>(blockIdx.x) * kSliceGroups;
  const int groups = min(static_cast<int>(p.hidden) / kGroup - first_group, kSliceGroups);
  ptx::GridTrigger();
  const int group = first_group + warp;
  for (int s = 0; s < kHcStreams && warp < groups; ++s) StartWeights(p, group, s, shared.weights[warp][s]);
  ptx::GridWait();
  Results results;
  if (warp < groups) {
    const LaneRows rows(p, first_row);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* x = rows.Inputs(p, h) + LaneChannel(group);
      for (int s = 0; s < kHcStreams; ++s) ptx::CopyUnit(&shared.inputs[warp][s][h][LanePlace()], x + s * p.hidden, 16);
    }
    float collapse[kHcStreams][2];
    ReadCollapse(p, rows, collapse);
    ptx::WaitForCopies();
    if constexpr (kExpand) ExpandStaged(e, rows, group, shared.inputs[warp]);
    __syncwarp();
    GroupSums sums;
#pragma unroll
    for (int s = 0; s < kHcStreams; ++s) sums.Stream(shared.inputs[warp][s], shared.weights[warp][s], collapse[s]);
    results = sums.Finish(p, rows, group);
  }
  __syncthreads();  // all weights are read
  if (warp < groups) ForResults(results, [&](int h, int o, float value) { shared.partial[warp][h * 8 + lane / 4][o] = value; });
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < kTileRows * kHcPartial; at += kFewThreads) {
    const int row = at / kHcPartial, o = at % kHcPartial;
    if (first_row + row >= p.rows) break;
    float sum = shared.partial[0][row][o];
#pragma unroll
    for (int g = 1; g < kSliceGroups; ++g) sum = g < groups ? sum + shared.partial[g][row][o] : sum;
    partial[(int64_t{first_row + row} * gridDim.x + blockIdx.x) * kHcPartial + o] = sum;
  }
}

template <bool kExpand>
void LaunchFew(Context& context, const HcMixParams& p, const HcExpandParams& expand, float* partial) {
  context.Record(cudaFuncSetAttribute(FewRowsKernel<kExpand>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(FewShared)),
                 "mixes: shared memory");
  const dim3 grid(static_cast<unsigned>(TensorMixSlices(p)), static_cast<unsigned>((p.rows + kTileRows - 1) / kTileRows));
  LaunchAfter(context, FewRowsKernel<kExpand>, grid, kFewThreads, sizeof(FewShared), p, expand, partial);
}

constexpr int kManyWarps = 8;
constexpr int kManyThreads = kManyWarps * kWarp;
constexpr int kRing = 6;  // streams of a warp that are on their way

struct ManyShared {
  StagedWeights weights[kSliceGroups][kHcStreams];
  StagedInputs inputs[kManyWarps][kRing];
};

// Walks a warp's inputs, tile after tile, group after group, stream after stream, ahead of what is multiplied.
class InputReader {
 public:
  __device__ InputReader(const HcMixParams& p, int first_group, int groups, int first_tile, int tile_step)
      : p_(p), first_group_(first_group), groups_(groups), tile_(first_tile), tile_step_(tile_step) {
    FindRows();
  }

  // Starts the next copies, if there are any, which are of stream s; a group of copies in any case.
  __device__ void Start(int s, StagedInputs& to) {
    if (tile_ * kTileRows < static_cast<int>(p_.rows)) {
#pragma unroll
      for (int h = 0; h < 2; ++h) ptx::CopyUnit(&to[h][LanePlace()], from_[h] + s * p_.hidden, 16);
      if (s == kHcStreams - 1) NextGroup();
    }
    ptx::EndCopyGroup();
  }

 private:
  __device__ void NextGroup() {
#pragma unroll
    for (int h = 0; h < 2; ++h) from_[h] += kGroup;
    if (++group_ < groups_) return;
    tile_ += tile_step_;
    FindRows();
  }
  __device__ void FindRows() {
    const LaneRows rows(p_, tile_ * kTileRows);
    group_ = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) from_[h] = rows.Inputs(p_, h) + LaneChannel(first_group_);
  }

  const HcMixParams& p_;
  const int first_group_, groups_;
  int tile_, group_;
  const int tile_step_;
  const float* from_[2];
};

// grid (slices, any); tiles of rows go round the warps of a slice's blocks
__global__ void __launch_bounds__(kManyThreads, 2) ManyRowsKernel(const __grid_constant__ HcMixParams p, float* partial) {
  extern __shared__ float4 raw[];
  auto& shared = *reinterpret_cast<ManyShared*>(raw);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int first_group = static_cast<int>(blockIdx.x) * kSliceGroups;
  const int groups = min(static_cast<int>(p.hidden) / kGroup - first_group, kSliceGroups);
  ptx::GridTrigger();
  for (int i = warp; i < groups * kHcStreams; i += kManyWarps) {
    StartWeights(p, first_group + i / kHcStreams, i % kHcStreams, shared.weights[i / kHcStreams][i % kHcStreams]);
  }
  ptx::GridWait();
  const int tile_step = static_cast<int>(gridDim.y) * kManyWarps, first_tile = static_cast<int>(blockIdx.y) * kManyWarps + warp;
  InputReader reader(p, first_group, groups, first_tile, tile_step);
  for (int i = 0; i < kRing; ++i) reader.Start(i % kHcStreams, shared.inputs[warp][i]);
  ptx::WaitForCopyGroups<kRing - 1>();  // the weights are among the first
  __syncthreads();
  int slot = 0;
  for (int tile = first_tile; tile * kTileRows < static_cast<int>(p.rows); tile += tile_step) {
    const LaneRows rows(p, tile * kTileRows);
    float collapse[kHcStreams][2];
    ReadCollapse(p, rows, collapse);
    Results totals;
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      GroupSums sums;
#pragma unroll
      for (int s = 0; s < kHcStreams; ++s) {
        ptx::WaitForCopyGroups<kRing - 1>();
        __syncwarp();
        sums.Stream(shared.inputs[warp][slot], shared.weights[group][s], collapse[s]);
        // ldmatrix is one instruction of the whole warp: all have read their parts of the slot.
        reader.Start((s + kRing) % kHcStreams, shared.inputs[warp][slot]);
        slot = slot + 1 == kRing ? 0 : slot + 1;
      }
      const Results results = sums.Finish(p, rows, first_group + group);
      if (group == 0) {
        totals = results;
      } else {
        totals.Add(results);
      }
    }
    ForResults(totals, [&](int h, int o, float value) {
      if (rows.is_row[h]) partial[(int64_t{rows.row[h]} * gridDim.x + blockIdx.x) * kHcPartial + o] = value;
    });
  }
}

}  // namespace

bool TensorMixTakes(const HcMixParams& p) { return p.streams == kHcStreams && p.hidden % kGroup == 0; }

int TensorMixSlices(const HcMixParams& p) {
  return static_cast<int>((p.hidden / kGroup + kSliceGroups - 1) / kSliceGroups);
}

bool TensorMixExpands(const HcMixParams& p) { return TensorMixTakes(p) && p.rows < kManyRows; }

void TensorMix(Context& context, const HcMixParams& p, const HcExpandParams* expand, float* partial) {
  // Which kernel runs does not show in a row's sums.
  if (p.rows < kManyRows && expand == nullptr) return LaunchFew<false>(context, p, {}, partial);
  if (p.rows < kManyRows) return LaunchFew<true>(context, p, *expand, partial);
  context.Record(cudaFuncSetAttribute(ManyRowsKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(ManyShared)),
                 "mixes: shared memory");
  const auto slices = static_cast<unsigned>(TensorMixSlices(p)), tiles = static_cast<unsigned>((p.rows + kTileRows - 1) / kTileRows);
  const unsigned blocks = std::clamp(2 * static_cast<unsigned>(context.num_sms()) / slices, 1u, (tiles + kManyWarps - 1) / kManyWarps);
  LaunchAfter(context, ManyRowsKernel, dim3(slices, blocks), kManyThreads, sizeof(ManyShared), p, partial);
}

}  // namespace deepinfer::backend::cuda
