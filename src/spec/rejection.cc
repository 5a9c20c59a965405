// SPDX-License-Identifier: Apache-2.0
#include "spec/rejection.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/check.h"
#include "sampling/vocabulary.h"

namespace deepinfer::spec {
namespace {

using sampling::NoiseKey;
using sampling::NoiseStream;

struct Rows {
  explicit Rows(const VerifyInput& in) : input(in), drafts(in.drafts.size()), vocab(in.target.size() / (drafts + 1)) {
    DI_CHECK(vocab > 0 && in.target.size() == (drafts + 1) * vocab && in.draft.size() == drafts * vocab);
  }
  double q(size_t row, size_t token) const { return input.draft[row * vocab + token]; }
  double p(size_t row, size_t token) const { return input.target[row * vocab + token]; }
  size_t token(size_t row) const { return static_cast<size_t>(input.drafts[row]); }

  NoiseKey Key(size_t row, NoiseStream stream) const {
    return {.seed = input.seed,
            .position = input.position + static_cast<uint32_t>(row),
            .choice = input.choice,
            .stream = stream,
            .block_offset = static_cast<uint32_t>(row)};
  }
  double Uniform(size_t row) const { return sampling::Uniform(Key(row, NoiseStream::kAcceptance)); }
  // The token behind `row` drafts: from max(0, scale * p - q), or from p where nothing is left of that or no draft follows.
  Verdict End(size_t row, double scale) const {
    std::vector<double> weights(vocab);
    double sum = 0;
    for (size_t t = 0; row < drafts && t < vocab; ++t) sum += weights[t] = std::max(0.0, scale * p(row, t) - q(row, t));
    // Less is rounding: the row was accepted but for the last bits of its sums.
    if (sum < 1e-8) {
      for (size_t t = 0; t < vocab; ++t) weights[t] = p(row, t);
    }
    return {.accepted = static_cast<int32_t>(row), .token = DrawFrom(weights, Key(row, NoiseStream::kResidual))};
  }

  const VerifyInput& input;
  const size_t drafts, vocab;
};

}  // namespace

int32_t DrawFrom(std::span<const double> weights, const NoiseKey& key) {
  std::vector<float> noise(weights.size());
  sampling::GumbelAll(key, noise);
  size_t best = weights.size();
  double best_score = 0;
  for (size_t t = 0; t < weights.size(); ++t) {
    if (!(weights[t] > 0)) continue;
    const double score = std::log(weights[t]) + noise[t];
    if (best == weights.size() || score > best_score) {
      best = t;
      best_score = score;
    }
  }
  DI_CHECK(best < weights.size());
  return static_cast<int32_t>(best);
}

Verdict VerifyByToken(const VerifyInput& input) {
  const Rows rows(input);
  size_t row = 0;
  while (row < rows.drafts) {
    const size_t token = rows.token(row);
    if (!(rows.Uniform(row) * rows.q(row, token) < rows.p(row, token))) break;
    ++row;
  }
  return rows.End(row, 1);
}

// With P_0 = 1 and P_i = min(1, P_{i-1} p_i / q_i), prefix i stands with h_i = R_i / (R_i + 1 - P_i), where R_i is the mass
// of max(0, P_i p_{i+1} - q_{i+1}), and h_k = P_k; the longest that stands is taken.
Verdict VerifyByBlock(const VerifyInput& input) {
  const Rows rows(input);
  double scale = 1, kept_scale = 1;
  size_t kept = 0;
  for (size_t i = 1; i <= rows.drafts; ++i) {
    const size_t token = rows.token(i - 1);
    const double q = rows.q(i - 1, token);
    scale = q > 0 ? std::min(1.0, scale * rows.p(i - 1, token) / q) : 0;
    double pass = scale;
    if (i < rows.drafts) {
      double residual = 0;
      for (size_t t = 0; t < rows.vocab; ++t) residual += std::max(0.0, scale * rows.p(i, t) - rows.q(i, t));
      pass = residual > 0 ? residual / (residual + 1 - scale) : 0;
    }
    if (rows.Uniform(i - 1) < pass) {
      kept = i;
      kept_scale = scale;
    }
  }
  return rows.End(kept, kept_scale);
}

}  // namespace deepinfer::spec
