// SPDX-License-Identifier: Apache-2.0
// What log-probabilities are made of, one block a row: the best tokens by one pass each, and the sum of e^(logit - top) in the
// order of sampling/vocabulary.h: sixteen sums in fp64, of every sixteenth token each, joined in order. The terms are made by
// all threads, a tile at a time; the first lanes add the tile before meanwhile.
#include "backend/cuda/launch.h"
#include "backend/cuda/sample/keys.cuh"
#include "numeric/fixed_math.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kSums = 16;
constexpr int kTile = 4 * kThreads;

// The best key below `limit`.
__device__ uint64_t BestBelow(const float* logits, uint32_t vocab, uint64_t limit, uint64_t* shared) {
  uint64_t best = 0;
  for (uint32_t t = threadIdx.x; t < vocab; t += kThreads) {
    const float logit = logits[t];
    if (!(logit > -INFINITY)) continue;
    const uint64_t key = Key(logit, t);
    if (key < limit && key > best) best = key;
  }
  return BlockMaximum<kThreads>(best, shared);
}

__device__ double SumOfExp(const float* logits, uint32_t vocab, float top) {
  __shared__ float terms[2][kTile];
  const auto fill = [&](uint32_t begin, float* out) {
    for (uint32_t i = threadIdx.x; i < kTile; i += kThreads) {
      if (begin + i < vocab) out[i] = numeric::FixedExp(logits[begin + i] - top);
    }
  };
  double sum = 0;
  fill(0, terms[0]);
  for (uint32_t begin = 0, tile = 0; begin < vocab; begin += kTile, tile ^= 1) {
    __syncthreads();
    if (threadIdx.x < kSums) {
      const float* mine = terms[tile];
      const uint32_t count = min(static_cast<uint32_t>(kTile), vocab - begin);
      uint32_t i = threadIdx.x;
#pragma unroll 8
      for (; i < count; i += kSums) sum += static_cast<double>(mine[i]);
    }
    fill(begin + kTile, terms[tile ^ 1]);
  }
  // In order, by the first warp.
  double total = 0;
  if (threadIdx.x < kWarp) {
    for (int lane = 0; lane < kSums; ++lane) total += __shfl_sync(kAllLanes, sum, lane);
  }
  return total;
}

__global__ void __launch_bounds__(kThreads) ReadLogitsKernel(RowLogitsParams p) {
  __shared__ uint64_t shared[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  const int32_t token = p.tokens[p.token_at[row]];
  if (token < 0) return;
  const float* logits = p.logits + p.logits_rows[row] * p.vocab;
  const auto vocab = static_cast<uint32_t>(p.vocab);
  RowLogits& out = p.out[row];
  uint64_t key = BestBelow(logits, vocab, ~uint64_t{0}, shared);
  const float top = key == 0 ? logits[0] : logits[TokenOf(key)];  // the sign of a zero too
  const double sum = SumOfExp(logits, vocab, top);
  if (threadIdx.x == 0) {
    out.chosen = logits[token];
    out.top = top;
    out.sum = sum;
  }
  for (int32_t i = 0; i < p.best[row] && key != 0; ++i) {
    if (threadIdx.x == 0) {
      out.tokens[i] = static_cast<int32_t>(TokenOf(key));
      out.logits[i] = logits[TokenOf(key)];
    }
    if (i + 1 < p.best[row]) key = BestBelow(logits, vocab, key, shared);
  }
}

}  // namespace

void ReadLogits(Context& context, const RowLogitsParams& p) {
  if (p.rows == 0) return;
  ReadLogitsKernel<<<static_cast<unsigned>(p.rows), kThreads, 0, context.stream()>>>(p);
}

}  // namespace deepinfer::backend::cuda
