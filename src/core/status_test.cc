// SPDX-License-Identifier: Apache-2.0
// Property: errors travel unchanged through Result and the two macros, and In() says where they happened.
#include "core/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace deepinfer {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) return Error(Code::kInvalidArgument, "{} is odd", value);
  return value / 2;
}

Result<int> Quarter(int value) {
  DI_ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

Status CheckEven(int value) {
  DI_RETURN_IF_ERROR(Half(value).status());
  return Status();
}

TEST(Status, TravelsThroughMacros) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
  EXPECT_EQ(Quarter(6).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(CheckEven(2).ok());
  EXPECT_EQ(CheckEven(1).In("config.json").message(), "config.json: 1 is odd");
  EXPECT_EQ(CodeName(Code::kDataLoss), "DATA_LOSS");
}

TEST(Status, ResultMovesOut) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  std::unique_ptr<int> value = *std::move(result);
  EXPECT_EQ(*value, 7);
}

TEST(StatusDeathTest, ReadingAnErrorAsAValueEndsTheProcess) {
  EXPECT_DEATH({ (void)*Half(3); }, "check failed");
}

}  // namespace
}  // namespace deepinfer
