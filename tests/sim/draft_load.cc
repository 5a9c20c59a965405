// SPDX-License-Identifier: Apache-2.0
#include "draft_load.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "spec/confidence.h"
#include "spec/row_choice.h"

namespace deepinfer::sim {
namespace {

constexpr int32_t kDrafts = 5;
constexpr int kBucket = 2;  // of temperature: all requests sample alike
constexpr double kTokensPerStep = 3.5;  // all five drafts verified: what the published model reaches
// How its conditional acceptance falls with the position (spec/dspark.md 8.2), and how much texts and blocks differ.
constexpr std::array<double, kDrafts> kAcceptance = {0.78, 0.75, 0.66, 0.56, 0.51};
constexpr double kTextSpread = 1.0, kBlockSpread = 0.8, kConfidenceNoise = 0.5;

double Sigmoid(double z) { return 1 / (1 + std::exp(-z)); }
double Logit(double p) { return std::log(p / (1 - p)); }

struct Block {
  std::array<double, kDrafts> acceptance;  // given that all before it stand
  std::array<float, kDrafts> logits;       // what the confidence head says: too flat, too low, and not all that is known
};

class Drafter {
 public:
  Drafter(int32_t requests, uint64_t seed) : random_(seed), texts_(static_cast<size_t>(requests)) {
    for (double& text : texts_) text = kTextSpread * normal_(random_);
    // The shift that gives the wanted length on average over all texts and blocks.
    double low = -3, high = 3;
    while (high - low > 1e-3) {
      shift_ = (low + high) / 2;
      (MeanLength() < kTokensPerStep ? low : high) = shift_;
    }
  }

  Block Next(size_t request) {
    // Texts change as answers end and others begin.
    if (random_() % 200 == 0) texts_[request] = kTextSpread * normal_(random_);
    Block block;
    const double level = texts_[request] + kBlockSpread * normal_(random_) + shift_;
    for (size_t j = 0; j < kDrafts; ++j) {
      const double z = Logit(kAcceptance[j]) + level;
      block.acceptance[j] = Sigmoid(z);
      block.logits[j] = static_cast<float>(0.7 * z - 0.3 + kConfidenceNoise * normal_(random_));
    }
    return block;
  }
  int32_t Accepted(const Block& block, int32_t verified) {
    int32_t accepted = 0;
    while (accepted < verified && uniform_(random_) < block.acceptance[static_cast<size_t>(accepted)]) ++accepted;
    return accepted;
  }

 private:
  double MeanLength() const {
    std::mt19937_64 random(1);
    std::normal_distribution<double> normal;
    double sum = 0;
    constexpr int kSamples = 20000;
    for (int i = 0; i < kSamples; ++i) {
      const double level = kTextSpread * normal(random) + kBlockSpread * normal(random) + shift_;
      double survival = 1;
      for (const double acceptance : kAcceptance) sum += survival *= Sigmoid(Logit(acceptance) + level);
    }
    return 1 + sum / kSamples;
  }

  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  std::vector<double> texts_;
  double shift_ = 0;
};

}  // namespace

double StepSeconds(double rows) {
  constexpr double kFixed = 3.0e-3, kAllExperts = 14.0e-3, kRow = 18e-6;
  return kFixed + kAllExperts * (1 - std::pow(1 - 6.0 / 384, rows)) + kRow * rows;
}

double DraftSeconds(double requests) { return 0.6e-3 + 4e-6 * requests; }

DraftLoadResult RunDraftLoad(const DraftLoad& load) {
  const auto requests = static_cast<size_t>(load.requests);
  Drafter drafter(load.requests, load.seed);
  spec::Calibration calibration(kDrafts);
  spec::RowChooser chooser(load.requests, kDrafts);
  const bool scheduled = load.fixed < 0, drafts = load.fixed != 0;
  const std::vector<int32_t> limits(requests, kDrafts);
  std::vector<int32_t> lengths(requests, std::max(load.fixed, 0));
  std::vector<float> survival(requests * kDrafts);
  std::vector<double> cost;
  for (size_t n = 0; n <= requests * kDrafts; ++n) {
    cost.push_back(StepSeconds(static_cast<double>(requests + n)) + DraftSeconds(static_cast<double>(requests)));
  }
  std::vector<Block> blocks(requests);
  double seconds = 0, tokens = 0, verified = 0;
  const int32_t warm_up = load.steps / 5;
  for (int32_t step = 0; step < load.steps; ++step) {
    for (size_t r = 0; r < requests; ++r) {
      blocks[r] = drafter.Next(r);
      calibration.Survivals(kBucket, blocks[r].logits, std::span(survival).subspan(r * kDrafts, kDrafts));
    }
    if (scheduled) {
      chooser.Choose({.drafts = kDrafts,
                      .survival = survival,
                      .limits = limits,
                      .sure_tokens = static_cast<double>(requests),
                      .cost = cost},
                     lengths);
    }
    double rows = 0, made = static_cast<double>(requests);
    for (size_t r = 0; r < requests; ++r) {
      const int32_t accepted = drafter.Accepted(blocks[r], lengths[r]);
      calibration.Observe(kBucket, blocks[r].logits, lengths[r], accepted);
      rows += lengths[r];
      made += accepted;
    }
    if (step < warm_up) continue;
    seconds += StepSeconds(static_cast<double>(requests) + rows) + (drafts ? DraftSeconds(static_cast<double>(requests)) : 0);
    tokens += made;
    verified += rows;
  }
  const double count = static_cast<double>(requests) * (load.steps - warm_up);
  return {.tokens_per_second = tokens / seconds, .tokens_per_step = tokens / count, .drafts_verified = verified / count};
}

}  // namespace deepinfer::sim
