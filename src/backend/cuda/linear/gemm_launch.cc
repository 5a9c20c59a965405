// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/linear/gemm_launch.h"

#include "backend/cuda/linear/packed.h"
#include "core/check.h"

namespace deepinfer::backend::cuda {

void RunGemm(Context& context, WeightFormat format, GemmParams p, const GemmConfig& config, int problems) {
  // A problem whose outputs do not begin on a tile can touch one tile more.
  p.problem_tiles = (p.problem_rows + kTileRows - 1) / kTileRows;
  if (p.matrices == nullptr && problems > 1 && p.problem_rows % kTileRows != 0) ++p.problem_tiles;
  const int tiles_per_block =
      config.deep ? 1 : p.epilogue == Epilogue::kSwiGlu ? config.warpgroups / 2 : config.warpgroups;
  p.row_blocks = (p.problem_tiles + tiles_per_block - 1) / tiles_per_block;
  if (p.token_tiles == nullptr) {
    p.problem_token_tiles = (p.rows + config.tokens - 1) / config.tokens;
    p.num_token_tiles = problems * p.problem_token_tiles;
  }
  const int num_items = p.num_token_tiles * p.row_blocks;
  switch (format) {
    case WeightFormat::kBf16:
      return LaunchGemmBf16(context, p, config, num_items);
    case WeightFormat::kFp8Tile32:
      return LaunchGemmFp8(context, p, config, num_items);
    case WeightFormat::kFp4Row32:
      return LaunchGemmFp4(context, p, config, num_items);
    default:
      DI_CHECK(false);
  }
}

}  // namespace deepinfer::backend::cuda
