// SPDX-License-Identifier: Apache-2.0
// Runs the matrix kernel: fills in what the configuration decides and picks the compiled instance.
#pragma once

#include "backend/cuda/context.h"
#include "backend/cuda/linear/gemm.h"

namespace deepinfer::backend::cuda {

// Outputs whose spans are still apart: an output is the sum over the spans s, ascending, of data[s * span_stride + row * row_stride + i].
struct SpanSums {
  const float* data = nullptr;
  const uint16_t* bf16 = nullptr;  // one span, in bf16, in place of data; both nullptr: no memory, the error is recorded
  int64_t row_stride = 0;
  int spans = 1;
  int64_t span_stride = 0;
};

// p without spans, span_items, block_tiles, row_blocks, num_token_tiles (unless token_tiles is given), problem_token_tiles and
// tile_tokens, which follow from `shape` and what ChooseGemm makes of it.
void RunGemm(Context& context, const GemmShape& shape, GemmParams p);

// The same with another choice.
void RunGemmAs(Context& context, const GemmShape& shape, const GemmConfig& config, GemmParams p);

// As RunGemm, but leaves it to the caller to add up spans, and finds scratch memory for the outputs.
SpanSums RunGemmApart(Context& context, const GemmShape& shape, GemmParams p);

// As RunGemm with tiles of `tokens` tokens, which are in p.token_tiles already.
void RunGroupedGemm(Context& context, const GemmShape& shape, GemmParams p, int tokens);

// y[row, i] = sum over the spans of sums, which are in scratch memory, spans one after the other. A row has `outputs` values.
void JoinSpans(Context& context, const SpanSums& sums, int64_t rows, int64_t outputs, float* y, int64_t y_stride);

// One file each: gemm_<format>_sm90.cu.
void LaunchGemmBf16(Context& context, const GemmParams& p, int num_items);
void LaunchGemmFp8(Context& context, const GemmParams& p, int num_items);
void LaunchGemmFp4(Context& context, const GemmParams& p, int num_items);
void LaunchGemmFp8Aligned(Context& context, const GemmParams& p, int num_items);
void LaunchGemmFp4Aligned(Context& context, const GemmParams& p, int num_items);

}  // namespace deepinfer::backend::cuda
