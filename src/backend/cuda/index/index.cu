// SPDX-License-Identifier: Apache-2.0
// The indexer (spec/model.md 4): scores, candidate blocks, and the best visible latents of each row.
//
// Rows run in batches whose scores fit a fixed amount of scratch memory, whatever the context length. A score is a
// function of the row's query and the key alone; the order of its sum stands with the two kernels that compute it.
//
// The k best items lie in the k best runs of eight, ties to the lower run: a run that is not among them has k runs before
// it, each with an item that goes before all of its own. So few scores are read again: the best of each run, then those of
// k runs. The same once more for wide runs of 16 runs where a row can have many.
#include <algorithm>
#include <cmath>

#include "backend/cuda/index/score.cuh"
#include "backend/cuda/index/select_filtered.cuh"
#include "backend/cuda/launch.h"
#include "core/check.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int64_t kScoreBytes = int64_t{256} << 20;
constexpr int64_t kStrideItems = 64;
constexpr int kWideShift = 4, kWideRuns = 1 << kWideShift;
constexpr int kRunShift = 3;
static_assert(1 << kRunShift == kRunItems);
constexpr int kPoolThreads = 256;

// to[i] = the largest of from[i * size], .. of count. grid (parts of a row, rows)
__device__ void Pool(const float* from, int count, int size, float* to) {
  const int step = static_cast<int>(gridDim.x) * kPoolThreads;
  for (int i = static_cast<int>(blockIdx.x * kPoolThreads + threadIdx.x); i * size < count; i += step) {
    float best = from[i * size];
    for (int j = i * size + 1; j < min((i + 1) * size, count); ++j) best = fmaxf(best, from[j]);
    to[i] = best;
  }
}
__global__ void PoolRunsKernel(IndexSelectParams p, IndexBatch batch) {
  Pool(batch.Scores(blockIdx.y), Items(p, batch.first_row + blockIdx.y), kRunItems, batch.Best(blockIdx.y));
}
__global__ void PoolWideRunsKernel(IndexSelectParams p, IndexBatch batch) {
  const int runs = Runs(Items(p, batch.first_row + blockIdx.y));
  if (runs > kSelectRound) Pool(batch.Best(blockIdx.y), runs, kWideRuns, batch.wide + blockIdx.y * batch.wide_stride);
}

// Max-pooled blocks of a list of scores; the last one, of the newest latent, is above all.
struct Blocks {
  const float* scores;
  const float* best;  // of each block, where it is known
  int size;
  int visible;

  __device__ int At(int i) const { return i; }
  __device__ bool Has(int) const { return true; }
  __device__ float Value(int block) const {
    const int begin = block * size, end = min(begin + size, visible);
    float top = best != nullptr ? best[block] : scores[begin];
    if (best == nullptr) {
      for (int i = begin + 1; i < end; ++i) top = fmaxf(top, scores[i]);
    }
    return end == visible ? INFINITY : top;
  }
};

// The candidate blocks of a row: max-pooled scores; the block of the newest visible latent is always among the best.
__global__ void __launch_bounds__(kSelectThreads, 2) PublishBlocksKernel(IndexSelectParams p, IndexBatch batch) {
  __shared__ SelectShared shared;
  const int64_t row = batch.first_row + blockIdx.x;
  const int visible = Visible(p, row), size = static_cast<int>(p.block_size), blocks = (visible + size - 1) / size;
  const Blocks pooled{batch.Scores(blockIdx.x), size == kRunItems ? batch.Best(blockIdx.x) : nullptr, size, visible};
  int32_t* out = p.blocks + row * p.blocks_max;
  const int count = SelectBest(pooled, blocks, static_cast<int>(p.blocks_max), shared, [&](int place, int b) { out[place] = b; });
  if (threadIdx.x == 0) p.block_count[row] = count;
}

// Elements of a list of scores: all, or those of chosen groups of 2^shift.
struct Scores {
  const float* values;
  const int32_t* chosen;  // nullptr: all
  int shift;
  int limit;              // of `values`

  __device__ int At(int i) const { return chosen == nullptr ? i : (chosen[i >> shift] << shift) + (i & ((1 << shift) - 1)); }
  __device__ bool Has(int at) const { return at < limit; }
  __device__ float Value(int at) const { return values[min(at, limit - 1)]; }
};

// The same as SelectFiltered for any scores: exactly the k best wide runs, of theirs the k best runs, of theirs the items. `lists`
// has room for two lists of topk; returns the one with the items, ascending.
__device__ const int32_t* SelectByLevels(const IndexBatch& batch, int items, int topk, SelectShared& shared, int32_t* lists) {
  const int runs = Runs(items), wide_runs = (runs + kWideRuns - 1) / kWideRuns;
  int32_t *list = lists, *next = lists + topk;
  int level = runs > kSelectRound ? 0 : 1, count = level == 0 ? wide_runs : runs;
  Scores scores{level == 0 ? batch.wide + blockIdx.x * batch.wide_stride : batch.Best(blockIdx.x), nullptr, 0, count};
#pragma unroll 1
  for (;; ++level) {
    const int chosen = SelectBest(scores, count, topk, shared, [&](int place, int i) { next[place] = scores.At(i); });
    __syncthreads();
    int32_t* const full = next;
    next = list;
    list = full;
    count = chosen;
    if (level == 2) return list;
    scores = level == 0 ? Scores{batch.Best(blockIdx.x), list, kWideShift, runs} : Scores{batch.Scores(blockIdx.x), list, kRunShift, items};
    count <<= scores.shift;
  }
}

// What SelectFiltered needs, or SelectByLevels.
size_t SelectBytes(int64_t topk) { return std::max(sizeof(FilterShared), static_cast<size_t>(topk) * 2 * sizeof(int32_t)); }

// grid (rows); SelectBytes of shared memory
__global__ void __launch_bounds__(kSelectThreads, 2) SelectLatentsKernel(IndexSelectParams p, IndexBatch batch) {
  __shared__ SelectShared shared;
  extern __shared__ int32_t lists[];
  const int64_t row = batch.first_row + blockIdx.x;
  const int items = Items(p, row), topk = static_cast<int>(p.topk);
  int32_t* out = p.selected + row * p.topk;
  if (threadIdx.x == 0) p.selected_count[row] = min(items, topk);
  if (items <= topk) {
    for (int i = static_cast<int>(threadIdx.x); i < topk; i += kSelectThreads) out[i] = i < items ? ItemToLatent(p, row, i) : -1;
    return;
  }
  const bool done = SelectFiltered<kWideRuns>(batch.Scores(blockIdx.x), batch.Best(blockIdx.x), batch.wide + blockIdx.x * batch.wide_stride,
                                              items, topk, shared, *reinterpret_cast<FilterShared*>(lists),
                                              [&](int place, int item) { out[place] = ItemToLatent(p, row, item); });
  if (done) return;
  __syncthreads();
  const int32_t* list = SelectByLevels(batch, items, topk, shared, lists);
  for (int i = static_cast<int>(threadIdx.x); i < topk; i += kSelectThreads) out[i] = ItemToLatent(p, row, list[i]);
}

dim3 PoolGrid(const IndexBatch& batch, int64_t pools) {
  return dim3(static_cast<unsigned>((pools + kPoolThreads - 1) / kPoolThreads), static_cast<unsigned>(batch.rows));
}

void SelectBatch(Context& context, const IndexSelectParams& p, const IndexBatch& batch) {
  const cudaStream_t stream = context.stream();
  const auto rows = static_cast<unsigned>(batch.rows);
  if (TensorScoreTakes(p)) {
    TensorScore(stream, context.num_sms(), p, batch);
  } else {
    PlainScore(stream, p, batch);
    PoolRunsKernel<<<PoolGrid(batch, batch.stride / kRunItems), kPoolThreads, 0, stream>>>(p, batch);
  }
  if (batch.wide_stride > 0) PoolWideRunsKernel<<<PoolGrid(batch, batch.wide_stride), kPoolThreads, 0, stream>>>(p, batch);
  if (p.candidates == Candidates::kPublish) PublishBlocksKernel<<<rows, kSelectThreads, 0, stream>>>(p, batch);
  const size_t bytes = SelectBytes(p.topk);
  context.Record(cudaFuncSetAttribute(SelectLatentsKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
                 "index: shared memory");
  SelectLatentsKernel<<<rows, kSelectThreads, bytes, stream>>>(p, batch);
}

}  // namespace

void IndexSelect(Context& context, const IndexSelectParams& p) {
  if (p.rows == 0) return;
  DI_CHECK(p.topk >= 1 && p.topk <= 4096);
  DI_CHECK(p.candidates == Candidates::kNone || (p.block_size > 0 && p.blocks_max > 0));
  // The host does not know the positions: the cache's own capacity bounds how many latents a row can see.
  const int64_t capacity = int64_t{p.cache.blocks_stride} * p.cache.rows_per_block();
  IndexBatch batch{};
  batch.stride = p.candidates == Candidates::kRestrict ? std::min(capacity, p.blocks_max * p.block_size) : capacity;
  batch.stride = (std::max<int64_t>(batch.stride, 1) + kStrideItems - 1) / kStrideItems * kStrideItems;
  const int64_t runs = batch.stride / kRunItems, rows_fit = kScoreBytes / (batch.stride * 4);
  DI_CHECK(runs <= kSelectMax && (p.candidates != Candidates::kPublish || batch.stride / p.block_size < kSelectMax));
  if (runs > kSelectRound) batch.wide_stride = (runs + 4 * kWideRuns - 1) / (4 * kWideRuns) * 4;  // lists begin at 16 bytes
  const int64_t rows_max = std::clamp<int64_t>(rows_fit, 1, std::min<int64_t>(p.rows, kBatchRowsMax));
  batch.scores = context.Take<float>(rows_max * batch.stride);
  batch.best = context.Take<float>(rows_max * runs);
  batch.wide = context.Take<float>(rows_max * batch.wide_stride);
  if (batch.scores == nullptr || batch.best == nullptr || batch.wide == nullptr) return;
  for (batch.first_row = 0; batch.first_row < p.rows; batch.first_row += rows_max) {
    batch.rows = std::min(rows_max, p.rows - batch.first_row);
    SelectBatch(context, p, batch);
  }
}

}  // namespace deepinfer::backend::cuda
