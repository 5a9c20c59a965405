// SPDX-License-Identifier: Apache-2.0
// Properties: survivals are probabilities that never rise; without observations they are the product of sigmoids; with
// them they approach what happens, whichever way the logits err; positions and buckets do not mix; old habits are forgotten.
#include "spec/confidence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace deepinfer::spec {
namespace {

constexpr int32_t kPositions = 5;

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

TEST(Calibration, StartsAsTheSigmoid) {
  const Calibration calibration(kPositions);
  const std::vector<float> logits = {2, 0, -1, 30, -30};
  std::vector<float> survival(logits.size());
  calibration.Survivals(0, logits, survival);
  float product = 1;
  for (size_t j = 0; j < logits.size(); ++j) EXPECT_NEAR(survival[j], product *= Sigmoid(logits[j]), 1e-6);
}

TEST(Calibration, AnyLogitGivesAProbability) {
  Calibration calibration(kPositions);
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> odd = {kInf, -kInf, kNan, std::numeric_limits<float>::max(), 0};
  for (int i = 0; i < 100; ++i) {
    calibration.Observe(i % kTemperatureBuckets, odd, 5, i % 6);
    std::vector<float> survival(odd.size());
    calibration.Survivals(i % kTemperatureBuckets, odd, survival);
    float before = 1;
    for (const float a : survival) {
      EXPECT_GE(a, 0);
      EXPECT_LE(a, before);
      before = a;
    }
    EXPECT_EQ(survival[2], 0);
  }
}

// Drafts that are accepted with another probability than their logit says, given that the ones before are.
void Feed(Calibration* calibration, int bucket, int blocks, double slope, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.5f, 2);
  std::uniform_real_distribution<double> uniform;
  for (int i = 0; i < blocks; ++i) {
    std::vector<float> logits(kPositions);
    for (float& z : logits) z = normal(random);
    int32_t accepted = 0;
    while (accepted < kPositions && uniform(random) < Sigmoid(static_cast<float>(slope) * logits[static_cast<size_t>(accepted)])) {
      ++accepted;
    }
    calibration->Observe(bucket, logits, kPositions, accepted);
  }
}

double MeanError(const Calibration& calibration, int bucket, double slope) {
  double error = 0;
  int count = 0;
  for (float z = -3; z <= 3; z += 1, ++count) {  // middles of ranges
    error += std::fabs(calibration.Probability(bucket, 0, z + 0.5f) - Sigmoid(static_cast<float>(slope) * (z + 0.5f)));
  }
  return error / count;
}

TEST(Calibration, ApproachesWhatHappens) {
  for (const double slope : {0.3, 1.0, 3.0}) {  // over-confident, right, under-confident
    Calibration calibration(kPositions);
    const double before = MeanError(calibration, 2, slope);
    Feed(&calibration, 2, 20000, slope, 1);
    const double after = MeanError(calibration, 2, slope);
    EXPECT_LT(after, 0.05) << slope << " (before: " << before << ")";
    if (slope != 1) {
      EXPECT_LT(after, before / 2) << slope;
    }
    EXPECT_LT(calibration.Error(2, 0), 0.05);
    // The other buckets have learnt nothing.
    EXPECT_FLOAT_EQ(calibration.Probability(1, 0, 1.5f), Sigmoid(1.5f));
    EXPECT_EQ(calibration.Error(1, 0), 0);
  }
}

TEST(Calibration, Forgets) {
  Calibration calibration(kPositions);
  Feed(&calibration, 0, 20000, 0.3, 1);
  Feed(&calibration, 0, 20000, 3.0, 2);
  EXPECT_LT(MeanError(calibration, 0, 3.0), 0.05);
}

TEST(Calibration, LearnsFromVerifiedDraftsUpToTheFirstRejected) {
  Calibration calibration(kPositions);
  const std::vector<float> logits(kPositions, 0.5f);
  calibration.Observe(0, logits, 3, 1);  // draft 0 accepted, draft 1 rejected, 2 unknown, 3 and 4 not verified
  EXPECT_GT(calibration.Probability(0, 0, 0.5f), Sigmoid(0.5f));
  EXPECT_LT(calibration.Probability(0, 1, 0.5f), Sigmoid(0.5f));
  for (const int32_t j : {2, 3, 4}) EXPECT_FLOAT_EQ(calibration.Probability(0, j, 0.5f), Sigmoid(0.5f));
}

TEST(Calibration, TemperatureBuckets) {
  EXPECT_EQ(TemperatureBucket(0), 0);
  EXPECT_EQ(TemperatureBucket(0.3), 1);
  EXPECT_EQ(TemperatureBucket(1), 2);
  EXPECT_EQ(TemperatureBucket(1.5), 3);
}

}  // namespace
}  // namespace deepinfer::spec
