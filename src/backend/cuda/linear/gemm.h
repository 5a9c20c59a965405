// SPDX-License-Identifier: Apache-2.0
// The matrix kernel: parameters and the host side of its choice. Used for linears and, with a list of token tiles, for
// the experts. The transposed product is computed: outputs are the 64 rows of a wgmma, tokens its columns, so that one
// instruction family serves one token and ten thousand.
//
// Accumulation contract. Inputs are one bf16 part (bf16 and FP8 activations, which are exact in bf16) or three (fp32:
// high, middle, low, whose sum is the fp32 value). Weights are exact in bf16, so every product is exact in fp32. The
// inputs are cut into chunks of 64 and chunks into spans; Spans(shape) says how many. Inside a span one tensor-core
// accumulator starts at zero and takes steps of 16 inputs in ascending order, per step the parts high, middle, low. Spans
// are added in ascending order in fp32. Neither the number of tokens nor the tile shape enters.
#pragma once

#include <cstdint>

#include "backend/api/types.h"

namespace deepinfer::backend::cuda {

// Rows [first_row, first_row + rows) of the packed inputs, all of one problem (an expert).
struct TokenTile {
  int32_t problem;
  int32_t first_row;  // a multiple of 8
  int32_t rows;       // 0: an unused place of the list
};

enum class Epilogue {
  kStore,   // y[token, output] = product
  kSwiGlu,  // y[token, output] = weight * silu(min(gate, limit)) * clamp(up, limit)
};

struct GemmParams {
  Epilogue epilogue = Epilogue::kStore;
  const uint8_t* const* matrices = nullptr;  // device: packed matrix of problem i; for kSwiGlu gate 2i, up 2i + 1
  const uint8_t* matrix = nullptr;           // the one matrix where `matrices` is nullptr
  int32_t num_chunks = 0;                    // of a matrix row
  int32_t spans = 1;
  int32_t problem_rows = 0;                  // outputs of a problem; problem g has outputs [g, g + 1) * problem_rows
  int32_t problem_tiles = 0;                 // tiles that these can touch
  int32_t row_blocks = 0;                    // work items per token tile along the outputs
  const uint8_t* inputs = nullptr;           // packed activations, [chunk][part][row group] atoms
  int64_t part_bytes = 0;                    // row groups * 1024
  int32_t parts = 1;
  int32_t problem_chunks = 0;                // problem g's inputs begin at chunk g * problem_chunks; 0: shared
  const TokenTile* token_tiles = nullptr;    // device, [num_token_tiles]; nullptr: every problem takes all rows
  int32_t num_token_tiles = 0;
  int32_t problem_token_tiles = 0;           // per problem, where token_tiles is nullptr
  int32_t rows = 0;                          // tokens, where token_tiles is nullptr
  float* y = nullptr;                        // [tokens, y_stride]
  int64_t y_stride = 0;
  int64_t problem_y = 0;                     // problem g's outputs lie g * problem_y further
  const float* token_weights = nullptr;      // kSwiGlu: [tokens] or nullptr for 1
  float limit = 0.0f;
};

// Which kernel runs: it never changes a result.
struct GemmConfig {
  int tokens;       // of a token tile: 8, 32, 64, 128 or 256
  int warpgroups;   // 4 up to 64 tokens, else 2
  bool deep;        // the warpgroups share a tile and split its spans
  bool sums;        // more than one span may end inside a warpgroup
};

// Spans of a matrix: belongs to the contract, so it is a function of the model's shapes and the activation type alone.
// `tiles` are the output tiles of the whole op, `num_chunks` those of a row.
int Spans(int64_t tiles, int64_t num_chunks, int parts);

// The fastest kernel for `tokens` per problem. kSwiGlu cannot be deep.
GemmConfig ChooseGemm(int64_t tiles, int spans, int parts, int64_t tokens, Epilogue epilogue);

// Shared memory of a block: the stages of the pipeline, and where warpgroups hand accumulators to each other: spans
// (deep), or half of gate and of up (kSwiGlu).
inline constexpr int kSharedBytesMax = 227 * 1024;
inline constexpr int kStagesMax = 12;
struct GemmMemory {
  int stage_bytes;
  int num_stages;
  int exchange_bytes;
  int total_bytes;
};
GemmMemory PlanMemory(const GemmConfig& config, WeightFormat format, int parts);

}  // namespace deepinfer::backend::cuda
