// SPDX-License-Identifier: Apache-2.0
// Property: the number of spans is a function of the model's shapes, and every choice of kernel can run those spans and
// fits a block's shared memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/linear/gemm.h"

namespace deepinfer::backend::cuda {
namespace {

TEST(GemmChoice, EveryNumberOfTokensHasAKernelThatFits) {
  for (const int64_t tiles : {1, 6, 20, 36, 64, 72, 80, 512, 2020}) {
    for (const int64_t chunks : {1, 4, 8, 20, 36, 64, 80, 128}) {
      for (const int parts : {1, 3}) {
        const int spans = Spans(tiles, chunks, parts);
        ASSERT_GE(spans, 1);
        ASSERT_LE(spans, chunks);
        for (const int64_t tokens : {1, 2, 6, 7, 8, 9, 31, 32, 64, 65, 128, 129, 255, 256, 257, 4096}) {
          for (const Epilogue epilogue : {Epilogue::kStore, Epilogue::kSwiGlu}) {
            const GemmConfig config = ChooseGemm(tiles, spans, parts, tokens, epilogue);
            EXPECT_GE(config.tokens, std::min<int64_t>(tokens, parts == 1 ? 64 : 32));
            // 256 columns leave no registers for a second set of sums.
            EXPECT_FALSE(config.tokens == 256 && config.sums);
            EXPECT_TRUE(!config.deep || spans == config.warpgroups);
            EXPECT_TRUE(spans == 1 || config.deep || config.sums);
            EXPECT_FALSE(config.deep && epilogue == Epilogue::kSwiGlu);
            for (const auto format : {WeightFormat::kBf16, WeightFormat::kFp8Tile32, WeightFormat::kFp4Row32}) {
              const GemmMemory memory = PlanMemory(config, format, parts);
              EXPECT_GE(memory.num_stages, 2) << "tokens " << config.tokens << ", parts " << parts << ", deep " << config.deep;
              EXPECT_LE(memory.total_bytes, kSharedBytesMax);
            }
          }
        }
      }
    }
  }
}

TEST(GemmChoice, PublishedShapes) {
  EXPECT_EQ(Spans(72 * 384, 80, 1), 1);  // the experts' gate and up, bf16 or FP8 activations
  EXPECT_EQ(Spans(72 * 384, 80, 3), 5);  // the same, fp32 activations
  EXPECT_EQ(Spans(80, 128, 1), 4);       // wo_b
  EXPECT_EQ(Spans(80, 128, 3), 8);
  EXPECT_EQ(Spans(512, 20, 1), 1);       // wq_b
  EXPECT_EQ(Spans(20, 80, 1), 4);        // wq_a
  EXPECT_TRUE(ChooseGemm(20, 4, 1, 1, Epilogue::kStore).deep);
  EXPECT_TRUE(ChooseGemm(20, 4, 1, 256, Epilogue::kStore).deep);
  EXPECT_FALSE(ChooseGemm(20, 4, 1, 8192, Epilogue::kStore).deep);
  EXPECT_EQ(ChooseGemm(80, 1, 1, 8192, Epilogue::kStore).tokens, 256);
}

}  // namespace
}  // namespace deepinfer::backend::cuda
