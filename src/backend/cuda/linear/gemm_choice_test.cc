// SPDX-License-Identifier: Apache-2.0
// Property: the number of spans is a function of the model's shapes, and every choice of kernel fits a block's shared memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/linear/gemm.h"
#include "backend/cuda/linear/packed.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kBf16, WeightFormat::kFp8Tile32, WeightFormat::kFp4Row32};

TEST(GemmChoice, EveryNumberOfTokensHasAKernelThatFits) {
  for (const int64_t tiles : {1, 6, 20, 36, 64, 72, 80, 512, 2020}) {
    for (const int64_t chunks : {1, 4, 8, 20, 36, 64, 80, 128}) {
      for (const int parts : {1, 3}) {
        const int spans = Spans(tiles, chunks, parts);
        ASSERT_GE(spans, 1);
        ASSERT_LE(spans, chunks);
        for (const int64_t rows : {1, 2, 6, 7, 8, 9, 31, 32, 64, 65, 128, 129, 255, 256, 257, 4096}) {
          for (const WeightFormat format : kFormats) {
            for (const bool can_split : {false, true}) {
              const GemmConfig config = ChooseGemm({tiles, chunks, 1, rows, parts, format, can_split});
              EXPECT_GE(config.tokens, std::min<int64_t>(rows, kTokensFew));
              EXPECT_LE(config.tokens, TileTokensMax(parts, spans > 1 && !config.split));
              EXPECT_EQ(config.tokens % 8, 0);
              EXPECT_FALSE(config.split && (spans == 1 || !can_split));
              const int tiles_usual = BlockTiles(config.tokens, parts, spans > 1 && !config.split);
              EXPECT_TRUE(config.tiles == tiles_usual || (config.tiles == kBlockTilesFew && config.tokens <= kTokensFew && parts == 1));
            }
          }
        }
      }
    }
  }
}

// Half as many tiles a block, where that keeps twice as many multiprocessors busy.
TEST(GemmChoice, FewItemsOfFewTokensAreNarrow) {
  const auto tiles = [](int64_t rows, bool narrow = true) {
    return ChooseGemm({.tiles = 80, .num_chunks = 128, .rows = rows, .format = WeightFormat::kFp8Tile32, .narrow = narrow}).tiles;
  };
  EXPECT_EQ(tiles(32), kBlockTilesFew);
  EXPECT_EQ(tiles(1), kBlockTiles);
  EXPECT_EQ(tiles(32, false), kBlockTiles);
  EXPECT_EQ(tiles(256), kBlockTiles);
}

TEST(GemmChoice, StagesFitSharedMemory) {
  for (const int parts : {1, 3}) {
    for (const bool totals : {false, true}) {
      for (int tokens = 8; tokens <= TileTokensMax(parts, totals); tokens += 8) {
        for (const WeightFormat format : kFormats) {
          const GemmMemory memory = PlanMemory(tokens, format, parts, totals, BlockTiles(tokens, parts, totals));
          EXPECT_GE(memory.num_stages, 3) << tokens << " tokens, " << parts << " parts";
          EXPECT_LE(memory.num_stages, kStagesMax);
          EXPECT_LE(memory.total_bytes, kSharedBytesMax);
          EXPECT_EQ(memory.part_bytes % 1024, 0);
          // What the widest product of the last chunk's last part reads.
          const int weight_bytes = memory.stage_chunks * BlockTiles(tokens, parts, totals) * ChunkBytes(format);
          const int last = memory.num_stages * memory.stage_bytes - weight_bytes - memory.part_bytes;
          EXPECT_LE(last + (tokens <= kTokensFew ? kTokensFew : kTokensWide) * 128, memory.total_bytes);
        }
      }
    }
  }
}

constexpr WeightFormat kAligned[] = {WeightFormat::kFp8Aligned, WeightFormat::kFp4Aligned};

TEST(GemmChoice, AlignedFormatsHaveOneSpanAndAKernelThatFits) {
  for (const WeightFormat format : kAligned) {
    for (const int64_t tiles : {1, 8, 20, 36, 72, 80, 512, 72 * 384}) {
      for (const int64_t chunks : {8, 10, 18, 40, 64}) {
        for (const int64_t rows : {1, 8, 9, 31, 32, 33, 64, 65, 128, 256, 4096}) {
          for (const bool pairs : {false, true}) {
            const GemmShape shape{.tiles = tiles, .num_chunks = chunks, .rows = rows, .format = format, .pairs = pairs};
            EXPECT_EQ(Spans(shape), 1);
            const GemmConfig config = ChooseGemm(shape);
            EXPECT_FALSE(config.split);
            EXPECT_EQ(config.tokens % 8, 0);
            EXPECT_LE(config.tokens, kTokensWide);
            EXPECT_TRUE(config.tiles == 4 || (config.tokens <= kTokensFew && (config.tiles == 2 || (config.tiles == 1 && !pairs))));
          }
        }
      }
    }
  }
}

TEST(GemmChoice, StagesOfAlignedFormatsFitSharedMemory) {
  for (const WeightFormat format : kAligned) {
    for (int tokens = 8; tokens <= kTokensWide; tokens += 8) {
      for (const int tiles : {1, 2, 4}) {
        const GemmMemory memory = PlanAlignedMemory(tokens, format, tiles);
        // A run is multiplied twice, or the stages belong to several warpgroups.
        const int split = AlignedSplit(tiles);
        EXPECT_GE(memory.num_stages / split, split > 1 ? 2 : kPromoteChunks + 1) << tokens << " tokens, " << tiles << " tiles";
        EXPECT_LE(memory.num_stages, kStagesMax);
        EXPECT_LE(memory.total_bytes, kSharedBytesMax);
        // What the widest product of the last chunk reads.
        const int last = memory.num_stages * memory.stage_bytes - tiles * ChunkBytes(format) - memory.part_bytes;
        EXPECT_LE(last + (tokens <= kTokensFew ? kTokensFew : kTokensWide) * 128, memory.total_bytes);
      }
    }
  }
}

TEST(GemmChoice, PublishedShapes) {
  EXPECT_EQ(Spans(72 * 384, 80, 1), 1);  // the experts' gate and up, bf16 or FP8 activations
  EXPECT_EQ(Spans(72 * 384, 80, 3), 5);  // the same, fp32 activations
  EXPECT_EQ(Spans(80, 128, 1), 3);       // wo_b
  EXPECT_EQ(Spans(80, 128, 3), 8);
  EXPECT_EQ(Spans(512, 20, 1), 1);       // wq_b
  EXPECT_EQ(Spans(20, 80, 1), 10);       // wq_a
  const auto choose = [](int64_t tiles, int64_t chunks, int64_t rows) {
    return ChooseGemm({.tiles = tiles, .num_chunks = chunks, .rows = rows, .format = WeightFormat::kFp8Tile32});
  };
  EXPECT_TRUE(choose(20, 80, 1).split);
  EXPECT_TRUE(choose(20, 80, 256).split);
  EXPECT_FALSE(choose(80, 128, 8192).split);
  EXPECT_EQ(choose(80, 128, 8192).tokens, kTokensWide);
  EXPECT_EQ(choose(512, 20, 8192).tokens, kTokensWide);
  EXPECT_FALSE(choose(512, 20, 1).split);
}

}  // namespace
}  // namespace deepinfer::backend::cuda
