// SPDX-License-Identifier: Apache-2.0
// Property: on simulated machines the schedule comes close to the better of no drafts and all drafts, whatever the machine
// and the text, and beats both where confidence tells good drafts from bad ones.
#include "spec/draft_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "spec/rejection.h"

namespace deepinfer::spec {
namespace {

constexpr int32_t kBlock = 5;

struct Machine {
  double fixed = 1;      // seconds of a step without rows
  double row = 1;        // of a row
  double block = 0.1;    // of a block
  double block_row = 0;  // for each request and draft of it
};

enum class Policy { kNone, kAll, kSchedule };

// Tokens/s of `requests` streams over `steps` steps. Drafts are right with the probability that their confidence tells;
// `confidence` draws its logit.
double Simulate(const Machine& machine, Policy policy, int32_t requests, const std::function<float(std::mt19937&)>& confidence,
                int steps) {
  DraftSchedule schedule(requests, kBlock);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  const auto n = static_cast<size_t>(requests);
  std::vector<std::vector<float>> drafts(n);
  std::vector<VerifyRequest> verify(n);
  double tokens = 0, seconds = 0;
  for (int step = 0; step < steps; ++step) {
    for (size_t r = 0; r < n; ++r) {
      verify[r] = {.confidence = drafts[r], .bucket = 2, .limit = static_cast<int32_t>(drafts[r].size()), .fixed = policy == Policy::kAll};
    }
    StepShape shape{.rows = requests};
    schedule.Verify(verify, shape, requests);
    for (size_t r = 0; r < n; ++r) {
      int32_t accepted = 0;
      while (accepted < verify[r].drafts &&
             uniform(random) < 1 / (1 + std::exp(-drafts[r][static_cast<size_t>(accepted)]))) {
        ++accepted;
      }
      shape.rows += verify[r].drafts;
      tokens += 1 + accepted;
      if (verify[r].drafts > 0) schedule.Observe(verify[r], accepted, false);
    }
    const double time = machine.fixed + machine.row * shape.rows;
    // The first steps of a process are slow, and now and then something else gets in the way.
    const bool disturbed = step < 3 || step % 97 < 5;
    schedule.ObserveStep(shape, disturbed ? 6 * time : time);
    seconds += time;
    int32_t depth = policy == Policy::kAll ? kBlock : 0, blocks = requests;
    if (policy == Policy::kSchedule) {
      depth = schedule.Depth(requests, {.rows = requests});
      blocks = schedule.Participants();
    }
    for (size_t r = 0; r < n; ++r) {
      drafts[r].clear();
      if (depth == 0 || static_cast<int32_t>(r) >= blocks) continue;
      for (int j = 0; j < depth; ++j) drafts[r].push_back(confidence(random));
      schedule.NoteConfidence(2, drafts[r]);
    }
    if (depth == 0) continue;
    const double block = machine.block + machine.block_row * blocks * depth;
    schedule.ObserveBlock(blocks, depth, block);
    seconds += block;
  }
  return tokens / seconds;
}

float Coin(std::mt19937& random) { return std::uniform_real_distribution<float>(0, 1)(random) < 0.5F ? 4.0F : -4.0F; }
float Even(std::mt19937&) { return 0.0F; }
float Good(std::mt19937&) { return 2.5F; }

TEST(DraftSchedule, NeverFarBelowTheBetterOfNoneAndAll) {
  const Machine machines[] = {
      {.fixed = 0.5, .row = 0.5, .block = 0.5, .block_row = 0.1},    // bound by arithmetic: a row costs as much as it brings
      {.fixed = 10, .row = 0.01, .block = 0.5, .block_row = 0.001},  // bound by latency
      {.fixed = 5, .row = 0.3, .block = 1, .block_row = 0.02},       // by either, as the load is
  };
  for (const Machine& machine : machines) {
    for (const auto& text : {Coin, Even, Good}) {
      for (const int32_t requests : {1, 4, 16, 64}) {
        const double none = Simulate(machine, Policy::kNone, requests, text, 4000);
        const double all = Simulate(machine, Policy::kAll, requests, text, 4000);
        const double scheduled = Simulate(machine, Policy::kSchedule, requests, text, 4000);
        EXPECT_GT(scheduled, 0.96 * std::max(none, all)) << machine.fixed << " " << requests << ": " << none << " " << all;
      }
    }
  }
}

TEST(DraftSchedule, ConfidencePicksTheGoodOnes) {
  const Machine machine{.fixed = 1, .row = 0.1, .block = 0.05, .block_row = 0.001};
  const double none = Simulate(machine, Policy::kNone, 16, Coin, 4000);
  const double all = Simulate(machine, Policy::kAll, 16, Coin, 4000);
  EXPECT_GT(Simulate(machine, Policy::kSchedule, 16, Coin, 4000), 1.1 * std::max(none, all));
}

TEST(DraftSchedule, FixedRequestsGetAllTheirDrafts) {
  DraftSchedule schedule(4, kBlock);
  const std::vector<float> hopeless(kBlock, -8.0F);
  // Rows are dear, and it is known.
  for (int rows = 1; rows < 12; ++rows) {
    for (int i = 0; i < 20; ++i) schedule.ObserveStep({.rows = rows}, rows);
  }
  VerifyRequest requests[] = {{.confidence = hopeless, .limit = 5, .fixed = true},
                              {.confidence = hopeless, .limit = 5},
                              {.confidence = std::span(hopeless).first(2), .limit = 2, .fixed = true},
                              {.limit = 0}};
  schedule.Verify(requests, {.rows = 4}, 4);
  EXPECT_EQ(requests[0].drafts, 5);
  EXPECT_EQ(requests[1].drafts, 0);
  EXPECT_EQ(requests[2].drafts, 2);
  EXPECT_EQ(requests[3].drafts, 0);
}

// Appendix A of the paper, through the schedule: steps of one, two and three rows take 1, 1 / 0.5 and 1 / 0.45 s. Draft 0 is
// drawn from (0.5, 0.5) and judged by (0.7, 0.3); whether a second one looks good hangs on which it is. Who looks for the best
// number of rows verifies draft 0 where it is token 0 and drops it where it is token 1, and so makes (0.85, 0.15) of
// (0.7, 0.3). Who stops at the first loss does not.
double ShareOfToken0(StopRule stop) {
  DraftSchedule schedule(1, 2, stop);
  const double seconds[] = {1, 1 / 0.5, 1 / 0.45};
  for (int rows = 1; rows <= 3; ++rows) {
    for (int i = 0; i < 20; ++i) schedule.ObserveStep({.rows = rows}, seconds[rows - 1]);
  }
  const auto logit = [](double p) { return static_cast<float>(std::log(p / (1 - p))); };
  const std::vector<float> p = {0.7F, 0.3F}, q = {0.5F, 0.5F, 0.5F, 0.5F};
  const std::vector<double> weights = {0.5, 0.5};
  constexpr int kAnswers = 20000;
  int zeros = 0;
  for (uint64_t seed = 0; seed < kAnswers; ++seed) {
    const int32_t first = DrawFrom(weights, {.seed = seed, .stream = sampling::NoiseStream::kDraft});
    const std::vector<float> confidence = {logit(0.8), logit(first == 0 ? 0.9 : 1e-6)};
    VerifyRequest request{.confidence = confidence, .bucket = 2, .limit = 2};
    schedule.Verify(std::span(&request, 1), {.rows = 1}, 1);
    const std::vector<int32_t> drafts(static_cast<size_t>(request.drafts), first);
    const Verdict verdict = VerifyByToken({.drafts = drafts,
                                           .draft = std::span(q).first(2 * drafts.size()),
                                           .target = [&](size_t) { return std::span<const float>(p); },
                                           .seed = seed});
    zeros += (verdict.accepted > 0 ? first : verdict.token) == 0;
  }
  return zeros / static_cast<double>(kAnswers);
}

TEST(DraftSchedule, LookingAheadWouldBreakIt) {
  EXPECT_NEAR(ShareOfToken0(StopRule::kFirstLoss), 0.7, 0.015);  // five standard deviations
  EXPECT_NEAR(ShareOfToken0(StopRule::kBest), 0.85, 0.015);
}

}  // namespace
}  // namespace deepinfer::spec
