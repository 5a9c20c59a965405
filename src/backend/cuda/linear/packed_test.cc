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

template <typename BitOf>
std::set<int> Bits(const BitOf& bit_of, int bits) {
  std::set<int> all;
  for (int bit = 0; bit < bits; ++bit) all.merge(Offsets([&](int row, int col) { return bit_of(row, col, bit); }, 1, 1));
  return all;
}

TEST(Packed, Fp8IsAPermutation) {
  const auto all = Bits(Fp8Bit, 8);
  ASSERT_EQ(all.size(), 4096u * 8);
  EXPECT_EQ(*all.begin(), 0);
  EXPECT_EQ(*all.rbegin(), 4096 * 8 - 1);
  EXPECT_EQ(Offsets(Fp8ScaleOffset, 32, 32), (std::set<int>{4096, 4097, 4098, 4099}));
}

TEST(Packed, Fp4IsAPermutation) {
  const auto all = Bits(Fp4Bit, 4);
  ASSERT_EQ(all.size(), 4096u * 4);
  EXPECT_EQ(*all.begin(), 0);
  EXPECT_EQ(*all.rbegin(), 2048 * 8 - 1);
  const auto scales = Offsets(Fp4ScaleOffset, 1, 32);
  ASSERT_EQ(scales.size(), 128u);
  EXPECT_EQ(*scales.begin(), 2048);
  EXPECT_EQ(*scales.rbegin(), ChunkBytes(WeightFormat::kFp4Row32) - 1);
}

// The masks and turns of decode_sm90.cuh, on the host.
uint32_t Turn(uint32_t word, int right) { return right == 0 ? word : word >> right | word << (32 - right); }

TEST(Packed, TurnsAndMasksBringFp4CodesToTheirPlaces) {
  constexpr int kRow = 21, kCols[2] = {2, 3};  // thread of row 21: parity 0
  for (int i = 0; i < 8; ++i) {
    for (int odd = 0; odd < 2; ++odd) {
      for (int bit = 0; bit < 4; ++bit) {
        const int col = i / 2 * kStepCols + i % 2 * 8 + kCols[odd];
        const Place place = FragmentPlace(kRow, col);
        ASSERT_EQ(place.step * 2 + place.reg / 2, i);
        const int at = Fp4Bit(kRow, col, bit) - (place.reg % 2 * 1024 + place.thread * 8) * 8;
        ASSERT_GE(at, 0);
        ASSERT_LT(at, 64);
        const uint32_t first = at < 32 ? 1u << at : 0, second = at < 32 ? 0 : 1u << (at - 32);
        const uint32_t source = i == 4 || i == 7 ? (first & kFp4FirstMask) | (second & ~kFp4FirstMask)
                                                 : i == 0 || i == 2 || i == 5 ? first : second;
        const uint32_t turned = i < 5 ? Turn(source, 2 * i) : source << (16 - 2 * i);
        EXPECT_EQ(turned & 0x81C081C0u, 1u << (16 * odd + (bit < 3 ? 6 + bit : 15))) << "register " << i << ", bit " << bit;
      }
    }
  }
}

TEST(Packed, ChunksSuitBulkCopies) {
  for (const auto format : {WeightFormat::kBf16, WeightFormat::kFp8Tile32, WeightFormat::kFp4Row32}) {
    EXPECT_EQ(ChunkBytes(format) % 16, 0);
  }
}

}  // namespace
}  // namespace deepinfer::backend::cuda
