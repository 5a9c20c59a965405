// SPDX-License-Identifier: Apache-2.0
// Attention over window keys, chosen latents and the sink (spec/model.md 3), fp32 throughout.
//
// One block a row and a run of heads. All scores of the row fit in shared memory (window + top-k keys), so the softmax
// is the plain one: exact maximum, then sums over keys by ascending position, window first, sink last. Keys pass through
// shared memory in tiles, decoded to fp32, once for the scores and once for the output.
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
constexpr int kHeadsPerBlock = 16;
constexpr int kDimMax = 512;
constexpr size_t kSharedMax = 220 * 1024;

// Dynamic shared memory: query [heads, dim], tile [kTileKeys, dim + 1], scores [heads, keys_max].
struct Plan {
  int heads;     // of a block, at most kHeadsPerBlock
  int keys_max;  // window + topk
  size_t bytes;
};

// Decodes keys [begin, begin + kTileKeys) of the row's list into the tile; a warp takes a key at a time.
__device__ void LoadTile(const AttentionParams& p, int64_t row, const Keys& keys, int begin, float* tile) {
  const int lane = threadIdx.x % kWarp, dim = static_cast<int>(p.dim);
  for (int k = threadIdx.x / kWarp; k < kTileKeys && begin + k < keys.count; k += kWarps) {
    const int key = begin + k;
    float* out = tile + k * (dim + 1);
    if (key < keys.window) {
      const WindowRow in = FindWindowRow(p.window_cache, p.requests[row], keys.first + key);
      for (int i = lane; i < dim; i += kWarp) {
        out[i] = numeric::E4m3ToFloat(in.codes[i]) * numeric::E8m0ToFloat(in.scales[i / 32]);
      }
    } else {
      const GlobalRow in = FindGlobalRow(p.latent_cache, p.requests[row], p.selected[row * p.topk + key - keys.window]);
      for (int i = lane; i < dim; i += kWarp) {
        out[i] = numeric::E2m1ToFloat(static_cast<uint8_t>(in.latent_codes[i / 2] >> (4 * (i & 1)))) *
                 numeric::E4m3ToFloat(in.latent_scales[i / 16]);
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

__global__ void __launch_bounds__(kThreads) AttentionKernel(AttentionParams p, Plan plan) {
  extern __shared__ float shared[];
  __shared__ float inverse[kHeadsPerBlock];
  const int64_t row = blockIdx.x;
  const int first_head = static_cast<int>(blockIdx.y) * plan.heads;
  const int heads = min(plan.heads, static_cast<int>(p.heads) - first_head), dim = static_cast<int>(p.dim);
  float* query = shared;
  float* tile = query + plan.heads * dim;
  float* scores = tile + kTileKeys * (dim + 1);
  const Keys keys = FindKeys(p, row);
  for (int i = threadIdx.x; i < heads * dim; i += kThreads) query[i] = p.q[(row * p.heads + first_head) * dim + i];
  for (int begin = 0; begin < keys.count; begin += kTileKeys) {
    __syncthreads();
    LoadTile(p, row, keys, begin, tile);
    __syncthreads();
    for (int at = threadIdx.x; at < heads * kTileKeys; at += kThreads) {
      const int head = at / kTileKeys, k = at % kTileKeys;
      if (begin + k >= keys.count) continue;
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
  float sums[kHeadsPerBlock][kChannels] = {};
  for (int begin = 0; begin < keys.count; begin += kTileKeys) {
    __syncthreads();
    LoadTile(p, row, keys, begin, tile);
    __syncthreads();
    for (int k = 0; k < min(kTileKeys, keys.count - begin); ++k) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        const int i = static_cast<int>(threadIdx.x) + c * kThreads;
        const float value = i < dim ? tile[k * (dim + 1) + i] : 0.0f;
#pragma unroll
        for (int head = 0; head < kHeadsPerBlock; ++head) {
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
    for (int head = 0; head < kHeadsPerBlock; ++head) {
      if (head < heads) WriteOutput(p, row, first_head + head, inverse[head], sums[head][c], i, p.out);
    }
  }
}

Plan MakePlan(const AttentionParams& p) {
  Plan plan{};
  plan.heads = static_cast<int>(std::min<int64_t>(p.heads, kHeadsPerBlock));
  plan.keys_max = p.window + (p.has_latents ? static_cast<int>(p.topk) : 0);
  plan.bytes = (static_cast<size_t>(plan.heads) * static_cast<size_t>(p.dim + plan.keys_max) +
                static_cast<size_t>(kTileKeys) * static_cast<size_t>(p.dim + 1)) * sizeof(float);
  return plan;
}

}  // namespace

void PlainAttention(Context& context, const AttentionParams& p) {
  DI_CHECK(p.dim % kWarp == 0 && p.dim <= kDimMax && p.rope_dim % 2 == 0);
  const Plan plan = MakePlan(p);
  DI_CHECK(plan.bytes <= kSharedMax);
  context.Record(cudaFuncSetAttribute(AttentionKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.bytes)),
                 "attention: shared memory");
  const dim3 grid(static_cast<unsigned>(p.rows), static_cast<unsigned>((p.heads + plan.heads - 1) / plan.heads));
  AttentionKernel<<<grid, kThreads, plan.bytes, context.stream()>>>(p, plan);
}

}  // namespace deepinfer::backend::cuda
