// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/linear/gemm_launch.h"

#include "backend/cuda/linear/packed.h"
#include "core/check.h"

namespace deepinfer::backend::cuda {
namespace {

void Launch(Context& context, WeightFormat format, const GemmParams& p) {
  const int num_items = p.num_token_tiles * p.span_items * p.row_blocks;
  switch (format) {
    case WeightFormat::kBf16:
      return LaunchGemmBf16(context, p, num_items);
    case WeightFormat::kFp8Tile32:
      return LaunchGemmFp8(context, p, num_items);
    case WeightFormat::kFp4Row32:
      return LaunchGemmFp4(context, p, num_items);
    default:
      DI_CHECK(false);
  }
}

// What the shape decides.
void SetItems(const GemmShape& shape, int tokens, GemmParams& p) {
  // A problem whose outputs do not begin on a tile can touch one tile more.
  int tiles = (p.problem_rows + kTileRows - 1) / kTileRows;
  if (p.matrices == nullptr && shape.problems > 1 && p.problem_rows % kTileRows != 0) ++tiles;
  p.row_blocks = p.epilogue == Epilogue::kSwiGlu ? (2 * tiles + kBlockTiles - 1) / kBlockTiles
                                                 : (tiles + kBlockTiles - 1) / kBlockTiles * p.problem_matrices;
  // Weights that the caches do not hold are read once for all token tiles; of inputs there are fewer.
  constexpr int kBand = 16, kNoBand = 40;
  p.band = p.row_blocks <= kNoBand ? p.row_blocks : kBand;
  p.spans = Spans(shape.tiles, shape.num_chunks, shape.parts);
  p.tile_tokens = tokens;
}

}  // namespace

void RunGroupedGemm(Context& context, const GemmShape& shape, GemmParams p, int tokens) {
  SetItems(shape, tokens, p);
  Launch(context, shape.format, p);
}

void RunGemm(Context& context, const GemmShape& shape, GemmParams p) {
  const GemmConfig config = ChooseGemm(shape);
  SetItems(shape, config.tokens, p);
  p.problem_token_tiles = (p.rows + config.tokens - 1) / config.tokens;
  p.num_token_tiles = static_cast<int32_t>(shape.problems) * p.problem_token_tiles;
  if (!config.split) return Launch(context, shape.format, p);
  const int64_t outputs = p.matrices == nullptr ? p.problem_rows * shape.problems : int64_t{p.problem_rows} * p.problem_matrices;
  auto* sums = context.Take<float>(p.spans * p.rows * outputs);
  if (sums == nullptr) return;
  float* y = p.y;
  const int64_t y_stride = p.y_stride;
  p.span_items = p.spans;
  p.y = sums;
  p.y_stride = outputs;
  p.span_y = p.rows * outputs;
  Launch(context, shape.format, p);
  JoinSpans(context, sums, p.spans, p.rows, outputs, y, y_stride);
}

}  // namespace deepinfer::backend::cuda
