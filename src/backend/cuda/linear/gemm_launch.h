// SPDX-License-Identifier: Apache-2.0
// Runs the matrix kernel: fills in what the configuration decides and picks the compiled instance.
#pragma once

#include "backend/cuda/context.h"
#include "backend/cuda/linear/gemm.h"

namespace deepinfer::backend::cuda {

// p without row_blocks, problem_tiles, num_token_tiles (unless token_tiles is given) and problem_token_tiles; `problems`
// is the number of problems where there is no list of token tiles.
void RunGemm(Context& context, WeightFormat format, GemmParams p, const GemmConfig& config, int problems);

// One file each: gemm_<format>_sm90.cu.
void LaunchGemmBf16(Context& context, const GemmParams& p, const GemmConfig& config, int num_items);
void LaunchGemmFp8(Context& context, const GemmParams& p, const GemmConfig& config, int num_items);
void LaunchGemmFp4(Context& context, const GemmParams& p, const GemmConfig& config, int num_items);

}  // namespace deepinfer::backend::cuda
