// SPDX-License-Identifier: Apache-2.0
#include "spec/confidence.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace deepinfer::spec {
namespace {

// Logits from -8 to 8 in steps of one; what lies outside belongs to the outermost.
constexpr int kBins = 16;
constexpr float kLogitMax = 8;
// So many observations weigh as much as the raw sigmoid, and after 1 / (1 - kDecay) an observation is forgotten.
constexpr double kPriorTrials = 16;
constexpr double kDecay = 0.998;

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

int TemperatureBucket(double temperature) { return temperature < 1e-6 ? 0 : temperature <= 0.5 ? 1 : temperature <= 1 ? 2 : 3; }

Calibration::Calibration(int32_t positions)
    : positions_(positions), bins_(static_cast<size_t>(kTemperatureBuckets * positions * kBins)) {
  DI_CHECK(positions > 0);
}

int Calibration::BinOf(float logit) {
  return static_cast<int>(std::clamp(std::floor(logit) + kLogitMax, 0.0f, float{kBins - 1}));
}

const Calibration::Bin* Calibration::Bins(int bucket, int32_t position) const {
  DI_CHECK(bucket >= 0 && bucket < kTemperatureBuckets && position >= 0 && position < positions_);
  return bins_.data() + (bucket * positions_ + position) * kBins;
}

float Calibration::Probability(int bucket, int32_t position, float logit) const {
  const Bin* bins = Bins(bucket, position);
  if (std::isnan(logit)) return 0;
  const Bin& bin = bins[BinOf(logit)];
  return static_cast<float>((bin.accepted + kPriorTrials * Sigmoid(logit)) / (bin.trials + kPriorTrials));
}

void Calibration::Survivals(int bucket, std::span<const float> logits, std::span<float> survival) const {
  DI_CHECK(logits.size() == survival.size());
  float alive = 1;
  for (size_t j = 0; j < logits.size(); ++j) {
    alive *= Probability(bucket, static_cast<int32_t>(j), logits[j]);
    survival[j] = alive;
  }
}

void Calibration::Observe(int bucket, std::span<const float> logits, int32_t verified, int32_t accepted) {
  DI_CHECK(accepted >= 0 && accepted <= verified && verified <= static_cast<int32_t>(logits.size()));
  for (int32_t j = 0; j < std::min(verified, accepted + 1); ++j) {
    const float logit = logits[static_cast<size_t>(j)];
    if (std::isnan(logit)) continue;
    const double predicted = Probability(bucket, j, logit);
    Bin& bin = bins_[static_cast<size_t>((bucket * positions_ + j) * kBins + BinOf(logit))];
    bin.trials = bin.trials * kDecay + 1;
    bin.accepted = bin.accepted * kDecay + (j < accepted ? 1 : 0);
    bin.predicted = bin.predicted * kDecay + predicted;
  }
}

double Calibration::ErrorOf(std::span<const Bin> bins) {
  double trials = 0, error = 0;
  for (const Bin& bin : bins) {
    trials += bin.trials;
    error += std::fabs(bin.predicted - bin.accepted);
  }
  return trials > 0 ? error / trials : 0;
}

double Calibration::Error(int bucket, int32_t position) const { return ErrorOf({Bins(bucket, position), kBins}); }
double Calibration::Error() const { return ErrorOf(bins_); }

}  // namespace deepinfer::spec
