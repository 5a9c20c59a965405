// SPDX-License-Identifier: Apache-2.0
// Property: the places of a chunk's elements are a permutation: every byte (nibble) of the code area belongs to exactly
// one element, every scale byte that a kernel reads to exactly one block.
#include "backend/cuda/linear/packed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "numeric/formats.h"

namespace deepinfer::backend::cuda {
namespace {

template <typename Offset>
std::set<int> Offsets(const Offset& offset, int row_step, int col_step, int cols = kChunkCols) {
  std::set<int> all;
  for (int row = 0; row < kTileRows; row += row_step) {
    for (int col = 0; col < cols; col += col_step) all.insert(offset(row, col));
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
std::set<int> Bits(const BitOf& bit_of, int bits, int cols = kChunkCols) {
  std::set<int> all;
  for (int bit = 0; bit < bits; ++bit) all.merge(Offsets([&](int row, int col) { return bit_of(row, col, bit); }, 1, 1, cols));
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

TEST(Packed, AlignedFp8IsAPermutation) {
  const auto all = Offsets(Fp8AlignedOffset, 1, 1, kAlignedChunkCols);
  ASSERT_EQ(all.size(), 8192u);
  EXPECT_EQ(*all.begin(), 0);
  EXPECT_EQ(*all.rbegin(), 8191);
}

TEST(Packed, AlignedFp4IsAPermutation) {
  const auto all = Bits(Fp4AlignedBit, 4, kAlignedChunkCols);
  ASSERT_EQ(all.size(), 8192u * 4);
  EXPECT_EQ(*all.begin(), 0);
  EXPECT_EQ(*all.rbegin(), 4096 * 8 - 1);
  const auto scales = Offsets(Fp4AlignedScaleOffset, 1, 32, kAlignedChunkCols);
  ASSERT_EQ(scales.size(), 256u);
  EXPECT_EQ(*scales.begin(), 4096);
  EXPECT_EQ(*scales.rbegin(), ChunkBytes(WeightFormat::kFp4Aligned) - 1);
}

// A step's fragment as the tensor cores have it: register 0 .. 3 of thread 4 g + c, byte by byte.
TEST(Packed, AlignedFragmentsAreThoseOfTheTensorCores) {
  for (int row = 0; row < kTileRows; ++row) {
    for (int col = 0; col < kAlignedChunkCols; ++col) {
      const Place p = AlignedPlace(row, col);
      EXPECT_EQ(p.thread / 32 * 16 + p.thread % 32 / 4 + 8 * (p.reg & 1), row);
      EXPECT_EQ(p.step * 32 + p.thread % 4 * 4 + 16 * (p.reg >> 1) + p.odd, col);
    }
  }
}

// `prmt` with selectors below 8.
uint32_t Select(uint32_t low, uint32_t high, uint32_t selectors) {
  uint32_t bytes = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t at = selectors >> 4 * i & 7;
    bytes |= ((at < 4 ? low : high) >> 8 * (at & 3) & 0xFF) << 8 * i;
  }
  return bytes;
}

TEST(Packed, TablesMakeE4m3OfAlignedFp4) {
  constexpr int kRow = 21, kCol = 37;  // of step 1, thread 4 * 5 + 1 of warp 1
  for (uint32_t s = 0; s <= kFp4ScaleMost; ++s) {
    for (int code = 0; code < 16; ++code) {
      for (int at = 0; at < 8; ++at) {
        const int col = kCol / 4 * 4 + at % 4 + at / 4 * 16;
        uint32_t word = 0;
        for (int bit = 0; bit < 4; ++bit) {
          if (code >> bit & 1) word |= 1u << Fp4AlignedBit(kRow, col, bit) % 32;
        }
        const uint32_t selectors = (word & 0x77777777u) >> (at < 4 ? 0 : 16), signs = (at < 4 ? word : word << 4) & 0x80808080u;
        const uint32_t bytes = Select(Fp4AlignedTable(s, false), Fp4AlignedTable(s, true), selectors) | signs;
        const float value = numeric::E4m3ToFloat(static_cast<uint8_t>(bytes >> 8 * (at % 4)));
        EXPECT_EQ(value, std::ldexp(numeric::E2m1ToFloat(static_cast<uint8_t>(code)), static_cast<int>(s) - 5))
            << "code " << code << ", scale " << s << ", place " << at;
        EXPECT_EQ(bytes & ~(0xFFu << 8 * (at % 4)), 0u);
      }
    }
  }
}

TEST(Packed, ChunksSuitBulkCopies) {
  for (const auto format : {WeightFormat::kBf16, WeightFormat::kFp8Tile32, WeightFormat::kFp4Row32, WeightFormat::kFp8Aligned,
                            WeightFormat::kFp4Aligned}) {
    EXPECT_EQ(ChunkBytes(format) % 16, 0);
    EXPECT_EQ(TileBytes(format, 384) % 16, 0);
  }
}

// Which matrices are bound for FP8 products is a matter of shape, format and activations.
TEST(Packed, FormsForFp8ProductsDependOnShapeFormatAndActivations) {
  const auto bound = [](WeightFormat format, int64_t cols, Activations activations) {
    return BoundFormat({.format = format, .rows = 64, .cols = cols}, activations, 1024);
  };
  EXPECT_EQ(bound(WeightFormat::kFp8Tile32, 1024, Activations::kFp8), WeightFormat::kFp8Aligned);
  EXPECT_EQ(bound(WeightFormat::kFp4Row32, kAlignedColsMax, Activations::kFp8), WeightFormat::kFp4Aligned);
  for (const int64_t cols : {int64_t{256}, int64_t{896}, int64_t{1056}, int64_t{1088}, kAlignedColsMax + 128}) {
    EXPECT_EQ(bound(WeightFormat::kFp8Tile32, cols, Activations::kFp8), WeightFormat::kFp8Tile32) << cols;
    EXPECT_EQ(bound(WeightFormat::kFp4Row32, cols, Activations::kFp8), WeightFormat::kFp4Row32) << cols;
  }
  for (const Activations other : {Activations::kFp32, Activations::kBf16}) {
    EXPECT_EQ(bound(WeightFormat::kFp8Tile32, 1024, other), WeightFormat::kFp8Tile32);
  }
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kFp8Row32}) {
    EXPECT_EQ(bound(format, 1024, Activations::kFp8), format);
  }
}

}  // namespace
}  // namespace deepinfer::backend::cuda
