// SPDX-License-Identifier: Apache-2.0
// Which latents a row scores, and the kernels that score them; parameters in index.cu. The latents that a row scores are its
// items, ascending; eight neighbouring items are a run, and the best score of each run is kept beside the scores.
#pragma once

#include "backend/api/ops.h"
#include "backend/cuda/device/cache.cuh"

namespace deepinfer::backend::cuda {

inline constexpr int kRunItems = 8;
// Rows whose work one launch can share out (tensor_score_sm90.cu).
inline constexpr int kBatchRowsMax = 1024;

// One batch of rows: row i of the batch is row first_row + i of the op.
struct IndexBatch {
  int64_t first_row;
  int64_t rows;         // at most kBatchRowsMax
  int64_t stride;       // scores per row, a multiple of 8
  float* scores;        // [rows, stride]
  float* best;          // [rows, stride / kRunItems]: of each run
  int64_t wide_stride;  // 0: no list of wide runs
  float* wide;          // [rows, wide_stride]: best of kWideRuns runs each (index.cu)

  __device__ float* Scores(int64_t row) const { return scores + row * stride; }
  __device__ float* Best(int64_t row) const { return best + row * (stride / kRunItems); }
};

__device__ inline int Visible(const IndexSelectParams& p, int64_t row) { return (p.positions[row] + 1) / p.cache.ratio; }

// How many latents row `row` scores: those of its candidate blocks, or all that it sees.
__device__ inline int Items(const IndexSelectParams& p, int64_t row) {
  const int visible = Visible(p, row);
  if (p.candidates != Candidates::kRestrict) return visible;
  const int blocks = p.block_count[row];
  if (blocks == 0) return 0;
  const int size = static_cast<int>(p.block_size);
  const int last = p.blocks[row * p.blocks_max + blocks - 1];  // ascending: only the last can reach past the end
  return (blocks - 1) * size + min(size, visible - last * size);
}

__device__ inline int Runs(int items) { return (items + kRunItems - 1) / kRunItems; }

__device__ inline int ItemToLatent(const IndexSelectParams& p, int64_t row, int item) {
  if (p.candidates != Candidates::kRestrict) return item;
  const int size = static_cast<int>(p.block_size);
  return p.blocks[row * p.blocks_max + item / size] * size + item % size;
}

// Plain fp32, any shape; scores alone.
void PlainScore(cudaStream_t stream, const IndexSelectParams& p, const IndexBatch& batch);

// Tensor cores, scores and the best of each run; index_dim 128 and at most 32 heads. Which kernel runs depends on the
// model's shape alone.
bool TensorScoreTakes(const IndexSelectParams& p);
void TensorScore(cudaStream_t stream, int num_sms, const IndexSelectParams& p, const IndexBatch& batch);

}  // namespace deepinfer::backend::cuda
