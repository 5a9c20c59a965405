// SPDX-License-Identifier: Apache-2.0
// Property: each setting does what its definition says, ties go to the lower id, and drawn tokens follow the softmax
// (chi-square).
#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace deepinfer::sampling {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::optional<int32_t> Draw(const SamplingParams& params, std::span<const float> logits, uint32_t position,
                            std::span<const uint32_t> mask = {}, const TokenCounts* counts = nullptr) {
  Sampler sampler;
  return sampler.Sample(params, {.logits = logits, .position = position, .counts = counts, .mask = mask});
}

TEST(Sampler, GreedyTakesTheLowerOfTwoEqual) {
  EXPECT_EQ(Draw({}, std::vector<float>{1, 3, 3, 2}, 0), 1);
  EXPECT_EQ(Draw({}, std::vector<float>{kNan, -1, kNan}, 0), 1);
  EXPECT_EQ(Draw({}, std::vector<float>{kNan, kNan}, 0), std::nullopt);
  EXPECT_EQ(Draw({}, std::vector<float>{-0.0f, 0.0f}, 0), 0);
}

TEST(Sampler, MaskForbids) {
  const uint32_t mask[] = {0b0100}, none[] = {0};
  const std::vector<float> logits = {5, 4, -9, 3};
  EXPECT_EQ(Draw({}, logits, 0, mask), 2);
  EXPECT_EQ(Draw({.temperature = 1}, logits, 0, mask), 2);
  EXPECT_EQ(Draw({.temperature = 1, .top_p = 0.5f}, logits, 0, mask), 2);
  EXPECT_EQ(Draw({}, logits, 0, none), std::nullopt);
}

TEST(Sampler, FollowsTheSoftmax) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 0.5f, 2.0f};
  for (const float temperature : {1.0f, 0.5f, 2.0f}) {
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit / temperature);
    constexpr int kDraws = 40000;
    std::vector<int> counts(logits.size());
    for (uint32_t p = 0; p < kDraws; ++p) ++counts[static_cast<size_t>(*Draw({.temperature = temperature, .seed = 1}, logits, p))];
    double chi_square = 0;
    for (size_t t = 0; t < logits.size(); ++t) {
      const double expected = kDraws * std::exp(logits[t] / temperature) / sum;
      chi_square += (counts[t] - expected) * (counts[t] - expected) / expected;
    }
    EXPECT_LT(chi_square, 18.47) << temperature;  // 4 degrees of freedom, p = 0.001
  }
}

// Which ids are drawn at all over many positions.
std::vector<int32_t> Support(const SamplingParams& params, std::span<const float> logits) {
  std::vector<int32_t> seen;
  for (uint32_t p = 0; p < 4000; ++p) seen.push_back(*Draw(params, logits, p));
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  return seen;
}

TEST(Sampler, FiltersKeepWhatTheySay) {
  // Probabilities 0.4, 0.3, 0.2, 0.1 in a scrambled order.
  const std::vector<float> logits = {std::log(0.2f), std::log(0.4f), std::log(0.1f), std::log(0.3f)};
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(Support({.temperature = 1}, logits), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(Support({.temperature = 1, .top_k = 2}, logits), (Ids{1, 3}));
  EXPECT_EQ(Support({.temperature = 1, .top_p = 0.65f}, logits), (Ids{1, 3}));
  EXPECT_EQ(Support({.temperature = 1, .top_p = 0.75f}, logits), (Ids{0, 1, 3}));
  EXPECT_EQ(Support({.temperature = 1, .top_p = 0.01f}, logits), (Ids{1}));
  // After top-k, top-p is a share of what is left: 0.4 / 0.7 = 0.57.
  EXPECT_EQ(Support({.temperature = 1, .top_k = 2, .top_p = 0.55f}, logits), (Ids{1}));
  EXPECT_EQ(Support({.temperature = 1, .min_p = 0.6f}, logits), (Ids{1, 3}));
  EXPECT_EQ(Support({.temperature = 1, .top_k = 2}, std::vector<float>{1, 1, 1, 1}), (Ids{0, 1}));
}

TEST(Sampler, AFilterThatKeepsAllChangesNothing) {
  const std::vector<float> logits = {0.3f, 1.0f, -1.0f, 0.5f, 0.9f};
  for (uint32_t p = 0; p < 500; ++p) {
    EXPECT_EQ(Draw({.temperature = 1, .seed = 3}, logits, p), Draw({.temperature = 1, .top_k = 5, .seed = 3}, logits, p));
  }
}

TEST(Sampler, TinyTemperaturesAreGreedyAndDoNotOverflow) {
  const std::vector<float> logits = {20.0f, 30.0f, 29.0f, -5.0f};
  for (const float temperature : {1e-45f, 1e-38f, 1e-20f, 1e-6f, 1e-4f}) {
    for (uint32_t position = 0; position < 100; ++position) {
      EXPECT_EQ(Draw({.temperature = temperature, .seed = 5}, logits, position), 1) << temperature;
    }
  }
}

TEST(Sampler, PenaltiesAndBias) {
  const std::vector<float> logits = {2.0f, 1.9f, -1.0f};
  const TokenCounts counts{.prompt = {{0, 1}}, .answer = {{0, 3}, {1, 1}}};
  EXPECT_EQ(Draw({.repetition_penalty = 1.0f}, logits, 0, {}, &counts), 0);
  EXPECT_EQ(Draw({.repetition_penalty = 3.0f}, logits, 0, {}, &counts), 0);      // both are divided
  EXPECT_EQ(Draw({.frequency_penalty = 0.5f}, logits, 0, {}, &counts), 1);       // 0.5 against 1.4
  EXPECT_EQ(Draw({.presence_penalty = 2.0f}, std::vector<float>{2, 1, 0.5f}, 0, {}, &counts), 2);
  const TokenCounts prompt_only{.prompt = {{0, 5}}, .answer = {}};
  EXPECT_EQ(Draw({.presence_penalty = 2.0f}, logits, 0, {}, &prompt_only), 0);   // the prompt does not count
  EXPECT_EQ(Draw({.repetition_penalty = 1.1f}, logits, 0, {}, &prompt_only), 1);
  EXPECT_EQ(Draw({.logit_bias = {{2, 10.0f}}}, logits, 0), 2);
}

TEST(Params, RefusesWithTheFieldsName) {
  const auto message = [](const SamplingParams& params) { return params.Validate(10).message(); };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({.top_p = 2}), "top_p: expected (0, 1], found 2");
  EXPECT_NE(message({.temperature = -1}), "");
  EXPECT_NE(message({.temperature = kNan}), "");
  EXPECT_NE(message({.top_k = -1}), "");
  EXPECT_NE(message({.min_p = kNan}), "");
  EXPECT_NE(message({.logit_bias = {{10, 1.0f}}}).find("token 10"), std::string::npos);
  EXPECT_NE(message({.logit_bias = {{1, kNan}}}), "");
}

TEST(Logprobs, SumToOneAndAreOrdered) {
  const std::vector<float> logits = {1, 3, 3, 0};
  const Logprobs logprobs = ComputeLogprobs(logits, 3, 10);
  ASSERT_EQ(logprobs.top.size(), 4u);
  EXPECT_EQ(logprobs.top[0].token, 1);
  EXPECT_EQ(logprobs.top[1].token, 2);
  EXPECT_EQ(logprobs.chosen, logprobs.top[3].logprob);
  double sum = 0;
  for (const TokenLogprob& entry : logprobs.top) sum += std::exp(entry.logprob);
  EXPECT_NEAR(sum, 1, 1e-6);
}

// Distribution is what Sample draws from, filters and mask included.
TEST(Sampler, DistributionIsThatOfItsDraws) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 0.5f, 2.0f, 1.8f};
  const uint32_t mask[] = {0b101111};
  const SamplingParams settings[] = {{.temperature = 1}, {.temperature = 0.7f, .top_k = 3}, {.temperature = 1.5f, .top_p = 0.8f},
                                     {.temperature = 1, .min_p = 0.3f}, {}};
  for (const SamplingParams& params : settings) {
    Sampler sampler;
    std::vector<float> row(logits.size());
    ASSERT_TRUE(sampler.Distribution(params, {.logits = logits, .mask = mask}, row));
    constexpr int kDraws = 40000;
    std::vector<double> counts(logits.size());
    for (uint32_t p = 0; p < kDraws; ++p) ++counts[static_cast<size_t>(*Draw(params, logits, p, mask))];
    for (size_t t = 0; t < logits.size(); ++t) EXPECT_NEAR(counts[t] / kDraws, row[t], 0.01) << t;
    EXPECT_EQ(row[4], 0);
  }
  const uint32_t none[] = {0};
  std::vector<float> row(logits.size(), 7);
  EXPECT_FALSE(Sampler().Distribution({.temperature = 1}, {.logits = logits, .mask = none}, row));
  EXPECT_EQ(row[0], 7);
}

}  // namespace
}  // namespace deepinfer::sampling
