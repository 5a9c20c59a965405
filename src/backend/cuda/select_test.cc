// SPDX-License-Identifier: Apache-2.0
// Property: only the devices, drivers and weights that the kernels are built for are accepted, and a refusal names what was found.
#include "backend/cuda/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/load/loader.h"
#include "backend/cuda/weights.h"

namespace deepinfer::backend::cuda {
namespace {

using ::testing::HasSubstr;

TEST(ChooseVariant, AcceptsHopper) {
  const auto variant = ChooseVariant({"NVIDIA H200", 9, 0, 13000});
  ASSERT_TRUE(variant.ok());
  EXPECT_EQ(*variant, "sm90a");
}

TEST(ChooseVariant, RefusesOtherGpusByName) {
  for (const auto& [major, minor] : {std::pair{8, 0}, {8, 9}, {9, 1}, {10, 0}, {12, 0}}) {
    const auto variant = ChooseVariant({"Some GPU", major, minor, 13010});
    ASSERT_FALSE(variant.ok()) << major << "." << minor;
    EXPECT_EQ(variant.status().code(), Code::kUnimplemented);
    EXPECT_THAT(variant.status().message(), HasSubstr("Some GPU"));
  }
}

// Most ops are compiled for sm_100a; as long as some are not, such a card is refused, and the message says which.
TEST(ChooseVariant, RefusesBlackwellForTheOpsThatAreMissing) {
  const auto variant = ChooseVariant({"NVIDIA B200", 10, 0, 13000});
  ASSERT_FALSE(variant.ok());
  EXPECT_EQ(variant.status().code(), Code::kUnimplemented);
  for (const char* part : {"NVIDIA B200", "10.0", "sm_100a", "matrix products and attention"}) {
    EXPECT_THAT(variant.status().message(), HasSubstr(part));
  }
}

TEST(CreateCuda, SaysThatThereIsNoDriver) {
  const auto made = CreateCuda({});
  if (made.ok()) GTEST_SKIP() << "there is a card";
  EXPECT_THAT(made.status().message(), HasSubstr("CUDA: "));
  EXPECT_TRUE(made.status().code() == Code::kUnavailable || made.status().code() == Code::kUnimplemented);
}

// 2^50 bytes: no machine has them. The weights are not looked at before there is room.
TEST(Weights, SayThatATableCannotBePinned) {
  Context context(0);
  Weights weights(context, /*tables_on_host=*/true);
  const auto bound = weights.BindTable({.format = WeightFormat::kFp8Row32, .rows = int64_t{1} << 40, .cols = 1 << 10});
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.status().code(), Code::kResourceExhausted);
  for (const char* part : {"1125899906842624 bytes", "cannot be pinned", "--engram-tables=device"}) {
    EXPECT_THAT(bound.status().message(), HasSubstr(part));
  }
}

TEST(Weights, SayWhichScalesAreTooLarge) {
  for (const auto& [format, largest] : {std::pair{WeightFormat::kFp4Row32, 128}, {WeightFormat::kFp8Tile32, 134}}) {
    const std::vector<uint8_t> codes(32 * 32);
    std::vector<uint8_t> scales(32, static_cast<uint8_t>(largest));
    const Matrix rows{.format = format, .rows = 32, .cols = 32, .data = codes.data(), .scale = scales.data()};
    EXPECT_TRUE(CheckCodes(rows, format).ok());
    scales[0] = static_cast<uint8_t>(largest + 1);
    const Status status = CheckCodes(rows, format);
    EXPECT_EQ(status.code(), Code::kUnimplemented);
    EXPECT_THAT(status.message(), HasSubstr("code " + std::to_string(largest + 1)));
    EXPECT_TRUE(CheckCodes(rows, BoundFormat({.format = format, .cols = 1024}, Activations::kFp8, 1024)).ok());
  }
}

TEST(Weights, SayThatThereIsANanAmongThem) {
  std::vector<uint8_t> codes(32 * 32, 0x7E);
  const std::vector<uint8_t> scales(32, 127);
  const Matrix rows{.format = WeightFormat::kFp8Row32, .rows = 32, .cols = 32, .data = codes.data(), .scale = scales.data()};
  EXPECT_TRUE(CheckCodes(rows, rows.format).ok());
  codes[500] = 0xFF;
  const Status status = CheckCodes(rows, rows.format);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("1 NaN codes"));
}

TEST(ChooseVariant, RefusesOldDrivers) {
  const auto variant = ChooseVariant({"NVIDIA H200", 9, 0, 12080});
  ASSERT_FALSE(variant.ok());
  EXPECT_THAT(variant.status().message(), HasSubstr("CUDA 12.8"));
}

}  // namespace
}  // namespace deepinfer::backend::cuda
