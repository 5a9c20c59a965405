// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/check.h"
#include "sampling/math.h"
#include "sampling/noise.h"

namespace deepinfer::sampling {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// Fraction bits of a probability relative to the best token's: a vocabulary of 2^20 still sums without overflow.
constexpr float kOne = 0x1p40f;

void ApplyPenalties(const SamplingParams& params, const TokenCounts& counts, std::vector<float>* logits) {
  if (params.repetition_penalty != 1) {
    const auto repeat = [&](int32_t token) {
      float& logit = (*logits)[static_cast<size_t>(token)];
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    };
    for (const auto& [token, count] : counts.prompt) repeat(token);
    for (const auto& [token, count] : counts.answer) {
      if (!counts.prompt.contains(token)) repeat(token);
    }
  }
  for (const auto& [token, count] : counts.answer) {
    (*logits)[static_cast<size_t>(token)] -=
        params.presence_penalty + params.frequency_penalty * static_cast<float>(count);
  }
}

void ApplyMask(std::span<const uint32_t> mask, std::vector<float>* logits) {
  DI_CHECK(mask.size() * 32 >= logits->size());
  for (size_t t = 0; t < logits->size(); ++t) {
    if ((mask[t / 32] >> (t % 32) & 1) == 0) (*logits)[t] = kForbidden;
  }
}

}  // namespace

int32_t ArgMax(std::span<const float> logits) {
  size_t best = 0;
  for (size_t t = 1; t < logits.size(); ++t) {
    if (logits[t] > logits[best] || std::isnan(logits[best])) best = t;
  }
  return static_cast<int32_t>(best);
}

std::optional<int32_t> Sampler::Adjust(const SamplingParams& params, const SampleInput& input) {
  adjusted_.assign(input.logits.begin(), input.logits.end());
  if (params.has_penalties()) {
    DI_CHECK(input.counts != nullptr);
    ApplyPenalties(params, *input.counts, &adjusted_);
  }
  for (const auto& [token, bias] : params.logit_bias) adjusted_[static_cast<size_t>(token)] += bias;
  if (!input.mask.empty()) ApplyMask(input.mask, &adjusted_);
  const int32_t best = ArgMax(adjusted_);
  if (!(adjusted_[static_cast<size_t>(best)] > kForbidden)) return std::nullopt;
  return best;
}

bool Sampler::Distribution(const SamplingParams& params, const SampleInput& input, std::span<float> out) {
  DI_CHECK(out.size() == input.logits.size());
  const std::optional<int32_t> best = Adjust(params, input);
  if (!best) return false;
  std::fill(out.begin(), out.end(), 0.0f);
  if (params.greedy()) {
    out[static_cast<size_t>(*best)] = 1;
    return true;
  }
  for (float& logit : adjusted_) logit /= params.temperature;
  const float top = adjusted_[static_cast<size_t>(*best)];
  Filter(params);
  std::sort(order_.begin(), order_.end());
  double sum = 0;
  for (const int32_t token : order_) sum += FixedExp(adjusted_[static_cast<size_t>(token)] - top);
  for (const int32_t token : order_) {
    out[static_cast<size_t>(token)] = static_cast<float>(FixedExp(adjusted_[static_cast<size_t>(token)] - top) / sum);
  }
  return true;
}

std::optional<int32_t> Sampler::Sample(const SamplingParams& params, const SampleInput& input) {
  const std::optional<int32_t> best = Adjust(params, input);
  if (!best || params.greedy()) return best;

  for (float& logit : adjusted_) logit /= params.temperature;
  const NoiseKey key{.seed = params.seed, .position = input.position, .choice = params.choice};
  const bool filtered = params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
  if (!filtered) {
    noise_.resize(adjusted_.size());
    GumbelAll(key, noise_);
    for (size_t t = 0; t < adjusted_.size(); ++t) noise_[t] += adjusted_[t];
    return ArgMax(noise_);
  }
  Filter(params);
  int32_t winner = order_[0];
  float winner_score = kForbidden;
  for (const int32_t token : order_) {
    const float score = adjusted_[static_cast<size_t>(token)] + Gumbel(key, static_cast<uint32_t>(token));
    if (score > winner_score || (score == winner_score && token < winner)) {
      winner = token;
      winner_score = score;
    }
  }
  return winner;
}

void Sampler::Filter(const SamplingParams& params) {
  order_.clear();
  for (size_t t = 0; t < adjusted_.size(); ++t) {
    if (adjusted_[t] > kForbidden) order_.push_back(static_cast<int32_t>(t));
  }
  const auto better = [&](int32_t a, int32_t b) {
    const float x = adjusted_[static_cast<size_t>(a)], y = adjusted_[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < order_.size()) {
    std::nth_element(order_.begin(), order_.begin() + params.top_k, order_.end(), better);
    order_.resize(static_cast<size_t>(params.top_k));
  }
  std::sort(order_.begin(), order_.end(), better);
  if (params.top_p < 1) KeepTopP(params.top_p);
  if (params.min_p > 0) {
    const float top = adjusted_[static_cast<size_t>(order_[0])];
    const auto weak = std::find_if(order_.begin(), order_.end(), [&](int32_t t) {
      return FixedExp(adjusted_[static_cast<size_t>(t)] - top) < params.min_p;
    });
    order_.erase(weak, order_.end());
  }
}

// The fewest best tokens whose share of the whole is at least top_p.
void Sampler::KeepTopP(float top_p) {
  const float top = adjusted_[static_cast<size_t>(order_[0])];
  weight_.clear();
  for (const int32_t token : order_) {
    weight_.push_back(static_cast<uint64_t>(FixedExp(adjusted_[static_cast<size_t>(token)] - top) * kOne));
  }
  const uint64_t total = std::accumulate(weight_.begin(), weight_.end(), uint64_t{0});
  const double wanted = static_cast<double>(top_p) * static_cast<double>(total);
  uint64_t sum = 0;
  size_t kept = 0;
  while (kept < order_.size() && (kept == 0 || static_cast<double>(sum) < wanted)) sum += weight_[kept++];
  order_.resize(kept);
}

Logprobs ComputeLogprobs(std::span<const float> logits, int32_t chosen, size_t count) {
  const double top = logits[static_cast<size_t>(ArgMax(logits))];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  const double norm = top + std::log(sum);
  const auto logprob = [&](int32_t token) { return static_cast<float>(logits[static_cast<size_t>(token)] - norm); };
  Logprobs result{.chosen = logprob(chosen)};
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(count, order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  for (auto it = order.begin(); it != end; ++it) result.top.push_back({*it, logprob(*it)});
  return result;
}

}  // namespace deepinfer::sampling
