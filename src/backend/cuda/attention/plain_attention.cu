// SPDX-License-Identifier: Apache-2.0
// Attention over window keys, chosen latents and the sink (spec/model.md 3), fp32 throughout.
//
// One block a row and a run of heads, fewer where there are few rows. All scores of the row fit in shared memory (window +
// top-k keys), so the softmax is the plain one: exact maximum, then sums over keys by ascending position, window first, sink
// last. Where each key lies is found once. Keys are decoded to fp32 in shared memory, all at once where there is room, else
// in tiles, once for the scores and once for the output. How the work is cut changes no sum.
#include <algorithm>
#include <cmath>

#include "backend/cuda/attention/attention_launch.h"
#include "backend/cuda/attention/keys.cuh"
#include "backend/cuda/device/reduce.cuh"
#include "core/check.h"
#include "numeric/formats.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kTileKeys = 32;
constexpr int kDimMax = 512;
constexpr size_t kSharedMax = 220 * 1024;

struct KeyPlace {
  const uint8_t* codes;
  const uint8_t* scales;
};

// Dynamic shared memory: places [keys_max], query [heads, dim], scores [heads, keys_max], tile [tile_keys, dim + 1].
struct Plan {
  int heads;      // of a block
  int keys_max;   // window + topk
  int tile_keys;  // keys_max: all of them at once
  size_t bytes;
};

__device__ KeyPlace PlaceOf(const AttentionParams& p, int64_t row, const Keys& keys, int key) {
  if (key < keys.window) {
    const WindowRow in = FindWindowRow(p.window_cache, p.requests[row], keys.first + key);
    return {in.codes, in.scales};
  }
  const GlobalRow in = FindGlobalRow(p.latent_cache, p.requests[row], p.selected[row * p.topk + key - keys.window]);
  return {in.latent_codes, in.latent_scales};
}

__device__ float Decode(const KeyPlace& in, bool is_window, int i) {
  if (is_window) return numeric::E4m3ToFloat(in.codes[i]) * numeric::E8m0ToFloat(in.scales[i / 32]);
  return numeric::E2m1ToFloat(static_cast<uint8_t>(in.codes[i / 2] >> (4 * (i & 1)))) * numeric::E4m3ToFloat(in.scales[i / 16]);
}

// Decodes keys [begin, begin + n) of the row's list into the tile; a warp takes some keys at a time, so that many loads are
// on their way.
__device__ void LoadTile(const KeyPlace* places, int window, int begin, int n, int dim, float* tile) {
  constexpr int kKeys = 4, kChannels = 4;
  const int lane = threadIdx.x % kWarp;
  for (int first = threadIdx.x / kWarp; first < n; first += kWarps * kKeys) {
    for (int i0 = lane; i0 < dim; i0 += kWarp * kChannels) {
      float values[kKeys][kChannels];
#pragma unroll
      for (int u = 0; u < kKeys; ++u) {
        const int key = first + u * kWarps;
        if (key >= n) continue;
        const KeyPlace place = places[begin + key];
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {
          if (i0 + c * kWarp < dim) values[u][c] = Decode(place, begin + key < window, i0 + c * kWarp);
        }
      }
#pragma unroll
      for (int u = 0; u < kKeys; ++u) {
        if (first + u * kWarps >= n) continue;
        float* out = tile + (first + u * kWarps) * (dim + 1);
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {
          if (i0 + c * kWarp < dim) out[i0 + c * kWarp] = values[u][c];
        }
      }
    }
  }
}

// Turns scores into weights in place; returns 1 / sum, the sink included. One warp a head.
__device__ float Softmax(float* score, int count, float sink) {
  const int lane = threadIdx.x % kWarp;
  float top = sink;
  for (int k = lane; k < count; k += kWarp) top = fmaxf(top, score[k]);
  top = WarpMax(top);
  for (int k = lane; k < count; k += kWarp) score[k] = expf(score[k] - top);
  __syncwarp();
  float sum = 0.0f;
  for (int k = 0; k < count; ++k) sum += score[k];
  return 1.0f / (sum + expf(sink - top));
}

// Sums the weighted keys, divides, and turns the last channels back by the row's position.
__device__ void WriteOutput(const AttentionParams& p, int64_t row, int head, float inverse, float value, int i, float* out) {
  value *= inverse;
  const float other = __shfl_xor_sync(kAllLanes, value, 1);
  const int turned = i - static_cast<int>(p.dim - p.rope_dim);
  if (turned >= 0) {
    const float* table = p.table + row * p.rope_dim;
    const float cosine = table[turned & ~1], sine = table[turned | 1];
    value = turned % 2 == 0 ? value * cosine + other * sine : value * cosine - other * sine;
  }
  out[(row * p.heads + head) * p.dim + i] = value;
}

template <int kHeads>
__global__ void __launch_bounds__(kThreads) AttentionKernel(AttentionParams p, Plan plan) {
  extern __shared__ KeyPlace places[];
  __shared__ float inverse[kHeads];
  const int64_t row = blockIdx.x;
  const int first_head = static_cast<int>(blockIdx.y) * kHeads;
  const int heads = min(kHeads, static_cast<int>(p.heads) - first_head), dim = static_cast<int>(p.dim);
  auto* query = reinterpret_cast<float*>(places + plan.keys_max);
  float* scores = query + kHeads * dim;
  float* tile = scores + kHeads * plan.keys_max;
  const Keys keys = FindKeys(p, row);
  for (int k = threadIdx.x; k < keys.count; k += kThreads) places[k] = PlaceOf(p, row, keys, k);
  for (int i = threadIdx.x; i < heads * dim; i += kThreads) query[i] = p.q[(row * p.heads + first_head) * dim + i];
  for (int begin = 0; begin < keys.count; begin += plan.tile_keys) {
    const int n = min(plan.tile_keys, keys.count - begin);
    __syncthreads();
    LoadTile(places, keys.window, begin, n, dim, tile);
    __syncthreads();
    for (int at = threadIdx.x; at < heads * n; at += kThreads) {
      const int head = at / n, k = at % n;
      float dot = 0.0f;
      for (int i = 0; i < dim; ++i) dot = __fmaf_rn(query[head * dim + i], tile[k * (dim + 1) + i], dot);
      scores[head * plan.keys_max + begin + k] = dot * p.scale;
    }
  }
  __syncthreads();
  for (int head = threadIdx.x / kWarp; head < heads; head += kWarps) {
    const float scale = Softmax(scores + head * plan.keys_max, keys.count, p.sink[first_head + head]);
    if (threadIdx.x % kWarp == 0) inverse[head] = scale;
  }
  constexpr int kChannels = kDimMax / kThreads;
  float sums[kHeads][kChannels] = {};
  for (int begin = 0; begin < keys.count; begin += plan.tile_keys) {
    const int n = min(plan.tile_keys, keys.count - begin);
    __syncthreads();
    if (n < keys.count) {
      LoadTile(places, keys.window, begin, n, dim, tile);
      __syncthreads();
    }
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const int i = static_cast<int>(threadIdx.x) + c * kThreads;
      if (i >= dim) break;
#pragma unroll 4
      for (int k = 0; k < n; ++k) {
        const float value = tile[k * (dim + 1) + i];
#pragma unroll
        for (int head = 0; head < kHeads; ++head) {
          const float weight = head < heads ? scores[head * plan.keys_max + begin + k] : 0.0f;
          sums[head][c] = __fmaf_rn(weight, value, sums[head][c]);
        }
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    const int i = static_cast<int>(threadIdx.x) + c * kThreads;
    if (i >= dim) continue;  // whole warps: dim is a multiple of 32
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      if (head < heads) WriteOutput(p, row, first_head + head, inverse[head], sums[head][c], i, p.out);
    }
  }
}

Plan MakePlan(const AttentionParams& p, int heads) {
  Plan plan{};
  plan.heads = heads;
  plan.keys_max = p.window + (p.has_latents ? static_cast<int>(p.topk) : 0);
  const auto bytes = [&](int tile_keys) {
    return static_cast<size_t>(plan.keys_max) * sizeof(KeyPlace) +
           (static_cast<size_t>(heads) * static_cast<size_t>(p.dim + plan.keys_max) +
            static_cast<size_t>(tile_keys) * static_cast<size_t>(p.dim + 1)) * sizeof(float);
  };
  plan.tile_keys = bytes(plan.keys_max) <= kSharedMax ? plan.keys_max : kTileKeys;
  plan.bytes = bytes(plan.tile_keys);
  return plan;
}

template <int kHeads>
void Launch(Context& context, const AttentionParams& p) {
  const Plan plan = MakePlan(p, kHeads);
  DI_CHECK(plan.bytes <= kSharedMax);
  context.Record(cudaFuncSetAttribute(AttentionKernel<kHeads>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.bytes)),
                 "attention: shared memory");
  const dim3 grid(static_cast<unsigned>(p.rows), static_cast<unsigned>((p.heads + kHeads - 1) / kHeads));
  AttentionKernel<kHeads><<<grid, kThreads, plan.bytes, context.stream()>>>(p, plan);
}

}  // namespace

void PlainAttention(Context& context, const AttentionParams& p) {
  DI_CHECK(p.dim % kWarp == 0 && p.dim <= kDimMax && p.rope_dim % 2 == 0);
  // As many heads to a block as leave every multiprocessor two: they share the decoded keys.
  const int64_t blocks = 2 * context.num_sms();
  if (p.rows * p.heads <= blocks) return Launch<1>(context, p);
  if (p.heads <= 4 || p.rows * ((p.heads + 3) / 4) <= blocks) return Launch<4>(context, p);
  Launch<16>(context, p);
}

}  // namespace deepinfer::backend::cuda
