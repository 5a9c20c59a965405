// SPDX-License-Identifier: Apache-2.0
// Properties: the choice is the best there is (held against every combination), whatever the shape of the cost; requests
// get prefixes within their limits; with the early stop the paper's counterexample does not arise (spec/dspark.md 7.2).
#include "spec/row_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace deepinfer::spec {
namespace {

constexpr int32_t kDrafts = 3;

struct Case {
  std::vector<float> survival;  // [requests, kDrafts]
  std::vector<int32_t> limits;
  std::vector<double> cost;
  RowChoiceInput Input(StopRule stop = StopRule::kBest) const {
    return {.drafts = kDrafts, .survival = survival, .limits = limits, .sure_tokens = static_cast<double>(limits.size()),
            .cost = cost, .stop = stop};
  }
};

Case RandomCase(std::mt19937& random) {
  const auto uniform = [&] { return std::uniform_real_distribution<float>()(random); };
  Case c;
  const size_t requests = 1 + random() % 4;
  for (size_t r = 0; r < requests; ++r) {
    c.limits.push_back(static_cast<int32_t>(random() % (kDrafts + 1)));
    float alive = 1;
    for (int j = 0; j < kDrafts; ++j) {
      const float step = uniform();
      alive *= step < 0.2f ? 1 : step < 0.25f ? 0 : step;  // equal ones and nothing, too
      c.survival.push_back(alive);
    }
  }
  // Smooth, in stairs, or with a cliff.
  const uint32_t shape = random() % 3;
  for (size_t n = 0; n <= requests * kDrafts; ++n) {
    const auto rows = static_cast<double>(requests + n);
    c.cost.push_back(shape == 0 ? 5 + rows : shape == 1 ? 5 + std::ceil(rows / 4) * 4 : rows > 6 ? 60 : 10 + 0.1 * rows);
  }
  if (random() % 4 == 0) c.cost.resize(1 + random() % c.cost.size());
  return c;
}

double Speed(const Case& c, const std::vector<int32_t>& lengths) {
  double tokens = static_cast<double>(lengths.size());
  size_t rows = 0;
  for (size_t r = 0; r < lengths.size(); ++r) {
    for (int32_t j = 0; j < lengths[r]; ++j, ++rows) tokens += c.survival[r * kDrafts + static_cast<size_t>(j)];
  }
  return rows < c.cost.size() ? tokens / c.cost[rows] : 0;
}

double BestSpeed(const Case& c, std::vector<int32_t>* lengths, size_t request = 0) {
  if (request == c.limits.size()) return Speed(c, *lengths);
  double best = 0;
  for (int32_t n = 0; n <= c.limits[request]; ++n) {
    (*lengths)[request] = n;
    best = std::max(best, BestSpeed(c, lengths, request + 1));
  }
  return best;
}

TEST(RowChoice, IsTheBestOfAllCombinations) {
  std::mt19937 random(1);
  RowChooser chooser(4, kDrafts);
  for (int i = 0; i < 5000; ++i) {
    const Case c = RandomCase(random);
    std::vector<int32_t> lengths(c.limits.size()), scratch(c.limits.size());
    const RowChoice choice = chooser.Choose(c.Input(), lengths);
    int32_t rows = 0;
    for (size_t r = 0; r < lengths.size(); ++r) {
      ASSERT_GE(lengths[r], 0);
      ASSERT_LE(lengths[r], c.limits[r]);
      rows += lengths[r];
    }
    ASSERT_EQ(choice.rows, rows);
    ASSERT_NEAR(choice.per_second, Speed(c, lengths), 1e-9);
    ASSERT_NEAR(choice.per_second, BestSpeed(c, &scratch), 1e-9) << "case " << i;
  }
}

TEST(RowChoice, LongWhenRowsAreFreeShortWhenTheyAreNot) {
  RowChooser chooser(8, kDrafts);
  Case c;
  for (int r = 0; r < 8; ++r) {
    c.limits.push_back(kDrafts);
    for (const float a : {0.8f, 0.5f, 0.2f}) c.survival.push_back(a);
  }
  std::vector<int32_t> lengths(8);
  c.cost.assign(25, 1.0);
  chooser.Choose(c.Input(), lengths);
  EXPECT_EQ(lengths, std::vector<int32_t>(8, kDrafts));
  for (size_t n = 0; n < c.cost.size(); ++n) c.cost[n] = 8 + static_cast<double>(n);  // bound by arithmetic
  chooser.Choose(c.Input(), lengths);
  EXPECT_EQ(lengths, std::vector<int32_t>(8, 0));
}

// Appendix A of the paper: one request, 1, 0.5 and 0.45 steps a second with none, one and two drafts. The first
// draft alone does not pay; both would, if the second one's confidence is high, but that is known only after the first was
// drawn. Looking ahead would verify the first draft depending on what it is.
TEST(RowChoice, EarlyStopDoesNotLookAhead) {
  RowChooser chooser(1, kDrafts);
  Case c{.survival = {0.8f, 0.8f * 0.9f, 0}, .limits = {2}, .cost = {1, 1 / 0.5, 1 / 0.45}};
  std::vector<int32_t> lengths(1);
  EXPECT_EQ(chooser.Choose(c.Input(), lengths).rows, 2);
  EXPECT_EQ(chooser.Choose(c.Input(StopRule::kFirstLoss), lengths).rows, 0);
  c.survival[1] = 0;
  EXPECT_EQ(chooser.Choose(c.Input(), lengths).rows, 0);
  EXPECT_EQ(chooser.Choose(c.Input(StopRule::kFirstLoss), lengths).rows, 0);
}

// Whether draft j is taken does not depend on the survivals behind it, nor on those of later places in the order.
TEST(RowChoice, EarlyStopUsesOnlyWhatWasKnownBefore) {
  std::mt19937 random(2);
  RowChooser chooser(4, kDrafts);
  for (int i = 0; i < 2000; ++i) {
    Case c = RandomCase(random);
    std::vector<int32_t> before(c.limits.size()), after(c.limits.size());
    chooser.Choose(c.Input(StopRule::kFirstLoss), before);
    const size_t r = random() % c.limits.size();
    const auto from = static_cast<size_t>(random() % kDrafts);  // change what follows draft `from`
    for (size_t j = from + 1; j < kDrafts; ++j) {
      c.survival[r * kDrafts + j] = c.survival[r * kDrafts + j - 1] * std::uniform_real_distribution<float>()(random);
    }
    chooser.Choose(c.Input(StopRule::kFirstLoss), after);
    const auto known = static_cast<int32_t>(from) + 1;
    ASSERT_EQ(std::min(before[r], known), std::min(after[r], known)) << "case " << i;
  }
}

TEST(RowChoice, NothingToChoose) {
  RowChooser chooser(2, kDrafts);
  const std::vector<double> cost = {2};
  const RowChoice choice = chooser.Choose({.drafts = kDrafts, .survival = {}, .limits = {}, .sure_tokens = 4, .cost = cost}, {});
  EXPECT_EQ(choice.rows, 0);
  EXPECT_EQ(choice.per_second, 2);
}

}  // namespace
}  // namespace deepinfer::spec
