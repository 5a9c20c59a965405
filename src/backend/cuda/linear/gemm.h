// SPDX-License-Identifier: Apache-2.0
// The matrix kernel: parameters and the host side of its choice. Used for linears and, with a list of token tiles, for
// the experts. The transposed product is computed: outputs are the 64 rows of a wgmma, tokens its columns, so that one
// instruction family serves one token and ten thousand.
//
// Accumulation contract. Inputs are one bf16 part (bf16 and FP8 activations, which are exact in bf16) or three (fp32:
// high, middle, low, whose sum is the fp32 value). Weights are exact in bf16, so every product is exact in fp32. The
// inputs are cut into chunks of 64 and chunks into spans; Spans(shape) says how many. Inside a span one tensor-core
// accumulator starts at zero and takes steps of 16 inputs in ascending order, per step the parts high, middle, low. Spans
// are added in ascending order in fp32. Neither the number of tokens nor the tile shape enters, nor whether one block
// multiplies all spans of its outputs or several blocks one each.
//
// Aligned formats (packed.h): weights and inputs are e4m3. A tensor-core accumulator starts at zero for each run of kPromoteChunks
// chunks of 128 inputs (the last run may be shorter) and takes steps of 32 in ascending order; runs are added in ascending order in
// fp32, and the sum is multiplied once, with the product of the scales of its two rows, a power of two.
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
  const uint8_t* const* matrices = nullptr;  // device: packed matrices of problem i, from i * problem_matrices on
  int32_t problem_matrices = 1;              // 2: gate and up, side by side in y, or joined by kSwiGlu
  const uint8_t* matrix = nullptr;           // the one matrix where `matrices` is nullptr
  int32_t num_chunks = 0;                    // of a matrix row
  int64_t tile_bytes = 0;                    // TileBytes()
  int32_t spans = 1;                         // kSwiGlu: 1
  int32_t span_items = 1;                    // `spans` where each is a work item of its own, else 1
  int32_t problem_rows = 0;                  // outputs of a problem's matrix; in `matrix` problem g has [g, g + 1) * problem_rows
  int32_t block_tiles = 0;                   // tiles of outputs that a block multiplies side by side: BlockTiles()
  int32_t row_blocks = 0;                    // work items per token tile and span along the outputs
  int32_t band = 1;                          // row blocks whose items for all token tiles come before those of the next
  const uint8_t* inputs = nullptr;           // packed activations, [chunk][part][row group] atoms
  int64_t part_bytes = 0;                    // row groups * 1024
  const float* row_scales = nullptr;         // aligned formats: [rows, padded to 8], of the inputs
  int32_t parts = 1;                         // kSwiGlu: 1
  int32_t problem_chunks = 0;                // problem g's inputs begin at chunk g * problem_chunks; 0: shared
  const TokenTile* token_tiles = nullptr;    // device, [num_token_tiles]; nullptr: every problem takes all rows
  int32_t num_token_tiles = 0;
  int32_t problem_token_tiles = 0;           // per problem, where token_tiles is nullptr
  int32_t tile_tokens = 0;                   // of a full token tile, where token_tiles is nullptr
  int32_t rows = 0;                          // tokens, where token_tiles is nullptr
  float* y = nullptr;                        // [tokens, y_stride]
  uint16_t* y_bf16 = nullptr;                // aligned formats: instead of y, rounded to bf16, y_stride values apart
  uint8_t* packed_y = nullptr;               // kSwiGlu, instead of y: the results as one part of packed inputs (packed.h)
  int64_t packed_y_groups = 0;               // row groups of packed_y
  int64_t y_stride = 0;
  int64_t span_y = 0;                        // where spans are items: the outputs of span s lie s * span_y further
  const float* token_weights = nullptr;      // kSwiGlu: [tokens] or nullptr for 1
  float limit = 0.0f;
};

// Which kernel runs: it never changes a result.
struct GemmConfig {
  int tokens;  // of a token tile at most, a multiple of 8; a tile is multiplied with as few columns as its tokens need
  bool split;  // spans are work items: their sums are joined afterwards
  int tiles;   // of outputs that a block multiplies side by side
};
inline constexpr int kTokensWide = 128;   // of a tile at most
inline constexpr int kTokensFew = 64;     // at most with a finer choice of widths, and for items of one span with three parts
inline constexpr int kTokensFewest = 32;  // at most for the narrowest kernel that adds up spans of three parts

// Tiles of 64 outputs that a block multiplies side by side. A second set of sums leaves registers for half as many where there are
// many tokens, and where there are few it is the weights that take time.
inline constexpr int kBlockTiles = 4;
inline constexpr int kBlockTilesTotals = 2;
inline constexpr int kBlockTilesFew = 2;  // where few tokens make few items, so that more multiprocessors are busy
// `totals`: a block adds up spans.
// Of formats that are not aligned.
constexpr int BlockTiles(int tokens, int parts, bool totals) {
  return totals && (parts == 1 || tokens > kTokensFewest) ? kBlockTilesTotals : kBlockTiles;
}

// What ChooseGemm asks about a product: `tiles` and `num_chunks` as above, `rows` tokens of each of `problems` problems.
struct GemmShape {
  int64_t tiles = 0;
  int64_t num_chunks = 0;
  int64_t problems = 1;
  int64_t rows = 0;
  int parts = 1;
  WeightFormat format = WeightFormat::kBf16;
  bool can_split = true;
  bool narrow = true;  // blocks may take fewer tiles, and more multiprocessors
  bool pairs = false;  // gate and up side by side in a block
};

// Spans of a matrix: belongs to the contract, so it is a function of the model's shapes and the activation type alone.
// `tiles` are the output tiles of the whole op, `num_chunks` those of a row.
int Spans(int64_t tiles, int64_t num_chunks, int parts);
// One for aligned formats.
int Spans(const GemmShape& shape);
// So many spans instead, whatever the shape; 0: as usual. For a benchmark of what the contract costs.
void TestOnlySetSpans(int spans);

// Aligned formats: chunks whose products the tensor core sums up before they are added to the totals in fp32. Its sums of FP8 products
// keep some 14 bits.
inline constexpr int kPromoteChunks = 2;

// Warpgroups that share a tile where a block has so many: as many as there are registers for.
constexpr int AlignedSplit(int tiles) { return kBlockTiles / tiles; }

// Most tokens of a tile.
constexpr int TileTokensMax(int parts, bool totals) { return parts > 1 && !totals ? kTokensFew : kTokensWide; }

GemmConfig ChooseGemm(const GemmShape& shape);

// Shared memory of a block: the stages of the pipeline. A stage holds one, two or four chunks of inputs: [chunk][part][tokens] atoms, then
// [warpgroup][chunk] of weights.
inline constexpr int kSharedBytesMax = 227 * 1024;
inline constexpr int kStagesMax = 16;
struct GemmMemory {
  int stage_chunks;
  int part_bytes;     // tokens of an input chunk
  int stage_bytes;
  int num_stages;
  int total_bytes;
  int shelves_at;     // aligned formats: two sets of totals of each tile that several warpgroups share
  int shelf_bytes;
};
// Where a block adds up spans its stages hold one chunk.
GemmMemory PlanMemory(int tokens, WeightFormat format, int parts, bool totals, int tiles);
// Of an aligned format, for blocks of `tiles` tiles.
GemmMemory PlanAlignedMemory(int tokens, WeightFormat format, int tiles);

}  // namespace deepinfer::backend::cuda
