// SPDX-License-Identifier: Apache-2.0
// Runs the matrix kernel: fills in what the configuration decides and picks the compiled instance.
#pragma once

#include "backend/cuda/context.h"
#include "backend/cuda/linear/gemm.h"

namespace deepinfer::backend::cuda {

// p without spans, span_items, row_blocks, num_token_tiles (unless token_tiles is given), problem_token_tiles and tile_tokens, which
// follow from `shape` and what ChooseGemm makes of it. Where spans are items their sums lie in scratch memory first.
void RunGemm(Context& context, const GemmShape& shape, GemmParams p);

// As RunGemm with tiles of `tokens` tokens, which are in p.token_tiles already.
void RunGroupedGemm(Context& context, const GemmShape& shape, GemmParams p, int tokens);

// y[row, i] = sum over the spans of spans[span, row, i], ascending. `outputs` is a row of spans.
void JoinSpans(Context& context, const float* spans, int num_spans, int64_t rows, int64_t outputs, float* y, int64_t y_stride);

// One file each: gemm_<format>_sm90.cu.
void LaunchGemmBf16(Context& context, const GemmParams& p, int num_items);
void LaunchGemmFp8(Context& context, const GemmParams& p, int num_items);
void LaunchGemmFp4(Context& context, const GemmParams& p, int num_items);

}  // namespace deepinfer::backend::cuda
