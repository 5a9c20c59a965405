// SPDX-License-Identifier: Apache-2.0
// Index scores in plain fp32: per head a dot product over ascending channels, heads summed in order.
#include "backend/cuda/index/score.cuh"
#include "core/check.h"
#include "numeric/formats.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kKeysPerBlock = 128;

// grid (batch rows, runs of keys), one thread a key; the query lies in shared memory.
__global__ void __launch_bounds__(kKeysPerBlock) PlainScoreKernel(IndexSelectParams p, IndexBatch batch) {
  extern __shared__ float query[];  // [heads, index_dim]
  const int64_t row = batch.first_row + blockIdx.x;
  const int items = Items(p, row);
  if (static_cast<int>(blockIdx.y) * kKeysPerBlock >= items) return;
  const int dim = p.cache.index_dim, heads = static_cast<int>(p.heads);
  for (int i = threadIdx.x; i < heads * dim; i += kKeysPerBlock) query[i] = p.q[row * heads * dim + i];
  __syncthreads();
  const int item = static_cast<int>(blockIdx.y) * kKeysPerBlock + static_cast<int>(threadIdx.x);
  if (item >= items) return;
  const GlobalRow key = FindGlobalRow(p.cache, p.requests[row], ItemToLatent(p, row, item));
  float score = 0.0f;
  for (int h = 0; h < heads; ++h) {
    float dot = 0.0f;
    for (int i = 0; i < dim; ++i) {
      const float value = numeric::E2m1ToFloat(static_cast<uint8_t>(key.index_codes[i / 2] >> (4 * (i & 1)))) *
                          numeric::E8m0ToFloat(key.index_scales[i / 32]);
      dot = __fmaf_rn(query[h * dim + i], value, dot);
    }
    score += p.weights[row * heads + h] * p.weight_scale * fmaxf(dot, 0.0f);
  }
  batch.scores[blockIdx.x * batch.stride + item] = score * p.score_scale;
}

}  // namespace

void PlainScore(cudaStream_t stream, const IndexSelectParams& p, const IndexBatch& batch) {
  const auto query_bytes = static_cast<size_t>(p.heads * p.cache.index_dim) * sizeof(float);
  DI_CHECK(query_bytes <= 48 * 1024);
  const dim3 grid(static_cast<unsigned>(batch.rows), static_cast<unsigned>((batch.stride + kKeysPerBlock - 1) / kKeysPerBlock));
  PlainScoreKernel<<<grid, kKeysPerBlock, query_bytes, stream>>>(p, batch);
}

}  // namespace deepinfer::backend::cuda
