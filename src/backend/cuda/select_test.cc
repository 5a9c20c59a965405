// SPDX-License-Identifier: Apache-2.0
// Property: only the devices and drivers that the kernels are built for are accepted, and a refusal names what was found.
#include "backend/cuda/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(ChooseVariant, RefusesOldDrivers) {
  const auto variant = ChooseVariant({"NVIDIA H200", 9, 0, 12080});
  ASSERT_FALSE(variant.ok());
  EXPECT_THAT(variant.status().message(), HasSubstr("CUDA 12.8"));
}

}  // namespace
}  // namespace deepinfer::backend::cuda
