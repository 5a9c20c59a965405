// SPDX-License-Identifier: Apache-2.0
// Drawing tokens from logits. A maximum has no order, so blocks join theirs by an atomic one: the result is fixed.
#include "backend/cuda/launch.h"
#include "backend/cuda/sample/keys.cuh"
#include "numeric/gumbel.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSlices = 32;     // of the vocabulary; a row alone keeps many multiprocessors busy
constexpr int kWordTokens = 4;  // tokens that share one call of Philox

__global__ void __launch_bounds__(kThreads) SampleKernel(SampleParams p, unsigned long long* best) {
  __shared__ unsigned long long shared[kThreads / kWarp];
  const SampleDraw draw = p.draws[blockIdx.y];
  const float* logits = p.logits + draw.logits_row * p.vocab;
  unsigned long long key = 0;
  const int64_t words = (p.vocab + kWordTokens - 1) / kWordTokens;
  for (int64_t w = int64_t{blockIdx.x} * kThreads + threadIdx.x; w < words; w += int64_t{kThreads} * kSlices) {
    uint32_t c[kWordTokens] = {draw.position, static_cast<uint32_t>(w), draw.choice, draw.stream};
    if (draw.temperature != 0.0f) {
      numeric::Philox(c[0], c[1], c[2], c[3], static_cast<uint32_t>(draw.seed), static_cast<uint32_t>(draw.seed >> 32));
    }
#pragma unroll
    for (int i = 0; i < kWordTokens; ++i) {
      const int64_t token = w * kWordTokens + i;
      if (token >= p.vocab) break;
      float score = logits[token];
      if (!(score > -INFINITY)) continue;
      if (draw.temperature != 0.0f) score = score / draw.temperature + numeric::GumbelOf(c[i]);
      if (score == score) key = max(key, static_cast<unsigned long long>(Key(score, static_cast<uint32_t>(token))));
    }
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) key = max(key, __shfl_xor_sync(kAllLanes, key, offset));
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = key;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kThreads / kWarp; ++warp) key = max(key, shared[warp]);
  atomicMax(best + blockIdx.y, key);
}

__global__ void TokensKernel(SampleParams p, const unsigned long long* best) {
  const int64_t r = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (r < p.rows) p.tokens[r] = best[r] == 0 ? p.no_token : static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(best[r]));
}

}  // namespace

void Sample(Context& context, const SampleParams& p) {
  if (p.rows == 0) return;
  auto* best = context.Take<unsigned long long>(p.rows);
  if (best == nullptr) return;
  context.Record(cudaMemsetAsync(best, 0, static_cast<size_t>(p.rows) * sizeof(*best), context.stream()), "sample");
  SampleKernel<<<dim3(kSlices, static_cast<unsigned>(p.rows)), kThreads, 0, context.stream()>>>(p, best);
  TokensKernel<<<static_cast<unsigned>((p.rows + kThreads - 1) / kThreads), kThreads, 0, context.stream()>>>(p, best);
}

}  // namespace deepinfer::backend::cuda
