// SPDX-License-Identifier: Apache-2.0
// Hyper-connections (spec/model.md 2): the mixes of a site with all Sinkhorn iterations in one kernel, collapse, expand.
#include <cmath>

#include "backend/cuda/device/aligned_row.cuh"
#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/linear/inputs.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/mhc/finish.cuh"
#include "backend/cuda/mhc/mhc_tensor.h"
#include "backend/cuda/ptx/grid.cuh"
#include "backend/cuda/ptx/pipeline.cuh"
#include "core/check.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kStreamsMax = 4;

// collapsed = rms(sum_s weights[s] * x[s]; norm_weight) of one row, by the whole block.
template <int kStreams>
__device__ void Collapse(const float* x, const float* weights, int64_t hidden, const float* norm_weight, float eps,
                         float* out, float* shared) {
  float sum = 0.0f;
  const auto mixed = [&](int64_t i) {
    float value = 0.0f;
    for (int s = 0; s < kStreams; ++s) value += weights[s] * x[s * hidden + i];
    return value;
  };
  for (int64_t i = threadIdx.x; i < hidden; i += kThreads) {
    const float value = mixed(i);
    sum += value * value;
  }
  const float scale = 1.0f / sqrtf(BlockSum<kThreads>(sum, shared) / static_cast<float>(hidden) + eps);
  for (int64_t i = threadIdx.x; i < hidden; i += kThreads) out[i] = mixed(i) * scale * norm_weight[i];
}

// Products of a row with the outputs and, last, with itself, over one slice of its channels.
constexpr int Products(int streams) { return (2 + streams) * streams + 1; }

// A row is cut into slices so that one row alone keeps many multiprocessors busy: a function of the model's shape.
int NumSlices(int64_t flat) { return flat >= 4096 ? 16 : 1; }

// grid (slices, rows / kRows): partial[row][slice][product]. Thread t sums channels t, t + 256, ... of the slice in order,
// then the fixed tree of BlockSum. Rows of a block share what is loaded of fn; each has its own sums.
template <int kStreams, int kRows>
__global__ void __launch_bounds__(kThreads) HcProductsKernel(HcMixParams p, float* partial) {
  ptx::GridBegin();
  constexpr int kOutputs = Products(kStreams) - 1;
  __shared__ float shared[kThreads / kWarp];
  const int64_t flat = kStreams * p.hidden, first = int64_t{blockIdx.y} * kRows;
  const int64_t begin = blockIdx.x * flat / gridDim.x, end = (blockIdx.x + 1) * flat / gridDim.x;
  const float* fn = static_cast<const float*>(p.fn.data);
  float sums[kRows][kOutputs + 1] = {};
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    float x[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) x[r] = first + r < p.rows ? p.x[(first + r) * flat + i] : 0.0f;
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const float weight = fn[o * flat + i];
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r][o] = __fmaf_rn(x[r], weight, sums[r][o]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums[r][kOutputs] = __fmaf_rn(x[r], x[r], sums[r][kOutputs]);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int o = 0; o <= kOutputs; ++o) {
      const float sum = BlockSum<kThreads>(sums[r][o], shared);
      if (threadIdx.x == 0 && first + r < p.rows) partial[((first + r) * gridDim.x + blockIdx.x) * (kOutputs + 1) + o] = sum;
    }
  }
}

// grid (rows, 2): the mixes and the collapse of a row do not wait for each other.
template <int kStreams>
__global__ void __launch_bounds__(kThreads) HcFinishKernel(HcMixParams p, const float* partial, int num_slices) {
  ptx::GridBegin();
  __shared__ float shared[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  if (blockIdx.y == 0) {
    const int lane = static_cast<int>(threadIdx.x);
    if (lane >= kWarp) return;
    const OutputScale<kStreams> output(p, lane);
    constexpr int kProducts = Products(kStreams);
    FinishMixes<kStreams>(p, row, JoinSlices<kProducts>(partial + row * num_slices * kProducts, kProducts, num_slices, lane), output);
  } else {
    Collapse<kStreams>(p.x + row * kStreams * p.hidden, p.collapse + row * kStreams, p.hidden, p.norm_weight, p.norm_eps,
                       p.collapsed + row * p.hidden, shared);
  }
}

// Units of four channels of a collapsed row that a thread holds.
constexpr int kHeld = 5;

// Whether ScaleCollapsed lays the row out for aligned matrices: it holds the whole of it then.
__host__ __device__ bool MixLaysAligned(const HcMixParams& p) {
  return p.inputs != nullptr && LaidForm(p.inputs_as).aligned && p.hidden <= kHeld * 4 * kThreads;
}

// A collapsed row as inputs for aligned matrices, by kThreads threads; thread t holds units t, t + kThreads, ..., zeros behind the last.
// Eight threads hold an FP8 block.
__device__ void StoreAlignedInputs(const HcMixParams& p, int64_t row, const float4 (&v)[kHeld], int64_t part_bytes) {
  constexpr int kBarrier = 1;  // of these threads alone
  __shared__ int largest[kThreads / kWarp];
  const int t = static_cast<int>(threadIdx.x), units = static_cast<int>(p.hidden / 4);
  int scales[kHeld], most = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    float amax = fmaxf(fmaxf(fabsf(v[i].x), fabsf(v[i].y)), fmaxf(fabsf(v[i].z), fabsf(v[i].w)));
#pragma unroll
    for (int lanes = 1; lanes < 8; lanes *= 2) amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, lanes));
    scales[i] = numeric::Fp8Scale(amax);
    most = max(most, scales[i]);
  }
  most = __reduce_max_sync(kAllLanes, most);
  if (t % kWarp == 0) largest[t / kWarp] = most;
  ptx::SyncThreads(kBarrier, kThreads);
#pragma unroll
  for (int warp = 0; warp < kThreads / kWarp; ++warp) most = max(most, largest[warp]);
  if (t == 0) AlignedRowScales(p.inputs, p.hidden, p.rows)[row] = numeric::E8m0ToFloat(static_cast<uint8_t>(most));
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int unit = t + i * kThreads;
    if (unit >= units) return;
    const float by = ScaleInverse(scales[i]);
    *reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(p.inputs) + AlignedInputPlace(row, unit * 4, part_bytes)) =
        AlignE4m3(EncodeE4m3(v[i].x * by, v[i].y * by, v[i].z * by, v[i].w * by), scales[i], most);
  }
}

// Scales a collapsed row, which TensorMix left unscaled, by kThreads threads. What it reads is asked for before the sum is known.
__device__ void ScaleCollapsed(const HcMixParams& p, const float* partial, int64_t row, int num_slices) {
  const int t = static_cast<int>(threadIdx.x), units = static_cast<int>(p.hidden / 4);
  const auto* weight = reinterpret_cast<const float4*>(p.norm_weight);
  float4 w[kHeld] = {}, v[kHeld] = {};
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (t + i * kThreads < units) w[i] = weight[t + i * kThreads];
  }
  ptx::GridWait();
  auto* out = reinterpret_cast<float4*>(p.collapsed + row * p.hidden);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (t + i * kThreads < units) v[i] = out[t + i * kThreads];
  }
  const float sum = JoinSlices<kHcPartial>(partial + row * num_slices * kHcPartial, kHcPartial, num_slices, kHcPartial - 1);
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(p.hidden) + p.norm_eps);
  const int64_t part_bytes = PartBytes(p.rows);
  if (MixLaysAligned(p)) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      v[i] = make_float4(v[i].x * scale * w[i].x, v[i].y * scale * w[i].y, v[i].z * scale * w[i].z, v[i].w * scale * w[i].w);
      if (t + i * kThreads < units) out[t + i * kThreads] = v[i];
    }
    return StoreAlignedInputs(p, row, v, part_bytes);
  }
  const auto store = [&](int unit, const float4& x, const float4& by) {
    const float4 y = make_float4(x.x * scale * by.x, x.y * scale * by.y, x.z * scale * by.z, x.w * scale * by.w);
    out[unit] = y;
    StoreInputs(p, row, unit * 4, y, part_bytes);
  };
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (t + i * kThreads < units) store(t + i * kThreads, v[i], w[i]);
  }
  for (int i = t + kHeld * kThreads; i < units; i += kThreads) store(i, out[i], weight[i]);
}

// After TensorMix: one warp finishes the mixes while the others scale the collapsed row. grid (rows), the last row first: its
// channels are in the cache yet.
__global__ void __launch_bounds__(kThreads + kWarp) HcTensorFinishKernel(HcMixParams p, const float* partial, int num_slices) {
  ptx::GridTrigger();
  const int64_t row = p.rows - 1 - blockIdx.x;
  if (threadIdx.x < kThreads) return ScaleCollapsed(p, partial, row, num_slices);
  const int lane = static_cast<int>(threadIdx.x) - kThreads;
  const OutputScale<kHcStreams> output(p, lane);
  ptx::GridWait();
  FinishMixes<kHcStreams>(p, row, JoinSlices<kHcPartial>(partial + row * num_slices * kHcPartial, kHcPartial, num_slices, lane), output);
}

void TensorHcMix(Context& context, const HcMixParams& p, const ExpandOfSpans* expand) {
  const int num_slices = TensorMixSlices(p);
  auto* partial = context.Take<float>(p.rows * num_slices * kHcPartial);
  if (partial == nullptr) return;
  TensorMix(context, p, expand, partial);
  LaunchAfter(context, HcTensorFinishKernel, static_cast<unsigned>(p.rows), kThreads + kWarp, 0, p, partial, num_slices);
}

template <int kStreams, int kRows>
void LaunchProducts(Context& context, const HcMixParams& p, int num_slices, float* partial) {
  const dim3 grid(static_cast<unsigned>(num_slices), static_cast<unsigned>((p.rows + kRows - 1) / kRows));
  LaunchAfter(context, HcProductsKernel<kStreams, kRows>, grid, kThreads, 0, p, partial);
}

template <int kStreams>
__global__ void __launch_bounds__(kThreads) HcCollapseKernel(HcCollapseParams p) {
  ptx::GridBegin();
  __shared__ float shared[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  Collapse<kStreams>(p.x + row * kStreams * p.hidden, p.collapse + row * kStreams, p.hidden, p.norm_weight, p.norm_eps,
                     p.collapsed + row * p.hidden, shared);
}

template <int kStreams>
__global__ void __launch_bounds__(kThreads) HcExpandKernel(HcExpandParams p) {
  ptx::GridBegin();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= p.rows * p.hidden) return;
  const int64_t row = at / p.hidden, i = at % p.hidden;
  float* x = p.x + row * kStreams * p.hidden;
  float old[kStreams];
  for (int j = 0; j < kStreams; ++j) old[j] = x[j * p.hidden + i];
  for (int k = 0; k < kStreams; ++k) {
    float value = p.post[row * kStreams + k] * p.y[at];
    for (int j = 0; j < kStreams; ++j) value += p.comb[(row * kStreams + j) * kStreams + k] * old[j];
    x[k * p.hidden + i] = value;
  }
}

// Calls launch with the number of streams as a compile-time constant.
template <typename Launch>
void WithStreams(int64_t streams, const Launch& launch) {
  DI_CHECK(streams >= 1 && streams <= kStreamsMax);
  switch (streams) {
    case 1:
      return launch.template operator()<1>();
    case 2:
      return launch.template operator()<2>();
    case 3:
      return launch.template operator()<3>();
    default:
      return launch.template operator()<4>();
  }
}

void LayCollapsed(Context& context, const HcMixParams& p) {
  PackInputs(context, {.x = p.collapsed, .x_stride = p.hidden, .rows = p.rows, .cols = p.hidden, .form = LaidForm(p.inputs_as),
                       .into = p.inputs});
}

// Mixes of rows that may have to be expanded first; of several spans where TensorHcMix takes them.
void Mix(Context& context, const HcMixParams& p, const ExpandOfSpans* expand) {
  if (ManyMixTakes(context, p, expand != nullptr)) return ManyMix(context, p, expand == nullptr ? nullptr : &expand->expand);
  if (TensorMixTakes(p)) return TensorHcMix(context, p, expand);
  if (expand != nullptr) HcExpand(context, expand->expand);
  const int num_slices = NumSlices(p.streams * p.hidden);
  auto* partial = context.Take<float>(p.rows * num_slices * Products(static_cast<int>(p.streams)));
  if (partial == nullptr) return;
  WithStreams(p.streams, [&]<int kStreams>() {
    // How many rows share a load does not show in their sums.
    if (p.rows <= 16) {
      LaunchProducts<kStreams, 1>(context, p, num_slices, partial);
    } else {
      LaunchProducts<kStreams, 4>(context, p, num_slices, partial);
    }
    LaunchAfter(context, HcFinishKernel<kStreams>, dim3(static_cast<unsigned>(p.rows), 2), kThreads, 0, p, partial, num_slices);
  });
  if (p.inputs != nullptr) LayCollapsed(context, p);
}

void MixAndLay(Context& context, const HcMixParams& p, const ExpandOfSpans* expand) {
  DI_CHECK(p.fn.format == WeightFormat::kF32 && p.fn.rows == (2 + p.streams) * p.streams && p.fn.cols == p.streams * p.hidden);
  if (p.rows == 0) return;
  const bool few_rows = TensorMixTakes(p) && !ManyMixTakes(context, p, expand != nullptr);  // TensorHcMix takes them
  if (p.inputs == nullptr || !LaidForm(p.inputs_as).aligned || (few_rows && MixLaysAligned(p))) return Mix(context, p, expand);
  HcMixParams rows = p;  // a whole row decides what its inputs are relative to
  rows.inputs = nullptr;
  Mix(context, rows, expand);
  LayCollapsed(context, p);
}

}  // namespace

void HcMix(Context& context, const HcMixParams& p) { MixAndLay(context, p, nullptr); }

void HcExpandMix(Context& context, const HcExpandParams& expand, const HcMixParams& mix) {
  DI_CHECK(expand.x == mix.x && expand.rows == mix.rows && expand.streams == mix.streams && expand.hidden == mix.hidden);
  const ExpandOfSpans whole{expand};
  MixAndLay(context, mix, &whole);
}

void LinearExpandMix(Context& context, const LinearParams& linear, const HcExpandParams& expand, const HcMixParams& mix) {
  DI_CHECK(expand.x == mix.x && expand.rows == mix.rows && expand.streams == mix.streams && expand.hidden == mix.hidden);
  DI_CHECK(expand.y == linear.y && linear.w.rows == expand.hidden && linear.rows == expand.rows && linear.y_stride == expand.hidden);
  if (mix.rows == 0) return;
  if (!ManyMixTakes(context, mix, true) && TensorMixTakes(mix)) {
    const SpanSums sums = LinearApart(context, linear);
    if (sums.data == nullptr) return;
    ExpandOfSpans spans{expand, sums.spans, sums.span_stride};
    spans.expand.y = sums.data;
    return MixAndLay(context, mix, &spans);
  }
  Linear(context, linear);
  HcExpandMix(context, expand, mix);
}

void HcCollapse(Context& context, const HcCollapseParams& p) {
  if (p.rows == 0) return;
  WithStreams(p.streams, [&]<int kStreams>() {
    LaunchAfter(context, HcCollapseKernel<kStreams>, static_cast<unsigned>(p.rows), kThreads, 0, p);
  });
}

void HcExpand(Context& context, const HcExpandParams& p) {
  if (p.rows == 0) return;
  const auto blocks = static_cast<unsigned>((p.rows * p.hidden + kThreads - 1) / kThreads);
  WithStreams(p.streams, [&]<int kStreams>() { LaunchAfter(context, HcExpandKernel<kStreams>, blocks, kThreads, 0, p); });
}

}  // namespace deepinfer::backend::cuda
