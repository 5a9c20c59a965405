// SPDX-License-Identifier: Apache-2.0
// Property: sizes and token counts of images equal those of an independent implementation. Method: all 860 records of
// tests/golden/recipe/images.jsonl, and bounds on random sizes.
#include "recipe/image_size.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>

#include "core/json.h"

namespace deepinfer::recipe {
namespace {

ImageSize SizeAt(const Json& record, const char* key) {
  const Json* const size = record.Find(key);
  return {*size->Items()[0].ToInt64(), *size->Items()[1].ToInt64()};
}

ImageDetail DetailOf(const std::string& detail) {
  return detail == "low" ? ImageDetail::kLow : detail == "original" ? ImageDetail::kOriginal : ImageDetail::kHigh;
}

void CheckPreprocess(const Json& record, const std::string& line) {
  const ImageLimits limits = {.side_max = *record.Find("max_dimension")->ToInt64(),
                              .low_detail_side_max = *record.Find("low_detail_max_dimension")->ToInt64()};
  const auto plan = PlanImage(SizeAt(record, "source"), DetailOf(record.Find("detail")->AsString()), limits);
  ASSERT_EQ(plan.ok(), record.Find("error") == nullptr) << line;
  if (!plan.ok()) return;
  const ImageSize size = SizeAt(record, "size");
  EXPECT_TRUE(plan->size == size) << line << " got " << plan->size.width << " x " << plan->size.height;
  EXPECT_EQ(plan->tokens, *record.Find("tokens")->ToInt64()) << line;
}

TEST(ImageSize, EqualsTheVectors) {
  std::ifstream file(DI_SOURCE_DIR "/tests/golden/recipe/images.jsonl");
  int num_records = 0;
  for (std::string line; std::getline(file, line); ++num_records) {
    const auto record = ParseJson(line);
    ASSERT_TRUE(record.ok()) << line;
    if (record->Find("kind")->AsString() == "preprocess") {
      CheckPreprocess(*record, line);
    } else {
      EXPECT_EQ(CountImageTokens(SizeAt(*record, "size")), *record->Find("tokens")->ToInt64()) << line;
    }
  }
  EXPECT_EQ(num_records, 860);
}

TEST(ImageSize, NeverMoreTokensThanTheBudgetAndStable) {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    const ImageSize size = {1 + static_cast<int64_t>(random() % 8192), 1 + static_cast<int64_t>(random() % 8192)};
    const auto plan = PlanImage(size, ImageDetail::kHigh);
    ASSERT_TRUE(plan.ok());
    EXPECT_LE(plan->tokens, 1024) << size.width << " x " << size.height;
    EXPECT_EQ(plan->size.width % 14, 0);
    EXPECT_EQ(plan->size.height % 14, 0);
    EXPECT_LE(std::max(plan->size.width, plan->size.height), 16'383);
  }
}

TEST(ImageSize, RefusesEmptyAndTooLong) {
  EXPECT_FALSE(PlanImage({0, 5}, ImageDetail::kHigh).ok());
  EXPECT_FALSE(PlanImage({8193, 5}, ImageDetail::kHigh).ok());
  EXPECT_FALSE(PlanImage({4097, 5}, ImageDetail::kHigh, {.side_max = ImageSideMax(15)}).ok());
}

}  // namespace
}  // namespace deepinfer::recipe
