// SPDX-License-Identifier: Apache-2.0
// Writing the caches: window rows, the compressor, latents and index keys (spec/model.md 3, 4, 7).
#include <algorithm>
#include <cmath>

#include "backend/cuda/device/cache.cuh"
#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/ptx/grid.cuh"
#include "core/check.h"
#include "numeric/quantize.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRowThreadsMax = 512;  // of a window row

// A channel after rope: the `turned`-th of those that are turned, where it is not negative. All lanes of a warp call with consecutive
// channels.
__device__ float Turned(float value, int turned, const float* table) {
  const float other = __shfl_xor_sync(kAllLanes, value, 1);
  if (turned < 0) return value;
  const float cosine = table[turned & ~1], sine = table[turned | 1];
  return turned % 2 == 0 ? value * cosine - other * sine : other * sine + value * cosine;
}

// Channel i of a row after rms (weight != nullptr) and rope, as above.
__device__ float Prepared(const float* x, int i, int dim, const float* weight, float scale, int rope_dim,
                          const float* table) {
  return Turned(weight == nullptr ? x[i] : x[i] * scale * weight[i], i - (dim - rope_dim), table);
}

__device__ float InverseRms(const float* x, int dim, float eps, float* shared) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < dim; i += kThreads) sum += x[i] * x[i];
  return 1.0f / sqrtf(BlockSum<kThreads>(sum, shared) / static_cast<float>(dim) + eps);
}

// Two neighbouring lanes make one byte, the even channel in the low nibble.
__device__ void StoreE2m1(float value, int i, uint8_t* codes) {
  const unsigned code = numeric::FloatToE2m1(value);
  const unsigned odd = __shfl_down_sync(kAllLanes, code, 1);
  if (i % 2 == 0) codes[i / 2] = static_cast<uint8_t>(code | odd << 4);
}

// A row of kv as the sum of spans, ascending. Little code, and all spans on their way at once: what runs once a launch is bound by reading
// instructions. Shared memory: the row.
__global__ void __launch_bounds__(kRowThreadsMax) StoreWindowKernel(StoreWindowParams p, int spans, int64_t span_stride) {
  constexpr int kAhead = 9;
  extern __shared__ float values[];
  __shared__ float sums[kThreads / kWarp];
  ptx::GridTrigger();
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x), dim = p.cache.dim;
  const float first_weight = p.norm_weight[min(t, dim - 1)];
  ptx::GridWait();
  const int64_t r = blockIdx.x;
  const WindowRow row = FindWindowRow(p.cache, p.requests[r], p.positions[r]);
#pragma unroll 1
  for (int i = t; i < dim; i += threads) {
    const float* from = p.kv + r * p.kv_stride + i;
    float v = *from;
#pragma unroll 1
    for (int s = 1; s < spans; s += kAhead) {
      float more[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) more[j] = s + j < spans ? from[(s + j) * span_stride] : 0.0f;
#pragma unroll
      for (int j = 0; j < kAhead; ++j) v = s + j < spans ? v + more[j] : v;
    }
    values[i] = v;
  }
  const float scale = InverseRmsOfShared<kThreads>(values, dim, p.norm_eps, sums);
#pragma unroll 1
  for (int i = t; i < dim; i += threads) {
    const float normed = values[i] * scale * (i == t ? first_weight : p.norm_weight[i]);
    const float value = Turned(normed, i - (dim - static_cast<int>(p.rope_dim)), p.table + r * p.rope_dim);
    const uint8_t code = numeric::Fp8Scale(WarpMax(fabsf(value)));
    row.codes[i] = numeric::FloatToE4m3(value / numeric::E8m0ToFloat(code));
    if (i % numeric::kFp8Block == 0) row.scales[i / numeric::kFp8Block] = code;
  }
}

__global__ void StoreLatentKernel(StoreLatentParams p) {
  ptx::GridBegin();
  const int64_t l = blockIdx.x;
  if (p.index[l] < 0) return;
  const int dim = p.cache.dim;
  const GlobalRow row = FindGlobalRow(p.cache, p.requests[l], p.index[l]);
  for (int i = threadIdx.x; i < dim; i += kThreads) {
    const float value =
        Prepared(p.latent + l * dim, i, dim, nullptr, 1.0f, static_cast<int>(p.rope_dim), p.table + l * p.rope_dim);
    float amax = fabsf(value);
    for (int offset = numeric::kLatentBlock / 2; offset > 0; offset /= 2) {
      amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, offset));
    }
    const uint8_t code = numeric::LatentScale(amax);
    StoreE2m1(value / numeric::E4m3ToFloat(code), i, row.latent_codes);
    if (i % numeric::kLatentBlock == 0) row.latent_scales[i / numeric::kLatentBlock] = code;
  }
}

__global__ void StoreIndexKeyKernel(StoreIndexKeyParams p) {
  ptx::GridBegin();
  __shared__ float shared[kThreads / kWarp];
  const int64_t l = blockIdx.x;
  if (p.index[l] < 0) return;
  const int dim = p.cache.index_dim;
  const float* x = p.key + l * dim;
  const float scale = InverseRms(x, dim, p.norm_eps, shared);
  const GlobalRow row = FindGlobalRow(p.cache, p.requests[l], p.index[l]);
  for (int i = threadIdx.x; i < dim; i += kThreads) {
    const float value = Prepared(x, i, dim, p.norm_weight, scale, static_cast<int>(p.rope_dim), p.table + l * p.rope_dim);
    const uint8_t code = numeric::IndexScale(WarpMax(fabsf(value)));
    StoreE2m1(value / numeric::E8m0ToFloat(code), i, row.index_codes);
    if (i % numeric::kIndexBlock == 0) row.index_scales[i / numeric::kIndexBlock] = code;
  }
}

struct Token {
  const float* kv;
  const float* gate;
};

// The token `back` positions before row `last`: from the batch where it is there, else from the ring.
__device__ Token FindToken(const CompressParams& p, int64_t last, int back) {
  const int64_t row = last - back;
  if (row >= 0 && p.requests[row] == p.requests[last] && p.positions[row] == p.positions[last] - back) {
    return {p.kv + row * p.dim, p.gate == nullptr ? nullptr : p.gate + row * p.dim};
  }
  const int slot = (p.positions[last] - back) % p.ring;
  const float* entry = p.state + (int64_t{p.ring_slots[p.requests[last]]} * p.ring + slot) * 2 * p.dim;
  return {entry, entry + p.dim};
}

// Softmax over the gates of a channel, oldest token first.
__device__ float Pooled(const CompressParams& p, int64_t last, int64_t i) {
  if (p.ratio == 1) return p.kv[last * p.dim + i];
  float top = -INFINITY;
  for (int back = 0; back < p.ratio; ++back) top = fmaxf(top, FindToken(p, last, back).gate[i]);
  float sum = 0.0f, value = 0.0f;
  for (int back = p.ratio - 1; back >= 0; --back) {
    const Token token = FindToken(p, last, back);
    const float weight = expf(token.gate[i] - top);
    sum += weight;
    value += weight * token.kv[i];
  }
  return value / sum;
}

__global__ void CompressKernel(CompressParams p) {
  ptx::GridBegin();
  __shared__ float shared[kThreads / kWarp];
  const int64_t last = p.last_row[blockIdx.x];
  if (last < 0) return;
  float* out = p.out + blockIdx.x * p.dim;
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < p.dim; i += kThreads) {
    const float value = Pooled(p, last, i);
    out[i] = value;
    sum += value * value;
  }
  const float scale = 1.0f / sqrtf(BlockSum<kThreads>(sum, shared) / static_cast<float>(p.dim) + p.norm_eps);
  for (int64_t i = threadIdx.x; i < p.dim; i += kThreads) out[i] = out[i] * scale * p.norm_weight[i];
}

// Runs after CompressKernel, which may read what this overwrites.
__global__ void UpdateRingKernel(CompressParams p) {
  ptx::GridBegin();
  const int64_t r = blockIdx.x;
  const bool among_last = r + p.ring >= p.rows || p.requests[r + p.ring] != p.requests[r];
  if (!among_last) return;
  float* entry = p.state + (int64_t{p.ring_slots[p.requests[r]]} * p.ring + p.positions[r] % p.ring) * 2 * p.dim;
  for (int64_t i = threadIdx.x; i < p.dim; i += kThreads) {
    entry[i] = p.kv[r * p.dim + i];
    entry[p.dim + i] = p.gate[r * p.dim + i];
  }
}

}  // namespace

namespace {

void StoreWindowOfSpans(Context& context, const StoreWindowParams& p, int spans, int64_t span_stride) {
  DI_CHECK(p.cache.dim % numeric::kFp8Block == 0 && p.rope_dim % 2 == 0);
  if (p.rows == 0) return;
  const auto threads = static_cast<unsigned>(std::clamp(p.cache.dim, kThreads, kRowThreadsMax));
  const auto row_bytes = static_cast<size_t>(p.cache.dim) * sizeof(float);
  LaunchAfter(context, StoreWindowKernel, static_cast<unsigned>(p.rows), threads, row_bytes, p, spans, span_stride);
}

}  // namespace

void StoreWindow(Context& context, const StoreWindowParams& p) { StoreWindowOfSpans(context, p, 1, 0); }

void LinearStoreWindow(Context& context, const LinearParams& linear, const StoreWindowParams& store) {
  DI_CHECK(store.kv == linear.y && store.kv_stride == linear.y_stride && store.rows == linear.rows && store.cache.dim == linear.w.rows);
  if (linear.rows == 0) return;
  const SpanSums sums = LinearApart(context, linear);
  if (sums.data == nullptr) return;
  StoreWindowParams joined = store;
  joined.kv = sums.data;
  joined.kv_stride = sums.row_stride;
  StoreWindowOfSpans(context, joined, sums.spans, sums.span_stride);
}

void Compress(Context& context, const CompressParams& p) {
  DI_CHECK(p.ratio == 1 || (p.ring >= p.ratio - 1 && p.ring >= 1 && p.gate != nullptr));
  if (p.latents > 0) LaunchAfter(context, CompressKernel, static_cast<unsigned>(p.latents), kThreads, 0, p);
  if (p.rows > 0 && p.ratio > 1) LaunchAfter(context, UpdateRingKernel, static_cast<unsigned>(p.rows), kThreads, 0, p);
}

void StoreLatent(Context& context, const StoreLatentParams& p) {
  DI_CHECK(p.cache.dim % kWarp == 0 && p.rope_dim % 2 == 0);
  if (p.latents > 0) LaunchAfter(context, StoreLatentKernel, static_cast<unsigned>(p.latents), kThreads, 0, p);
}

void StoreIndexKey(Context& context, const StoreIndexKeyParams& p) {
  DI_CHECK(p.cache.index_dim % kWarp == 0 && p.rope_dim % 2 == 0);
  if (p.latents > 0) LaunchAfter(context, StoreIndexKeyKernel, static_cast<unsigned>(p.latents), kThreads, 0, p);
}

}  // namespace deepinfer::backend::cuda
