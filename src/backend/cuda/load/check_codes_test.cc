// SPDX-License-Identifier: Apache-2.0
// Property: of block scales each form takes what its kernels decode exactly and no other, and no FP8 code is NaN.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "backend/cuda/linear/packed.h"
#include "backend/cuda/load/loader.h"

namespace deepinfer::backend::cuda {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRows = 64, kCols = 128;

// Of a matrix of ones with this scale in one block, bound as `bound`.
Status Check(WeightFormat format, WeightFormat bound, int scale, uint8_t code = 0x38) {
  const bool fp4 = format == WeightFormat::kFp4Row32;
  std::vector<uint8_t> data(static_cast<size_t>(kRows * kCols / (fp4 ? 2 : 1)), fp4 ? uint8_t{0x22} : uint8_t{0x38});
  data.back() = fp4 ? data.back() : code;
  std::vector<uint8_t> scales(static_cast<size_t>((fp4 ? kRows : kRows / 32) * (kCols / 32)), 127);
  scales[5] = static_cast<uint8_t>(scale);
  return CheckCodes({.format = format, .rows = kRows, .cols = kCols, .data = data.data(), .scale = scales.data()}, bound);
}

TEST(CheckCodes, TakesScalesThatAreDecodedExactly) {
  const std::pair<WeightFormat, WeightFormat> forms[] = {{WeightFormat::kFp8Tile32, WeightFormat::kFp8Aligned},
                                                         {WeightFormat::kFp4Row32, WeightFormat::kFp4Aligned}};
  for (const auto& [format, aligned] : forms) {
    const int most = ScaleCodeMax(format);
    EXPECT_TRUE(Check(format, format, 0).ok());
    EXPECT_TRUE(Check(format, format, most).ok());
    EXPECT_EQ(Check(format, format, most + 1).code(), Code::kUnimplemented);
    EXPECT_TRUE(Check(format, aligned, 0).ok());
    EXPECT_TRUE(Check(format, aligned, 254).ok());
    const Status nan = Check(format, aligned, 255);  // a NaN
    EXPECT_EQ(nan.code(), Code::kUnimplemented);
    EXPECT_THAT(nan.message(), HasSubstr("e8m0 code 255"));
  }
  EXPECT_TRUE(Check(WeightFormat::kFp8Row32, WeightFormat::kFp8Row32, 127).ok());
}

TEST(CheckCodes, RefusesNanAmongFp8Codes) {
  for (const WeightFormat bound : {WeightFormat::kFp8Tile32, WeightFormat::kFp8Aligned}) {
    for (const uint8_t nan : {uint8_t{0x7F}, uint8_t{0xFF}}) {
      const Status status = Check(WeightFormat::kFp8Tile32, bound, 127, nan);
      EXPECT_EQ(status.code(), Code::kDataLoss);
      EXPECT_THAT(status.message(), HasSubstr("1 NaN codes"));
    }
    EXPECT_TRUE(Check(WeightFormat::kFp8Tile32, bound, 127, 0x7E).ok());
  }
}

}  // namespace
}  // namespace deepinfer::backend::cuda
