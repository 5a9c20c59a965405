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

class Rows {
 public:
  explicit Rows(const VerifyInput& in) : input_(in), drafts_(in.drafts.size()), vocab_(drafts_ == 0 ? 0 : in.draft.size() / drafts_) {
    DI_CHECK(in.draft.size() == drafts_ * vocab_);
    rows_.reserve(drafts_ + 1);
  }
  size_t drafts() const { return drafts_; }
  size_t token(size_t row) const { return static_cast<size_t>(input_.drafts[row]); }
  std::span<const float> q(size_t row) const { return input_.draft.subspan(row * vocab_, vocab_); }
  std::span<const float> p(size_t row) {
    while (rows_.size() <= row) rows_.push_back(input_.target(rows_.size()));
    return rows_[row];
  }
  double Uniform(size_t row) const { return sampling::Uniform(Key(row, NoiseStream::kAcceptance)); }

  // The mass of max(0, scale * p - q).
  double Residual(size_t row, double scale) {
    double sum = 0;
    for (size_t t = 0; t < vocab_; ++t) sum += std::max(0.0, scale * p(row)[t] - q(row)[t]);
    return sum;
  }
  // The token behind `row` drafts: from max(0, scale * p - q), or from p where nothing is left of that or no draft follows.
  Verdict End(size_t row, double scale) {
    Verdict verdict{.accepted = static_cast<int32_t>(row), .token = -1};
    const std::span<const float> target = p(row);
    if (target.empty()) return verdict;
    std::vector<double> weights(target.begin(), target.end());
    // Less is rounding: the row was accepted but for the last bits of its sums.
    constexpr double kNothing = 1e-8;
    if (row < drafts_ && Residual(row, scale) > kNothing) {
      for (size_t t = 0; t < weights.size(); ++t) weights[t] = std::max(0.0, scale * target[t] - q(row)[t]);
    }
    verdict.token = DrawFrom(weights, Key(row, NoiseStream::kResidual));
    return verdict;
  }

 private:
  NoiseKey Key(size_t row, NoiseStream stream) const {
    return {.seed = input_.seed,
            .position = input_.position + static_cast<uint32_t>(row),
            .choice = input_.choice,
            .stream = stream,
            .block_offset = static_cast<uint32_t>(row)};
  }

  const VerifyInput& input_;
  const size_t drafts_, vocab_;
  std::vector<std::span<const float>> rows_;
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
  Rows rows(input);
  size_t row = 0;
  while (row < rows.drafts() && !rows.p(row).empty()) {
    const size_t token = rows.token(row);
    if (!(rows.Uniform(row) * rows.q(row)[token] < rows.p(row)[token])) break;
    ++row;
  }
  return rows.End(row, 1);
}

// With P_0 = 1 and P_i = min(1, P_{i-1} p_i / q_i), prefix i stands with h_i = R_i / (R_i + 1 - P_i), where R_i is the mass
// of max(0, P_i p_{i+1} - q_{i+1}), and h_k = P_k; the longest that stands is taken.
Verdict VerifyByBlock(const VerifyInput& input) {
  Rows rows(input);
  double scale = 1, kept_scale = 1;
  size_t kept = 0;
  for (size_t i = 1; i <= rows.drafts() && scale > 0 && !rows.p(i - 1).empty(); ++i) {
    const size_t token = rows.token(i - 1);
    const double q = rows.q(i - 1)[token];
    scale = q > 0 ? std::min(1.0, scale * rows.p(i - 1)[token] / q) : 0;
    double pass = scale;
    if (scale > 0 && i < rows.drafts() && !rows.p(i).empty()) {
      const double residual = rows.Residual(i, scale);
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
