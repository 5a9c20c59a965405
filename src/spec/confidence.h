// SPDX-License-Identifier: Apache-2.0
// From the draft's confidence logits to survival probabilities: how likely it is that draft j and all before it are
// accepted (spec/dspark.md 5). The raw sigmoid is only an estimate, trained at temperature 1 against another event, so it
// is corrected by what was seen: per temperature bucket, draft position and range of the logit.
//
// Plain data, a few kilobytes; one thread at a time. Nothing here changes tokens, only how many drafts are verified.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer::spec {

// Requests whose drafts are accepted alike: greedy, and three ranges of temperature.
inline constexpr int kTemperatureBuckets = 4;
int TemperatureBucket(double temperature);  // 0: greedy (sampling/params.h); 1: up to 0.5; 2: up to 1; 3: above

class Calibration {
 public:
  // Drafts of a block at most `positions`.
  explicit Calibration(int32_t positions);

  // Probability that draft `position` is accepted, given that all before it are. 0 for a logit that is no number.
  float Probability(int bucket, int32_t position, float logit) const;

  // survival[j] = product of the probabilities of drafts 0 .. j; logits and survival have the same size, at most
  // `positions`. In [0, 1] and non-increasing.
  void Survivals(int bucket, std::span<const float> logits, std::span<float> survival) const;

  // A block was verified: `accepted` of its first `verified` drafts. Later drafts than the first rejected one tell nothing.
  void Observe(int bucket, std::span<const float> logits, int32_t verified, int32_t accepted);

  // Mean of |predicted - observed| over all observations so far, weighted by how often each range of logits came up
  // lately; predictions as they were made. 0 without observations.
  double Error(int bucket, int32_t position) const;
  // The same over all buckets and positions.
  double Error() const;

 private:
  // Decayed sums over the observations of one range of logits.
  struct Bin {
    double trials = 0;
    double accepted = 0;
    double predicted = 0;
  };
  static int BinOf(float logit);
  static double ErrorOf(std::span<const Bin> bins);
  const Bin* Bins(int bucket, int32_t position) const;

  int32_t positions_;
  std::vector<Bin> bins_;  // [buckets, positions, bins]
};

}  // namespace deepinfer::spec
