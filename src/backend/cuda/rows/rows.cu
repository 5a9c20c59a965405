// SPDX-License-Identifier: Apache-2.0
// Rows in, rows out: embedding, gathering, norms, rope. All are bound by memory.
#include <algorithm>

#include "backend/cuda/device/aligned_row.cuh"
#include "backend/cuda/device/matrix.cuh"
#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/linear/inputs.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/grid.cuh"
#include "backend/cuda/rows/rows.h"
#include "core/check.h"
#include "numeric/quantize.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kNormThreadsMax = 512;
constexpr int64_t kNormDimMax = 8192;  // 32 KB of shared memory
constexpr int kRopeItems = 4 * kThreads;  // pairs that a block turns

__global__ void EmbedKernel(EmbedParams p) {
  ptx::GridBegin();
  const int64_t row = blockIdx.x, hidden = p.table.cols;
  const bool override = p.use_override != nullptr && p.use_override[row];
  for (int64_t i = threadIdx.x; i < hidden; i += kThreads) {
    const float value = override ? p.override_rows[row * hidden + i] : WeightAt(p.table, p.ids[row], i);
    for (int64_t s = 0; s < p.streams; ++s) p.x[(row * p.streams + s) * hidden + i] = value;
  }
}

template <typename Word>
__global__ void GatherRowsKernel(GatherRowsParams p) {
  ptx::GridBegin();
  const int64_t words = p.row_bytes / static_cast<int64_t>(sizeof(Word));
  const Word* src = static_cast<const Word*>(p.src) + p.index[blockIdx.x] * words;
  Word* dst = static_cast<Word*>(p.dst) + blockIdx.x * words;
  for (int64_t i = threadIdx.x; i < words; i += kThreads) dst[i] = src[i];
}

// A row of x as the sum of spans, ascending. y may be x: a thread holds its first elements, and reads others a second time only
// before it overwrites them.
__global__ void RmsNormKernel(RmsNormParams p, int spans, int64_t span_stride) {
  ptx::GridBegin();
  constexpr int kHeld = 5;
  __shared__ float shared[kThreads / kWarp];
  const int64_t row = blockIdx.x, first = threadIdx.x;
  const float* x = p.x + row * p.x_stride;
  const auto value = [&](int64_t i) {
    float v = x[i];
#pragma unroll 4
    for (int s = 1; s < spans; ++s) v += x[s * span_stride + i];
    return v;
  };
  float held[kHeld], sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kHeld; ++k) held[k] = first + k * kThreads < p.dim ? value(first + k * kThreads) : 0.0f;
#pragma unroll
  for (int k = 0; k < kHeld; ++k) sum += held[k] * held[k];
  for (int64_t i = first + kHeld * kThreads; i < p.dim; i += kThreads) {
    const float v = value(i);
    sum += v * v;
  }
  const float scale = 1.0f / sqrtf(BlockSum<kThreads>(sum, shared) / static_cast<float>(p.dim) + p.eps);
  const int64_t part_bytes = PartBytes(p.rows);
  const auto store = [&](int64_t i, float v) {
    const float y = v * scale * p.weight[i];
    if (p.inputs == nullptr) {
      p.y[row * p.dim + i] = y;
    } else {
      *reinterpret_cast<uint16_t*>(static_cast<uint8_t*>(p.inputs) + InputPlace(row, i, part_bytes)) =
          static_cast<uint16_t>(ptx::PackBf16x2(y, 0.0f));
    }
  };
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    if (first + k * kThreads < p.dim) store(first + k * kThreads, held[k]);
  }
  for (int64_t i = first + kHeld * kThreads; i < p.dim; i += kThreads) store(i, value(i));
}

// The same, bit for bit, of rows that are units of 16 bytes, in little code: what runs once a launch is bound by reading instructions.
// All spans of a unit are on their way at once. Shared memory: the row. y may be x.
__global__ void __launch_bounds__(kNormThreadsMax) RmsNormUnitsKernel(RmsNormParams p, int spans, int64_t span_stride) {
  constexpr int kAhead = 9;
  extern __shared__ float4 values[];
  __shared__ float sums[kThreads / kWarp];
  ptx::GridTrigger();
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x), dim = static_cast<int>(p.dim), units = dim / 4;
  const auto* weights = reinterpret_cast<const float4*>(p.weight);
  const float4 first_weight = weights[min(t, units - 1)];
  ptx::GridWait();
  const int64_t row = blockIdx.x, stride = span_stride / 4;
#pragma unroll 1
  for (int u = t; u < units; u += threads) {
    const auto* from = reinterpret_cast<const float4*>(p.x + row * p.x_stride) + u;
    float4 v = *from;
#pragma unroll 1
    for (int s = 1; s < spans; s += kAhead) {
      float4 more[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) more[j] = s + j < spans ? from[(s + j) * stride] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (s + j < spans) v = make_float4(v.x + more[j].x, v.y + more[j].y, v.z + more[j].z, v.w + more[j].w);
      }
    }
    values[u] = v;
  }
  const float scale = InverseRmsOfShared<kThreads>(reinterpret_cast<const float*>(values), dim, p.eps, sums);
#pragma unroll 1
  for (int u = t; u < units; u += threads) {
    const float4 v = values[u], w = u == t ? first_weight : weights[u];
    const float4 y = make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
    if (p.inputs == nullptr) {
      reinterpret_cast<float4*>(p.y + row * dim)[u] = y;
    } else {
      *reinterpret_cast<uint2*>(static_cast<uint8_t*>(p.inputs) + InputPlace(row, u * 4, PartBytes(p.rows))) =
          make_uint2(ptx::PackBf16x2(y.x, y.y), ptx::PackBf16x2(y.z, y.w));
    }
  }
}

// The same with the result as inputs of aligned matrices: a row of at most kAlignedNormMax values, a warp's 32 of them an FP8 block.
constexpr int kAlignedNormRounds = 5, kAlignedNormMax = kAlignedNormRounds * kThreads;

__global__ void __launch_bounds__(kThreads) RmsNormAlignedKernel(RmsNormParams p, int spans, int64_t span_stride) {
  ptx::GridBegin();
  __shared__ float shared[kThreads / kWarp];
  __shared__ int largest[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  const int t = static_cast<int>(threadIdx.x), dim = static_cast<int>(p.dim);
  const float* x = p.x + row * p.x_stride;
  float held[kAlignedNormRounds], sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kAlignedNormRounds; ++k) {
    const int i = t + k * kThreads;
    held[k] = i < dim ? x[i] : 0.0f;
#pragma unroll 4
    for (int s = 1; s < spans; ++s) held[k] += i < dim ? x[s * span_stride + i] : 0.0f;
  }
#pragma unroll
  for (int k = 0; k < kAlignedNormRounds; ++k) sum += held[k] * held[k];
  const float scale = 1.0f / sqrtf(BlockSum<kThreads>(sum, shared) / static_cast<float>(p.dim) + p.eps);
  int scales[kAlignedNormRounds], most = 0;
#pragma unroll
  for (int k = 0; k < kAlignedNormRounds; ++k) {
    const int i = t + k * kThreads;
    held[k] = i < dim ? held[k] * scale * p.weight[i] : 0.0f;
    scales[k] = numeric::Fp8Scale(WarpMax(fabsf(held[k])));
    most = max(most, scales[k]);
  }
  if (t % kWarp == 0) largest[t / kWarp] = most;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kThreads / kWarp; ++w) most = max(most, largest[w]);
  if (t == 0) AlignedRowScales(p.inputs, p.dim, p.rows)[row] = numeric::E8m0ToFloat(static_cast<uint8_t>(most));
  const int64_t part_bytes = PartBytes(p.rows);
#pragma unroll
  for (int k = 0; k < kAlignedNormRounds; ++k) {
    const int i = t + k * kThreads;
    if (i >= dim) return;
    const uint32_t code = AlignE4m3(EncodeE4m3(held[k] * ScaleInverse(scales[k]), 0.0f, 0.0f, 0.0f), scales[k], most);
    static_cast<uint8_t*>(p.inputs)[AlignedInputPlace(row, i, part_bytes)] = static_cast<uint8_t>(code);
  }
}

// The product is rounded to fp32 by definition; cosine and sine of it are taken in float64 because positions reach 10^6.
__global__ void RopeTableKernel(RopeTableParams p) {
  ptx::GridBegin();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= p.rows * p.pairs) return;
  const float angle = static_cast<float>(p.positions[at / p.pairs]) * p.inv_freq[at % p.pairs];
  double sine, cosine;
  sincos(static_cast<double>(angle), &sine, &cosine);
  p.table[2 * at] = static_cast<float>(cosine);
  p.table[2 * at + 1] = static_cast<float>(sine);
}

// A thread takes kEach pairs of turned channels, a block's threads next to each other; the other channels stay as they are. Numbers
// of 32 bits: a division of longer ones would take longer than the memory.
__global__ void RopeKernel(RopeParams p, uint32_t items) {
  constexpr uint32_t kEach = kRopeItems / kThreads;
  ptx::GridBegin();
  const auto pairs = static_cast<uint32_t>(p.rope_dim / 2), heads = static_cast<uint32_t>(p.heads);
  float2* at[kEach];
  float2 value[kEach], turn[kEach];
#pragma unroll
  for (uint32_t i = 0; i < kEach; ++i) {
    const uint32_t item = min(blockIdx.x * kRopeItems + i * kThreads + threadIdx.x, items - 1);
    const uint32_t head = item / pairs, pair = item - head * pairs;
    at[i] = reinterpret_cast<float2*>(p.x + int64_t{head} * p.dim + p.dim - p.rope_dim) + pair;
    value[i] = *at[i];
    turn[i] = reinterpret_cast<const float2*>(p.table)[head / heads * pairs + pair];
  }
#pragma unroll
  for (uint32_t i = 0; i < kEach; ++i) {
    if (blockIdx.x * kRopeItems + i * kThreads + threadIdx.x >= items) return;
    *at[i] = make_float2(value[i].x * turn[i].x - value[i].y * turn[i].y, value[i].x * turn[i].y + value[i].y * turn[i].x);
  }
}

// The same, and then the index format: one warp a head, lane = channel of a run of 32, so that a pair and a block of the
// format lie in one warp.
__global__ void RopeIndexKernel(RopeParams p) {
  ptx::GridBegin();
  const int64_t head = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (head >= p.rows * p.heads) return;
  const int lane = threadIdx.x % kWarp;
  const float* table = p.table + head / p.heads * p.rope_dim;
  float* x = p.x + head * p.dim;
  for (int64_t i = lane; i < p.dim; i += kWarp) {
    float value = x[i];
    const float other = __shfl_xor_sync(kAllLanes, value, 1);
    const int64_t turned = i - (p.dim - p.rope_dim);
    if (turned >= 0) {
      const float cosine = table[turned & ~int64_t{1}], sine = table[turned | 1];
      value = turned % 2 == 0 ? value * cosine - other * sine : other * sine + value * cosine;
    }
    const float scale = numeric::E8m0ToFloat(numeric::IndexScale(WarpMax(fabsf(value))));
    x[i] = numeric::E2m1ToFloat(numeric::FloatToE2m1(value / scale)) * scale;
  }
}

unsigned Blocks(int64_t items, int64_t per_block) { return static_cast<unsigned>((items + per_block - 1) / per_block); }

void LaunchNorm(Context& context, const RmsNormParams& p, int spans, int64_t span_stride) {
  const auto addresses = reinterpret_cast<uintptr_t>(p.x) | reinterpret_cast<uintptr_t>(p.y) | reinterpret_cast<uintptr_t>(p.weight);
  if (addresses % 16 == 0 && (p.dim | p.x_stride | span_stride) % 4 == 0 && p.dim > 0 && p.dim <= kNormDimMax) {
    const auto threads = static_cast<unsigned>(std::clamp<int64_t>((p.dim / 4 + kWarp - 1) / kWarp * kWarp, kThreads, kNormThreadsMax));
    LaunchAfter(context, RmsNormUnitsKernel, Blocks(p.rows, 1), threads, static_cast<size_t>(p.dim) * sizeof(float), p, spans, span_stride);
  } else {
    LaunchAfter(context, RmsNormKernel, Blocks(p.rows, 1), kThreads, 0, p, spans, span_stride);
  }
}

}  // namespace

void Embed(Context& context, const EmbedParams& p) {
  if (p.rows > 0) LaunchAfter(context, EmbedKernel, Blocks(p.rows, 1), kThreads, 0, p);
}

void GatherRows(Context& context, const GatherRowsParams& p) {
  if (p.rows == 0) return;
  const auto bits = reinterpret_cast<uintptr_t>(p.src) | reinterpret_cast<uintptr_t>(p.dst) | static_cast<uintptr_t>(p.row_bytes);
  const unsigned blocks = Blocks(p.rows, 1);
  if (bits % 16 == 0) {
    LaunchAfter(context, GatherRowsKernel<uint4>, blocks, kThreads, 0, p);
  } else if (bits % 4 == 0) {
    LaunchAfter(context, GatherRowsKernel<uint32_t>, blocks, kThreads, 0, p);
  } else {
    LaunchAfter(context, GatherRowsKernel<uint8_t>, blocks, kThreads, 0, p);
  }
}

void RmsNorm(Context& context, const RmsNormParams& p) { RmsNormOfSpans(context, p, 1, 0); }

void RmsNormOfSpans(Context& context, const RmsNormParams& p, int spans, int64_t span_stride) {
  if (p.rows == 0) return;
  const bool aligned = p.inputs != nullptr && LaidForm(p.inputs_as).aligned;
  RmsNormParams rows = p;
  if (aligned && p.dim <= kAlignedNormMax) {
    LaunchAfter(context, RmsNormAlignedKernel, Blocks(p.rows, 1), kThreads, 0, p, spans, span_stride);
    return;
  }
  if (aligned) {
    rows.y = context.Take<float>(p.rows * p.dim);
    rows.inputs = nullptr;
    if (rows.y == nullptr) return;
  }
  LaunchNorm(context, rows, spans, span_stride);
  if (!aligned) return;
  PackInputs(context, {.x = rows.y, .x_stride = p.dim, .rows = p.rows, .cols = p.dim, .form = LaidForm(p.inputs_as), .into = p.inputs});
}

void RopeTable(Context& context, const RopeTableParams& p) {
  if (p.rows * p.pairs > 0) LaunchAfter(context, RopeTableKernel, Blocks(p.rows * p.pairs, kThreads), kThreads, 0, p);
}

void Rope(Context& context, const RopeParams& p) {
  DI_CHECK(p.rope_dim % 2 == 0 && p.dim % 2 == 0 && (!p.round_index || p.dim % kWarp == 0));
  if (p.rows * p.heads == 0) return;
  if (p.round_index) {
    LaunchAfter(context, RopeIndexKernel, Blocks(p.rows * p.heads, kThreads / kWarp), kThreads, 0, p);
  } else if (p.rope_dim > 0) {
    const int64_t items = p.rows * p.heads * p.rope_dim / 2;
    DI_CHECK(items <= INT32_MAX);
    LaunchAfter(context, RopeKernel, Blocks(items, kRopeItems), kThreads, 0, p, static_cast<uint32_t>(items));
  }
}

}  // namespace deepinfer::backend::cuda
