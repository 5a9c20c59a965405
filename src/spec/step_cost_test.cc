// SPDX-License-Identifier: Apache-2.0
// Property: the times of steps are learnt from noisy steps, for rows seen and unseen, with prompts and contexts, and follow
// the machine when it changes.
#include "spec/step_cost.h"

#include <gtest/gtest.h>

#include <random>

namespace deepinfer::spec {
namespace {

TEST(StepCost, BeforeAnythingIsKnown) {
  const StepCost cost;
  EXPECT_GT(cost.Seconds({.rows = 1}), 0);
  EXPECT_GT(cost.Seconds({.rows = 100}), cost.Seconds({.rows = 1}));
  EXPECT_GT(cost.Seconds({}), 0);
}

TEST(StepCost, OneStepTellsOfOthers) {
  StepCost cost;
  cost.Observe({.rows = 4}, 4e-3);
  EXPECT_NEAR(cost.Seconds({.rows = 4}), 4e-3, 1e-9);
  EXPECT_GT(cost.Seconds({.rows = 5}), 4e-3);
  EXPECT_LT(cost.Seconds({.rows = 8}), 8e-3);
}

TEST(StepCost, LinesBetweenAndBeyond) {
  StepCost cost;
  const auto truth = [](int rows) { return 1e-3 + 0.5e-3 * rows; };
  for (const int rows : {1, 6, 64}) cost.Observe({.rows = rows}, truth(rows));
  for (const int rows : {1, 2, 3, 5, 6, 7, 20, 64, 65, 200}) EXPECT_NEAR(cost.Seconds({.rows = rows}), truth(rows), 1e-9) << rows;
  std::vector<double> table(200);
  cost.Table({.rows = 1}, 0, table);
  for (size_t n = 0; n < table.size(); ++n) EXPECT_NEAR(table[n], truth(1 + static_cast<int>(n)), 1e-9) << n;
}

// A step that was disturbed, once in five, does not count; more rows never seem to take less time.
TEST(StepCost, DisturbedSteps) {
  StepCost cost;
  std::mt19937 random(1);
  std::normal_distribution<double> noise(1, 0.03);
  const auto truth = [](int rows) { return 2e-3 + 0.1e-3 * rows; };
  for (int i = 0; i < 300; ++i) {
    const int rows = 1 + i % 12;
    cost.Observe({.rows = rows}, truth(rows) * noise(random) * (random() % 5 == 0 ? 8 : 1));
  }
  std::vector<double> table(12);
  cost.Table({.rows = 1}, 0, table);
  for (size_t n = 0; n < table.size(); ++n) {
    EXPECT_NEAR(table[n] / truth(1 + static_cast<int>(n)), 0.98, 0.06) << n;
    if (n > 0) {
      EXPECT_GE(table[n], table[n - 1]);
    }
  }
}

TEST(StepCost, PromptsAndContextsHavePrices) {
  StepCost cost;
  std::mt19937 random(1);
  const auto truth = [](const StepShape& s) { return 1e-3 + 0.5e-3 * s.rows + 0.2e-3 * s.prompt_rows + 1e-7 * s.context; };
  for (int i = 0; i < 3000; ++i) {
    const StepShape shape{.rows = 1 + static_cast<int>(random() % 4),
                          .prompt_rows = i % 10 == 9 ? 100 : 0,
                          .context = static_cast<double>(random() % 8000)};
    cost.Observe(shape, truth(shape));
  }
  for (const StepShape& shape : {StepShape{.rows = 2, .context = 100}, StepShape{.rows = 2, .context = 7000},
                                 StepShape{.rows = 3, .prompt_rows = 200, .context = 4000}}) {
    EXPECT_NEAR(cost.Seconds(shape) / truth(shape), 1, 0.1);
  }
}

TEST(StepCost, FollowsTheMachine) {
  StepCost cost;
  for (int i = 0; i < 100; ++i) cost.Observe({.rows = 1}, 1e-3);
  for (int i = 0; i < 15; ++i) cost.Observe({.rows = 1}, 3e-3);
  EXPECT_NEAR(cost.Seconds({.rows = 1}), 3e-3, 1e-9);
}

}  // namespace
}  // namespace deepinfer::spec
