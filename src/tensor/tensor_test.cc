// SPDX-License-Identifier: Apache-2.0
// Properties: types have the spelling and size that safetensors gives them; element counts never overflow unnoticed.
#include <gtest/gtest.h>

#include <limits>

#include "tensor/tensor_view.h"

namespace deepinfer {
namespace {

TEST(DType, SpellingsReadBack) {
  for (int i = 0; i <= static_cast<int>(DType::kF64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(ParseDType(DTypeName(dtype)), dtype);
  }
  EXPECT_EQ(DTypeName(DType::kF8E4M3), "F8_E4M3");
  EXPECT_EQ(DTypeSize(DType::kF8E8M0), 1u);
  EXPECT_EQ(DTypeSize(DType::kBF16), 2u);
  EXPECT_EQ(DTypeSize(DType::kF32), 4u);
  EXPECT_EQ(DTypeSize(DType::kI64), 8u);
  EXPECT_EQ(ParseDType("F3"), std::nullopt);
  EXPECT_EQ(ParseDType("bf16"), std::nullopt);
  EXPECT_EQ(ParseDType(""), std::nullopt);
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape().NumElements(), 1);
  EXPECT_EQ(Shape({3, 4}).NumElements(), 12);
  EXPECT_EQ(Shape({0, 5}).NumElements(), 0);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Shape({kMax}).NumElements(), kMax);
  EXPECT_EQ(Shape({kMax, 2}).NumElements(), std::nullopt);
  EXPECT_EQ(Shape({int64_t{1} << 32, int64_t{1} << 32}).NumElements(), std::nullopt);
  EXPECT_EQ(Shape({kMax, kMax, 0}).NumElements(), 0);
}

TEST(Shape, ComparesAndPrints) {
  EXPECT_EQ(Shape({512, 5120}).ToString(), "[512, 5120]");
  EXPECT_EQ(Shape().ToString(), "[]");
  EXPECT_NE(Shape({2}), Shape({2, 0}));
  EXPECT_NE(Shape(), Shape({1}));
  EXPECT_EQ(Shape({2, 3}), Shape({2, 3}));
}

TEST(TensorView, GivesTypedElements) {
  const float values[] = {1, 2, 3, 4, 5, 6};
  const TensorView view = {DType::kF32, Shape({2, 3}), reinterpret_cast<const std::byte*>(values)};
  EXPECT_EQ(view.size_bytes(), 24u);
  EXPECT_EQ(view.As<float>()[5], 6);
}

TEST(TensorViewDeathTest, RefusesTheWrongType) {
  const float value = 1;
  const TensorView view = {DType::kF32, Shape({1}), reinterpret_cast<const std::byte*>(&value)};
  EXPECT_DEATH((void)view.As<int32_t>(), "HoldsDType");
}

}  // namespace
}  // namespace deepinfer
