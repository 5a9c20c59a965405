// SPDX-License-Identifier: Apache-2.0
// A block takes up to 32 rows and a slice of 256 channels of every stream; its eight warps take groups of 16 channels. Rows
// are the M of mma.sync, outputs its N. A lane reads four neighbouring channels at a time and gives them to two steps of
// eight: which channel stands at which K does not matter as long as both operands agree. Inputs pass through shared memory,
// where every lane has places of its own, so that a whole group is on its way before the first is used.
#include "backend/cuda/mhc/mhc_tensor.h"

#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/ptx/grid.cuh"
#include "backend/cuda/ptx/mma.cuh"
#include "backend/cuda/ptx/pipeline.cuh"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kGroup = 16;        // channels
constexpr int kSliceGroups = 16;
constexpr int kTileRows = 16;
constexpr int kOutputTiles = kHcOutputs / 8;
constexpr int64_t kManyRows = 512;  // from here on blocks are plenty

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

// Eight channels: component 2 step and 2 step + 1 of what the lanes hold.
__device__ void Multiply(const float2 (&x)[2], const Parts (&w)[kOutputTiles][2], Sums& sums) {
  Parts a[4];  // rows g, g + 8 of K c, then of K c + 4
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    a[h] = Split(x[h].x);
    a[2 + h] = Split(x[h].y);
  }
  const uint32_t high[4] = {a[0].high, a[1].high, a[2].high, a[3].high}, low[4] = {a[0].low, a[1].low, a[2].low, a[3].low};
#pragma unroll
  for (int t = 0; t < kOutputTiles; ++t) {
    ptx::MmaTf32(sums.high[t], high, w[t][0].high, w[t][1].high);
    ptx::MmaTf32(sums.low[t], high, w[t][0].low, w[t][1].low);
    ptx::MmaTf32(sums.low[t], low, w[t][0].high, w[t][1].high);
  }
}

// Square sums of a lane's two rows.
struct Squares {
  float row[2];
  float collapsed[2];
};

__device__ float AddSquares(float sum, const float4& v) {
  return __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, __fmaf_rn(v.x, v.x, sum))));
}
__device__ float4 AddScaled(const float4& sum, float weight, const float4& v) {
  return make_float4(__fmaf_rn(weight, v.x, sum.x), __fmaf_rn(weight, v.y, sum.y), __fmaf_rn(weight, v.z, sum.z),
                     __fmaf_rn(weight, v.w, sum.w));
}

// What a lane needs of a group, on its way: of each stream its inputs, [8 rows], then its weights, [8 outputs]; and where rows are
// expanded, what the sublayer made of them.
template <int kTiles, bool kExpand>
struct Staged {
  float4 streams[kHcStreams][kTiles * 2 + kOutputTiles][kWarp];
};
template <int kTiles>
struct Staged<kTiles, true> {
  float4 streams[kHcStreams][kTiles * 2 + kOutputTiles][kWarp];
  float4 y[kTiles * 2][kWarp];
};

template <int kTiles, bool kExpand>
__device__ void StartStream(const HcMixParams& p, const HcExpandParams& e, int64_t first_row, int64_t channel, int s,
                            Staged<kTiles, kExpand>& staged) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, last = static_cast<int>(p.rows) - 1;
#pragma unroll
  for (int i = 0; i < kTiles * 2; ++i) {
    const int row = static_cast<int>(first_row) + i * 8 + lane / 4;
    const float* x = p.x + (int64_t{min(row, last)} * kHcStreams + s) * p.hidden + channel;
    ptx::CopyUnit(&staged.streams[s][i][lane], x, row <= last ? 16 : 0);
    if constexpr (kExpand) {
      if (s == 0) ptx::CopyUnit(&staged.y[i][lane], e.y + int64_t{min(row, last)} * p.hidden + channel, row <= last ? 16 : 0);
    }
  }
#pragma unroll
  for (int t = 0; t < kOutputTiles; ++t) {
    const float* fn = static_cast<const float*>(p.fn.data) + ((t * 8 + lane / 4) * int64_t{kHcStreams} + s) * p.hidden + channel;
    ptx::CopyUnit(&staged.streams[s][kTiles * 2 + t][lane], fn, 16);
  }
}

__device__ float2 ReadPair(const float4* four, int step) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(ptx::SharedAddress(four) + 8 * step));
  return pair;
}

// Ordered against ReadPair, which the compiler takes for a read of nothing.
__device__ void WriteFour(float4* four, const float4& v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(ptx::SharedAddress(four)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}

// The group's rows expanded, in their places and in memory; in the order of operations of HcExpandKernel.
template <int kTiles>
__device__ void ExpandGroup(const HcExpandParams& e, int64_t first_row, int64_t channel, Staged<kTiles, true>& staged) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 1
  for (int i = 0; i < kTiles * 2; ++i) {
    const int64_t row = first_row + i * 8 + lane / 4;
    if (row >= e.rows) break;
    const float4 y = staged.y[i][lane];
    float4 old[kHcStreams];
#pragma unroll
    for (int j = 0; j < kHcStreams; ++j) old[j] = staged.streams[j][i][lane];
#pragma unroll
    for (int k = 0; k < kHcStreams; ++k) {
      const float post = e.post[row * kHcStreams + k];
      float4 value = make_float4(post * y.x, post * y.y, post * y.z, post * y.w);
#pragma unroll
      for (int j = 0; j < kHcStreams; ++j) {
        const float comb = e.comb[(row * kHcStreams + j) * kHcStreams + k];
        value.x += comb * old[j].x;
        value.y += comb * old[j].y;
        value.z += comb * old[j].z;
        value.w += comb * old[j].w;
      }
      WriteFour(&staged.streams[k][i][lane], value);
      *reinterpret_cast<float4*>(e.x + (row * kHcStreams + k) * e.hidden + channel) = value;
    }
  }
}

// One group of channels, all streams; meanwhile the group at `next` starts, if there is one (-1: none).
template <int kTiles, bool kExpand>
__device__ void AddGroup(const HcMixParams& p, const HcExpandParams& e, int64_t first_row, int64_t channel, int64_t next,
                         Staged<kTiles, kExpand>& staged, Sums (&sums)[kTiles], Squares (&squares)[kTiles]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4;
  float4 mixed[kTiles][2] = {};
  if constexpr (kExpand) {
    ptx::WaitForCopyGroups<0>();
    ExpandGroup<kTiles>(e, first_row, channel, staged);
  }
#pragma unroll 1
  for (int s = 0; s < kHcStreams; ++s) {
    ptx::WaitForCopyGroups<kHcStreams - 1>();
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      Parts parts[kOutputTiles][2];
#pragma unroll
      for (int t = 0; t < kOutputTiles; ++t) {
        const float2 w = ReadPair(&staged.streams[s][kTiles * 2 + t][lane], step);
        parts[t][0] = Split(w.x);
        parts[t][1] = Split(w.y);
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        // Read anew for each step: there are no registers to keep it.
        float2 pair[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) pair[h] = ReadPair(&staged.streams[s][2 * tile + h][lane], step);
        Multiply(pair, parts, sums[tile]);
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles * 2; ++i) {
      const float weight = p.collapse[min(first_row + i * 8 + g, p.rows - 1) * kHcStreams + s];
      const float4 x = staged.streams[s][i][lane];
      squares[i / 2].row[i % 2] = AddSquares(squares[i / 2].row[i % 2], x);
      mixed[i / 2][i % 2] = AddScaled(mixed[i / 2][i % 2], weight, x);
    }
    if (next >= 0) StartStream<kTiles, kExpand>(p, e, first_row, next, s, staged);
    ptx::EndCopyGroup();
  }
#pragma unroll
  for (int i = 0; i < kTiles * 2; ++i) {
    const int64_t row = first_row + i * 8 + g;
    squares[i / 2].collapsed[i % 2] = AddSquares(squares[i / 2].collapsed[i % 2], mixed[i / 2][i % 2]);
    if (row < p.rows) *reinterpret_cast<float4*>(p.collapsed + row * p.hidden + channel) = mixed[i / 2][i % 2];
  }
}

__device__ float QuadSum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

// grid (slices, rows / (16 kTiles))
template <int kTiles, bool kExpand>
__global__ void __launch_bounds__(kThreads, 2)
    TensorMixKernel(const __grid_constant__ HcMixParams p, const __grid_constant__ HcExpandParams e, float* partial) {
  ptx::GridBegin();
  constexpr int kRows = kTiles * kTileRows;
  union Shared {
    Staged<kTiles, kExpand> staged[kWarps];
    float partial[kWarps][kRows][kHcPartial];
  };
  extern __shared__ float4 raw[];
  auto& shared = *reinterpret_cast<Shared*>(raw);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp, g = lane / 4, c = lane % 4;
  const int64_t first_row = int64_t{blockIdx.y} * kRows, first_group = int64_t{blockIdx.x} * kSliceGroups;
  const int64_t groups = min(p.hidden / kGroup, first_group + kSliceGroups);
  const auto channel = [&](int64_t group) { return group < groups ? group * kGroup + 4 * c : -1; };
  Sums sums[kTiles] = {};
  Squares squares[kTiles] = {};
  for (int s = 0; s < kHcStreams; ++s) {
    if (channel(first_group + warp) >= 0) {
      StartStream<kTiles, kExpand>(p, e, first_row, channel(first_group + warp), s, shared.staged[warp]);
    }
    ptx::EndCopyGroup();
  }
  for (int64_t group = first_group + warp; group < groups; group += kWarps) {
    AddGroup<kTiles, kExpand>(p, e, first_row, channel(group), channel(group + kWarps), shared.staged[warp], sums, squares);
  }
  ptx::WaitForCopyGroups<0>();
  __syncthreads();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float* out = shared.partial[warp][tile * kTileRows + h * 8 + g];
#pragma unroll
      for (int t = 0; t < kOutputTiles; ++t) {
#pragma unroll
        for (int e = 0; e < 2; ++e) out[t * 8 + 2 * c + e] = sums[tile].high[t][2 * h + e] + sums[tile].low[t][2 * h + e];
      }
      const float row = QuadSum(squares[tile].row[h]), collapsed = QuadSum(squares[tile].collapsed[h]);
      if (c == 0) out[kHcOutputs] = row;
      if (c == 1) out[kHcOutputs + 1] = collapsed;
    }
  }
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < kRows * kHcPartial; at += kThreads) {
    const int row = at / kHcPartial, o = at % kHcPartial;
    if (first_row + row >= p.rows) break;
    float sum = shared.partial[0][row][o];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) sum += shared.partial[w][row][o];
    partial[((first_row + row) * gridDim.x + blockIdx.x) * kHcPartial + o] = sum;
  }
}

template <int kTiles, bool kExpand>
void Launch(Context& context, const HcMixParams& p, const HcExpandParams& expand, float* partial) {
  constexpr int kRows = kTiles * kTileRows;
  const dim3 grid(static_cast<unsigned>(TensorMixSlices(p)), static_cast<unsigned>((p.rows + kRows - 1) / kRows));
  constexpr int kBytes = kWarps * sizeof(Staged<kTiles, kExpand>);
  static_assert(kBytes >= int{sizeof(float)} * kWarps * kRows * kHcPartial);
  context.Record(cudaFuncSetAttribute(TensorMixKernel<kTiles, kExpand>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
                 "mixes: shared memory");
  LaunchAfter(context, TensorMixKernel<kTiles, kExpand>, grid, kThreads, kBytes, p, expand, partial);
}

}  // namespace

bool TensorMixTakes(const HcMixParams& p) { return p.streams == kHcStreams && p.hidden % kGroup == 0; }

int TensorMixSlices(const HcMixParams& p) {
  return static_cast<int>((p.hidden / kGroup + kSliceGroups - 1) / kSliceGroups);
}

bool TensorMixExpands(const HcMixParams& p) { return TensorMixTakes(p) && p.rows < kManyRows; }

void TensorMix(Context& context, const HcMixParams& p, const HcExpandParams* expand, float* partial) {
  // How many rows share the weights does not show in their sums.
  if (p.rows >= kManyRows) {
    Launch<2, false>(context, p, {}, partial);
  } else if (expand == nullptr) {
    Launch<1, false>(context, p, {}, partial);
  } else {
    Launch<1, true>(context, p, *expand, partial);
  }
}

}  // namespace deepinfer::backend::cuda
