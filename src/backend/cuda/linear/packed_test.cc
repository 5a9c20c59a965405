// SPDX-License-Identifier: Apache-2.0
// Property: the places of a chunk's elements are a permutation: every byte (nibble) of the code area belongs to exactly
// one element, every scale byte that a kernel reads to exactly one block.
#include "backend/cuda/linear/packed.h"

#include <gtest/gtest.h>

#include <set>

namespace deepinfer::backend::cuda {
namespace {

template <typename Offset>
std::set<int> Offsets(const Offset& offset, int row_step, int col_step) {
  std::set<int> all;
  for (int row = 0; row < kTileRows; row += row_step) {
    for (int col = 0; col < kChunkCols; col += col_step) all.insert(offset(row, col));
  }
  return all;
}

TEST(Packed, Bf16IsAPermutation) {
  const auto all = Offsets(Bf16Offset, 1, 1);
  ASSERT_EQ(all.size(), 4096u);
  EXPECT_EQ(*all.begin(), 0);
  EXPECT_EQ(*all.rbegin(), 8190);
  for (const int offset : all) EXPECT_EQ(offset % 2, 0);
}

TEST(Packed, Fp8IsAPermutation) {
  const auto all = Offsets(Fp8Offset, 1, 1);
  ASSERT_EQ(all.size(), 4096u);
  EXPECT_EQ(*all.begin(), 0);
  EXPECT_EQ(*all.rbegin(), 4095);
  EXPECT_EQ(Offsets(Fp8ScaleOffset, 32, 32), (std::set<int>{4096, 4097, 4098, 4099}));
}

TEST(Packed, Fp4IsAPermutation) {
  const auto all = Offsets(Fp4Nibble, 1, 1);
  ASSERT_EQ(all.size(), 4096u);
  EXPECT_EQ(*all.begin(), 0);
  EXPECT_EQ(*all.rbegin(), 4095);
  const auto scales = Offsets(Fp4ScaleOffset, 1, 32);
  ASSERT_EQ(scales.size(), 128u);
  EXPECT_EQ(*scales.begin(), 2048);
  EXPECT_EQ(*scales.rbegin(), ChunkBytes(WeightFormat::kFp4Row32) - 1);
}

TEST(Packed, ChunksSuitBulkCopies) {
  for (const auto format : {WeightFormat::kBf16, WeightFormat::kFp8Tile32, WeightFormat::kFp4Row32}) {
    EXPECT_EQ(ChunkBytes(format) % 16, 0);
  }
}

}  // namespace
}  // namespace deepinfer::backend::cuda
