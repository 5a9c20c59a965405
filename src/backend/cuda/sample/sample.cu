// SPDX-License-Identifier: Apache-2.0
// Drawing tokens from logits: one cluster of blocks a row, each block a slice of the vocabulary. A maximum has no order, so the
// result is fixed.
#include <cooperative_groups.h>

#include "backend/cuda/launch.h"
#include "backend/cuda/sample/keys.cuh"
#include "numeric/gumbel.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWordTokens = 4;          // tokens that share one call of Philox
constexpr int64_t kBlockTokens = 16384;  // a smaller vocabulary is one block's
constexpr int kClusterBlocks = 8;

// The best key of this block's slice.
__device__ uint64_t BestOfSlice(const SampleParams& p, const SampleDraw& draw, int slice, int slices) {
  const float* logits = p.logits + draw.logits_row * p.vocab;
  const int64_t words = (p.vocab + kWordTokens - 1) / kWordTokens;
  uint64_t key = 0;
  float best = -INFINITY;
  for (int64_t w = int64_t{slice} * kThreads + threadIdx.x; w < words; w += int64_t{kThreads} * slices) {
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
      if (draw.temperature != 0.0f) {
        score = score / draw.temperature;
        // Most cannot reach the best so far, by a bound that needs no logarithm.
        if (!(score + numeric::GumbelBound(c[i]) >= best)) continue;
        score += numeric::GumbelOf(c[i]);
      }
      if (!(score >= best)) continue;
      best = score;
      const uint64_t mine = Key(score, static_cast<uint32_t>(token));
      key = mine > key ? mine : key;
    }
  }
  return key;
}

__global__ void __launch_bounds__(kThreads) SampleKernel(SampleParams p) {
  namespace cg = cooperative_groups;
  __shared__ uint64_t shared[kThreads / kWarp];
  __shared__ uint64_t best;
  const cg::cluster_group cluster = cg::this_cluster();
  const int slices = static_cast<int>(cluster.num_blocks()), slice = static_cast<int>(cluster.block_rank());
  const uint64_t key = BlockMaximum<kThreads>(BestOfSlice(p, p.draws[blockIdx.y], slice, slices), shared);
  if (threadIdx.x == 0) best = key;
  cluster.sync();
  if (slice == 0 && threadIdx.x == 0) {
    uint64_t top = key;
    for (int other = 1; other < slices; ++other) {
      const uint64_t theirs = *cluster.map_shared_rank(&best, other);
      top = theirs > top ? theirs : top;
    }
    p.tokens[blockIdx.y] = top == 0 ? p.no_token : static_cast<int32_t>(TokenOf(top));
  }
  cluster.sync();  // the others' shared memory was read
}

}  // namespace

void Sample(Context& context, const SampleParams& p) {
  if (p.rows == 0) return;
  const unsigned blocks = p.vocab <= kBlockTokens ? 1 : kClusterBlocks;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {blocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks, static_cast<unsigned>(p.rows));
  config.blockDim = kThreads;
  config.stream = context.stream();
  config.attrs = &cluster;
  config.numAttrs = 1;
  context.Record(cudaLaunchKernelEx(&config, SampleKernel, p), "sample");
}

}  // namespace deepinfer::backend::cuda
