// SPDX-License-Identifier: Apache-2.0
// The two attention kernels. Which one runs depends on the model's shape and the activation type; in which form, on the rows, without
// changing a bit.
#pragma once

#include "backend/api/ops.h"
#include "backend/cuda/context.h"

namespace deepinfer::backend::cuda {

// fp32 throughout; any shape whose scores fit in shared memory.
void PlainAttention(Context& context, const AttentionParams& p);

// Tensor cores: query and softmax weights rounded to bf16, sums in fp32 (attention_sm90.cu). Of few rows each is shared by two,
// four or eight blocks, which changes no bit; another number of blocks than 0, as many as there is room for, is for tests.
bool SparseAttentionTakes(const AttentionParams& p);
void SparseAttention(Context& context, const AttentionParams& p, int blocks_of_item = 0);

// The same for many rows, where there are at most keys_max - 1 keys that they can see: those are decoded once. Returns the device's
// number of decoded keys and one, or 0 where there are more; nullptr, with the error recorded, where memory is short.
const int32_t* SparseAttentionOfManyRows(Context& context, const AttentionParams& p, int32_t keys_max);

}  // namespace deepinfer::backend::cuda
