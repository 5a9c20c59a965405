// SPDX-License-Identifier: Apache-2.0
// Few rows: a warp a group, a block a slice, so that one row keeps as many multiprocessors busy as there are slices. What a lane
// multiplies it brings itself, through shared memory, so that much is on its way.
#include <algorithm>

#include "backend/cuda/launch_after.h"
#include "backend/cuda/mhc/group.cuh"
#include "backend/cuda/ptx/grid.cuh"
#include "backend/cuda/ptx/pipeline.cuh"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kFewThreads = kSliceGroups * kWarp;

// Loops are not unrolled: what runs once a launch is bound by reading instructions.
struct FewShared {
  float4 inputs[kSliceGroups][kHcStreams][2][kWarp];  // each lane's own
  float4 outputs[kSliceGroups][2][kWarp];             // of the sublayer, each lane's own
  float4 rows[kMixRows][kHcStreams + 2];              // comb, post, collapse
  union {
    float4 weights[kSliceGroups][kHcStreams][kOutputTiles][kWarp];
    float partial[kSliceGroups][kMixRows][kHcPartial];
  };
};
constexpr int kPostOfRow = kHcStreams, kCollapseOfRow = kHcStreams + 1;

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
};

// Where a lane's channels of a stream of a row begin.
__device__ int64_t InputAt(const HcMixParams& p, int row, int s, int channel) {
  return (int64_t{row} * kHcStreams + s) * p.hidden + channel;
}

__device__ void StartWeights(const HcMixParams& p, int channel, int s, float4 (&staged)[kOutputTiles][kWarp]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int t = 0; t < kOutputTiles; ++t) {
    const float* fn = static_cast<const float*>(p.fn.data) + ((t * 8 + lane / 4) * int64_t{kHcStreams} + s) * p.hidden;
    ptx::CopyUnit(&staged[t][lane], fn + channel, 16);
  }
}

// Starts copying what belongs to whole rows, a unit each of the first threads.
template <bool kExpand>
__device__ void StartRows(const HcMixParams& p, const HcExpandParams& e, int first_row, FewShared& shared) {
  constexpr int kUnits = kHcStreams + 2;
  const int t = static_cast<int>(threadIdx.x), in_tile = t / kUnits, unit = t % kUnits;
  if (in_tile >= kMixRows || (!kExpand && unit != kCollapseOfRow)) return;
  const int row = min(first_row + in_tile, static_cast<int>(p.rows) - 1);
  const float* from = unit == kCollapseOfRow ? p.collapse + row * kHcStreams
                      : unit == kPostOfRow   ? e.post + row * kHcStreams
                                             : e.comb + (row * kHcStreams + unit) * kHcStreams;
  ptx::CopyUnit(&shared.rows[in_tile][unit], from, 16);
}

// The sublayer's outputs in the lane's channels, spans added up. Two spans of both rows are asked for at a time.
__device__ void LoadOutputs(const ExpandOfSpans& e, const LaneRows& rows, int channel, float4 (&out)[2][kWarp]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float* at[2];
  float4 y[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    at[h] = e.expand.y + int64_t{rows.row[h]} * e.expand.hidden + channel;
    y[h] = *reinterpret_cast<const float4*>(at[h]);
  }
#pragma unroll 1
  for (int s = 1; s < e.spans; s += 2) {
    float4 more[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) more[i][h] = *reinterpret_cast<const float4*>(at[h] + min(s + i, e.spans - 1) * e.stride);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (s + i >= e.spans) break;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float4 v = more[i][h];
        y[h] = make_float4(y[h].x + v.x, y[h].y + v.y, y[h].z + v.z, y[h].w + v.w);
      }
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) out[h][lane] = y[h];
}

// Expands what a lane copied of its rows, in its place, and stores it.
__device__ void ExpandStaged(const HcMixParams& p, float* x_out, int first_row, int channel,
                             const float4 (&of_rows)[kMixRows][kHcStreams + 2],
                             const float4 (&outputs)[2][kWarp], float4 (&staged)[kHcStreams][2][kWarp]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 1
  for (int h = 0; h < 2; ++h) {
    const int in_tile = h * 8 + lane / 4, row = first_row + in_tile;
    float4 x[kHcStreams], comb[kHcStreams];
#pragma unroll
    for (int s = 0; s < kHcStreams; ++s) {
      x[s] = staged[s][h][lane];
      comb[s] = of_rows[in_tile][s];
    }
    Expand(of_rows[in_tile][kPostOfRow], comb, outputs[h][lane], x);
    float* to = x_out + InputAt(p, row, 0, channel);
#pragma unroll
    for (int s = 0; s < kHcStreams; ++s) {
      staged[s][h][lane] = x[s];
      if (row < p.rows) *reinterpret_cast<float4*>(to + s * p.hidden) = x[s];
    }
  }
}

// The warp's group; stores the collapsed channels.
__device__ Results SumGroup(const HcMixParams& p, const LaneRows& rows, int channel, const float4 (&of_rows)[kMixRows][kHcStreams + 2],
                            const float4 (&inputs)[kHcStreams][2][kWarp], const float4 (&weights)[kHcStreams][kOutputTiles][kWarp]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float* collapse[2] = {reinterpret_cast<const float*>(&of_rows[lane / 4][kCollapseOfRow]),
                              reinterpret_cast<const float*>(&of_rows[lane / 4 + 8][kCollapseOfRow])};
  GroupSums sums;
#pragma unroll 1
  for (int s = 0; s < kHcStreams; ++s) {
    float4 w[kOutputTiles];
#pragma unroll
    for (int t = 0; t < kOutputTiles; ++t) w[t] = weights[s][t][lane];
    sums.Stream({inputs[s][0][lane], inputs[s][1][lane]}, w, {collapse[0][s], collapse[1][s]});
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (rows.is_row[h]) *reinterpret_cast<float4*>(p.collapsed + int64_t{rows.row[h]} * p.hidden + channel) = sums.mixed[h];
  }
  return sums.Finish();
}

// grid (slices, tiles of rows)
template <bool kExpand>
__global__ void __launch_bounds__(kFewThreads, 2)
    FewRowsKernel(const __grid_constant__ HcMixParams p, const __grid_constant__ ExpandOfSpans e, float* partial) {
  extern __shared__ float4 raw[];
  auto& shared = *reinterpret_cast<FewShared*>(raw);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first_row = static_cast<int>(blockIdx.y) * kMixRows, first_group = static_cast<int>(blockIdx.x) * kSliceGroups;
  const int groups = min(static_cast<int>(p.hidden) / kGroup - first_group, kSliceGroups);
  const int channel = (first_group + warp) * kGroup + lane % 4 * 4;
  const LaneRows rows(p, first_row);
  ptx::GridTrigger();
#pragma unroll 1
  for (int s = 0; s < kHcStreams && warp < groups; ++s) StartWeights(p, channel, s, shared.weights[warp][s]);
  ptx::GridWait();
  StartRows<kExpand>(p, e.expand, first_row, shared);
  if (warp < groups) {
#pragma unroll 1
    for (int s = 0; s < kHcStreams; ++s) {
#pragma unroll
      for (int h = 0; h < 2; ++h) ptx::CopyUnit(&shared.inputs[warp][s][h][lane], p.x + InputAt(p, rows.row[h], s, channel), 16);
    }
    if constexpr (kExpand) LoadOutputs(e, rows, channel, shared.outputs[warp]);
  }
  ptx::WaitForCopies();
  __syncthreads();
  Results results;
  if (warp < groups) {
    if constexpr (kExpand) ExpandStaged(p, e.expand.x, first_row, channel, shared.rows, shared.outputs[warp], shared.inputs[warp]);
    results = SumGroup(p, rows, channel, shared.rows, shared.inputs[warp], shared.weights[warp]);
  }
  __syncthreads();  // all weights are read
  if (warp < groups) ForResults(results, [&](int h, int o, float value) { shared.partial[warp][h * 8 + lane / 4][o] = value; });
  __syncthreads();
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x); at < kMixRows * kHcPartial; at += kFewThreads) {
    const int row = at / kHcPartial, o = at % kHcPartial;
    if (first_row + row >= p.rows) break;
    float sum = shared.partial[0][row][o];
#pragma unroll
    for (int g = 1; g < kSliceGroups; ++g) sum = g < groups ? sum + shared.partial[g][row][o] : sum;
    partial[(int64_t{first_row + row} * gridDim.x + blockIdx.x) * kHcPartial + o] = sum;
  }
}

template <bool kExpand>
void LaunchFew(Context& context, const HcMixParams& p, const ExpandOfSpans& expand, float* partial) {
  context.Record(cudaFuncSetAttribute(FewRowsKernel<kExpand>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(FewShared)),
                 "mixes: shared memory");
  const dim3 grid(static_cast<unsigned>(TensorMixSlices(p)), static_cast<unsigned>((p.rows + kMixRows - 1) / kMixRows));
  LaunchAfter(context, FewRowsKernel<kExpand>, grid, kFewThreads, sizeof(FewShared), p, expand, partial);
}

}  // namespace

bool TensorMixTakes(const HcMixParams& p) { return p.streams == kHcStreams && p.hidden % kGroup == 0; }

int TensorMixSlices(const HcMixParams& p) {
  return static_cast<int>((p.hidden / kGroup + kSliceGroups - 1) / kSliceGroups);
}

void TensorMix(Context& context, const HcMixParams& p, const ExpandOfSpans* expand, float* partial) {
  if (expand == nullptr) return LaunchFew<false>(context, p, {}, partial);
  LaunchFew<true>(context, p, *expand, partial);
}

}  // namespace deepinfer::backend::cuda
