// SPDX-License-Identifier: Apache-2.0
// The indexer (spec/model.md 4): scores, candidate blocks, and the best visible latents of each row.
//
// Rows run in batches whose scores fit a fixed amount of scratch memory, whatever the context length. A score is a
// function of the row's query and the key alone; the order of its sum stands with the two kernels that compute it.
#include <algorithm>
#include <cmath>

#include "backend/cuda/index/score.cuh"
#include "backend/cuda/index/select.cuh"
#include "backend/cuda/launch.h"
#include "core/check.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int64_t kScoreBytes = int64_t{256} << 20;
constexpr int64_t kBatchRowsMax = 65535;  // of a grid

// Rows of scores begin at 16-byte boundaries.
int64_t RoundUp(int64_t n) { return (n + 3) / 4 * 4; }

// The candidate blocks of a row: max-pooled scores; the block of the newest visible latent is always among the best.
__global__ void __launch_bounds__(kSelectThreads) PublishBlocksKernel(IndexSelectParams p, IndexBatch batch) {
  __shared__ SelectShared shared;
  const int64_t row = batch.first_row + blockIdx.x;
  const int visible = Visible(p, row), size = static_cast<int>(p.block_size);
  const int blocks = (visible + size - 1) / size;
  const float* scores = batch.scores + blockIdx.x * batch.stride;
  float* pooled = batch.pooled + blockIdx.x * batch.pooled_stride;
  for (int b = threadIdx.x; b < blocks; b += kSelectThreads) {
    float best = -INFINITY;
    for (int j = b * size; j < min((b + 1) * size, visible); ++j) best = fmaxf(best, scores[j]);
    pooled[b] = b == blocks - 1 ? INFINITY : best;
  }
  __syncthreads();
  int32_t* out = p.blocks + row * p.blocks_max;
  const int count = SelectBest(pooled, blocks, static_cast<int>(p.blocks_max), shared,
                               [&](int place, int b) { out[place] = b; });
  if (threadIdx.x == 0) p.block_count[row] = count;
}

// grid (blocks of a cluster, rows)
__global__ void __launch_bounds__(kSelectThreads) SelectLatentsKernel(IndexSelectParams p, IndexBatch batch) {
  __shared__ SelectShared shared;
  const int64_t row = batch.first_row + blockIdx.y;
  const float* scores = batch.scores + blockIdx.y * batch.stride;
  int32_t* out = p.selected + row * p.topk;
  const int count = SelectBest(scores, Items(p, row), static_cast<int>(p.topk), shared,
                               [&](int place, int i) { out[place] = ItemToLatent(p, row, i); });
  if (blockIdx.x != 0) return;
  for (int64_t i = count + threadIdx.x; i < p.topk; i += kSelectThreads) out[i] = -1;
  if (threadIdx.x == 0) p.selected_count[row] = count;
}

// As many blocks a row as its list can use, and the card, given the rows.
void SelectLatents(Context& context, const IndexSelectParams& p, const IndexBatch& batch) {
  const int64_t rounds = (batch.stride + kSelectRound - 1) / kSelectRound;
  unsigned blocks = 1;
  while (blocks < kSelectClusterMax && blocks < rounds && batch.rows * blocks < context.num_sms()) blocks *= 2;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = blocks;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks, static_cast<unsigned>(batch.rows));
  config.blockDim = dim3(kSelectThreads);
  config.stream = context.stream();
  config.attrs = &attribute;
  config.numAttrs = 1;
  context.Record(cudaLaunchKernelEx(&config, SelectLatentsKernel, p, batch), "index: selection");
}

}  // namespace

void IndexSelect(Context& context, const IndexSelectParams& p) {
  if (p.rows == 0) return;
  // The host does not know the positions: the cache's own capacity bounds how many latents a row can see.
  const int64_t capacity = int64_t{p.cache.blocks_stride} * p.cache.rows_per_block();
  IndexBatch batch{};
  batch.stride = p.candidates == Candidates::kRestrict ? std::min(capacity, p.blocks_max * p.block_size) : capacity;
  batch.stride = RoundUp(std::max<int64_t>(batch.stride, 1));
  const bool publish = p.candidates == Candidates::kPublish;
  DI_CHECK(p.candidates == Candidates::kNone || (p.block_size > 0 && p.blocks_max > 0));
  batch.pooled_stride = publish ? RoundUp(batch.stride / p.block_size + 1) : 0;
  const int64_t rows_max = std::clamp<int64_t>(kScoreBytes / (batch.stride * 4), 1, std::min(p.rows, kBatchRowsMax));
  batch.scores = context.Take<float>(rows_max * batch.stride);
  batch.pooled = context.Take<float>(rows_max * batch.pooled_stride);
  if (batch.scores == nullptr || batch.pooled == nullptr) return;
  for (batch.first_row = 0; batch.first_row < p.rows; batch.first_row += rows_max) {
    batch.rows = std::min(rows_max, p.rows - batch.first_row);
    const auto rows = static_cast<unsigned>(batch.rows);
    if (TensorScoreTakes(p)) {
      TensorScore(context.stream(), p, batch);
    } else {
      PlainScore(context.stream(), p, batch);
    }
    if (publish) PublishBlocksKernel<<<rows, kSelectThreads, 0, context.stream()>>>(p, batch);
    SelectLatents(context, p, batch);
  }
}

}  // namespace deepinfer::backend::cuda
