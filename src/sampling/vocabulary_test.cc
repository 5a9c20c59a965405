// SPDX-License-Identifier: Apache-2.0
// Property: the vectorised loops give what one token after the other gives: ties to the lower id, NaN never chosen.
#include "sampling/vocabulary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace deepinfer::sampling {
namespace {

// By the definition, one token after the other.
int32_t SlowNoisyArgMax(const NoiseKey& key, std::span<const float> scores) {
  int32_t winner = -1;
  float best = 0;
  for (size_t t = 0; t < scores.size(); ++t) {
    const float sum = scores[t] + Gumbel(key, static_cast<uint32_t>(t));
    if (std::isnan(sum) || (winner >= 0 && sum <= best)) continue;
    winner = static_cast<int32_t>(t);
    best = sum;
  }
  return winner;
}

TEST(NoisyArgMax, IsTheDefinition) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937 random(2);
  for (const size_t vocab : {1, 3, 63, 64, 65, 129, 8192}) {
    for (uint32_t round = 0; round < 200; ++round) {
      std::normal_distribution<float> normal(0, 0.1f * static_cast<float>(round % 80));
      std::vector<float> scores(vocab);
      for (float& score : scores) {
        const uint32_t kind = random() % 50;
        score = kind == 0 ? -kInfinity : kind == 1 ? std::numeric_limits<float>::quiet_NaN() : normal(random);
      }
      if (round % 50 == 7) scores[random() % vocab] = kInfinity;
      if (round % 50 == 8) std::fill(scores.begin(), scores.end(), 1e9f);  // the noise is lost: all are equal
      scores[random() % vocab] = 0.5f;
      const NoiseKey key{.seed = random() * uint64_t{0x100000001}, .position = round, .choice = round % 3};
      ASSERT_EQ(NoisyArgMax(key, scores), SlowNoisyArgMax(key, scores)) << vocab << " " << round;
    }
  }
}

TEST(ArgMax, FirstOfTheHighestAndNeverNan) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, -kInfinity}), 1);
  std::mt19937 random(3);
  for (const size_t n : {1, 2, 63, 64, 65, 200, 1000}) {
    for (int round = 0; round < 200; ++round) {
      std::vector<float> scores(n);
      for (float& score : scores) score = random() % 20 == 0 ? kNan : static_cast<float>(static_cast<int>(random() % 30) - 15);
      scores[random() % n] = -20;
      size_t best = n;
      for (size_t i = 0; i < n; ++i) {
        if (!std::isnan(scores[i]) && (best == n || scores[i] > scores[best])) best = i;
      }
      ASSERT_EQ(static_cast<size_t>(ArgMax(scores)), best);
    }
  }
}

TEST(GumbelAll, EqualsGumbel) {
  for (const size_t vocab : {1, 3, 64, 129, 8192}) {
    std::vector<float> all(vocab);
    const NoiseKey key{.seed = 0x123456789ABCDEF0u, .position = 77, .choice = 3, .stream = NoiseStream::kDraft, .block_offset = 2};
    GumbelAll(key, all);
    for (size_t t = 0; t < vocab; ++t) ASSERT_EQ(all[t], Gumbel(key, static_cast<uint32_t>(t))) << t;
  }
}

TEST(LogSumExp, WithinTheRoundingOfFloats) {
  std::mt19937 random(4);
  for (const size_t n : {1, 5, 16, 100, 8192}) {
    for (const float spread : {0.1f, 3.0f, 30.0f}) {
      std::normal_distribution<float> normal(-5, spread);
      std::vector<float> logits(n);
      for (float& logit : logits) logit = normal(random);
      double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      EXPECT_NEAR(LogSumExp(logits), std::log(sum), 3e-7) << n << " " << spread;
    }
  }
}

}  // namespace
}  // namespace deepinfer::sampling
