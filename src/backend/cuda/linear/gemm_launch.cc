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
    case WeightFormat::kFp8Aligned:
      return LaunchGemmFp8Aligned(context, p, num_items);
    case WeightFormat::kFp4Aligned:
      return LaunchGemmFp4Aligned(context, p, num_items);
    default:
      DI_CHECK(false);
  }
}

// What the shape and the choice of a kernel decide.
void SetItems(const GemmShape& shape, const GemmConfig& config, GemmParams& p) {
  p.spans = Spans(shape);
  p.span_items = config.split ? p.spans : 1;
  p.tile_tokens = config.tokens;
  p.block_tiles = config.tiles;
  p.tile_bytes = TileBytes(shape.format, shape.num_chunks * ChunkCols(shape.format));
  // A problem whose outputs do not begin on a tile can touch one tile more.
  int tiles = (p.problem_rows + kTileRows - 1) / kTileRows;
  if (p.matrices == nullptr && shape.problems > 1 && p.problem_rows % kTileRows != 0) ++tiles;
  p.row_blocks = p.epilogue == Epilogue::kSwiGlu ? (2 * tiles + p.block_tiles - 1) / p.block_tiles
                                                 : (tiles + p.block_tiles - 1) / p.block_tiles * p.problem_matrices;
  // Weights that the caches do not hold are read once for all token tiles; of inputs there are fewer.
  constexpr int kBandTiles = 64, kNoBandTiles = 160;
  p.band = p.row_blocks * p.block_tiles <= kNoBandTiles ? p.row_blocks : kBandTiles / p.block_tiles;
}

// With what the choice of a configuration asks about p. Gate and up of the shared expert run beside the routed experts, which want all
// multiprocessors: they keep to as few as they can.
GemmShape Completed(GemmShape shape, const GemmParams& p) {
  shape.pairs = p.epilogue == Epilogue::kSwiGlu;
  shape.narrow = p.problem_matrices == 1;
  return shape;
}

// With the outputs in scratch memory.
SpanSums RunApart(Context& context, const GemmShape& shape, const GemmConfig& config, GemmParams p) {
  const int64_t outputs = p.matrices == nullptr ? p.problem_rows * shape.problems : int64_t{p.problem_rows} * p.problem_matrices;
  SpanSums sums{.row_stride = outputs, .span_stride = p.rows * outputs};
  if (config.split) sums.spans = Spans(shape);
  p.y = context.Take<float>(sums.spans * sums.span_stride);
  p.y_stride = outputs;
  p.span_y = sums.span_stride;
  if (p.y != nullptr) RunGemmAs(context, shape, config, p);
  sums.data = p.y;
  return sums;
}

}  // namespace

void RunGemmAs(Context& context, const GemmShape& shape, const GemmConfig& config, GemmParams p) {
  SetItems(shape, config, p);
  p.problem_token_tiles = (p.rows + config.tokens - 1) / config.tokens;
  p.num_token_tiles = static_cast<int32_t>(shape.problems) * p.problem_token_tiles;
  Launch(context, shape.format, p);
}

void RunGroupedGemm(Context& context, const GemmShape& shape, GemmParams p, int tokens) {
  const int tiles = IsAligned(shape.format) ? kBlockTiles : BlockTiles(tokens, shape.parts, Spans(shape) > 1);
  SetItems(shape, {tokens, false, tiles}, p);
  Launch(context, shape.format, p);
}

void RunGemm(Context& context, const GemmShape& shape, GemmParams p) {
  const GemmConfig config = ChooseGemm(Completed(shape, p));
  if (!config.split) return RunGemmAs(context, shape, config, p);
  float* y = p.y;
  const int64_t y_stride = p.y_stride;
  const SpanSums sums = RunApart(context, shape, config, p);
  if (sums.data != nullptr) JoinSpans(context, sums, p.rows, sums.row_stride, y, y_stride);
}

SpanSums RunGemmApart(Context& context, const GemmShape& shape, GemmParams p) {
  return RunApart(context, shape, ChooseGemm(Completed(shape, p)), p);
}

}  // namespace deepinfer::backend::cuda
