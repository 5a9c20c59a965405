// SPDX-License-Identifier: Apache-2.0
// Sparse attention by clusters of blocks that share a row (split_attention_sm90.cu), for few rows. The bits are those of the kernel with a
// block a row, whatever the number of blocks.
#pragma once

#include "backend/cuda/attention/sparse_shared_sm90.cuh"
#include "backend/cuda/context.h"

namespace deepinfer::backend::cuda {

// Whether an item's tiles have room.
bool SplitAttentionTakes(const sparse::SparseParams& p);

// As many blocks a work item, 1, 2, 4 or 8, as find a multiprocessor each.
int SplitAttentionBlocks(Context& context, const sparse::SparseParams& p);

// blocks: 2, 4 or 8. REQUIRES: SplitAttentionTakes(p).
void SplitAttention(Context& context, const sparse::SparseParams& p, int blocks);

}  // namespace deepinfer::backend::cuda
