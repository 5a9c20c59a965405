// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "sampling/math.h"

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
  Heat(params);
  const float top = adjusted_[static_cast<size_t>(*best)];
  Filter(params);
  if (params.has_filters()) std::sort(order_.begin(), order_.end());
  double sum = 0;
  for (const int32_t token : order_) {
    const float weight = FixedExp(adjusted_[static_cast<size_t>(token)] - top);
    out[static_cast<size_t>(token)] = weight;
    sum += weight;
  }
  for (const int32_t token : order_) out[static_cast<size_t>(token)] = static_cast<float>(out[static_cast<size_t>(token)] / sum);
  return true;
}

void Sampler::Heat(const SamplingParams& params) {
  if (params.temperature == 1) return;
  for (float& logit : adjusted_) logit /= params.temperature;
}

std::optional<int32_t> Sampler::Sample(const SamplingParams& params, const SampleInput& input) {
  if (params.greedy() && !params.has_penalties() && params.logit_bias.empty() && input.mask.empty()) {
    const int32_t best = ArgMax(input.logits);
    return input.logits[static_cast<size_t>(best)] > kForbidden ? std::optional(best) : std::nullopt;
  }
  const std::optional<int32_t> best = Adjust(params, input);
  if (!best || params.greedy()) return best;
  Heat(params);
  const NoiseKey key{.seed = params.seed,
                     .position = input.position,
                     .choice = params.choice,
                     .stream = input.stream,
                     .block_offset = input.block_offset};
  if (!params.has_filters()) return NoisyArgMax(key, adjusted_);
  Filter(params);
  int32_t winner = order_[0];
  float winner_score = kForbidden;
  for (const int32_t token : order_) {
    const float scaled = adjusted_[static_cast<size_t>(token)];
    if (scaled + kGumbelMax < winner_score) continue;
    const float score = scaled + Gumbel(key, static_cast<uint32_t>(token));
    if (score > winner_score || (score == winner_score && token < winner)) {
      winner = token;
      winner_score = score;
    }
  }
  return winner;
}

int32_t Sampler::Ranked(size_t rank) {
  constexpr size_t kAtLeast = 32;
  if (rank >= sorted_) {
    const size_t end = std::min(order_.size(), std::max(rank + 1, 2 * sorted_ + kAtLeast));
    const auto better = [&](int32_t a, int32_t b) {
      const float x = adjusted_[static_cast<size_t>(a)], y = adjusted_[static_cast<size_t>(b)];
      return x > y || (x == y && a < b);
    };
    const auto from = order_.begin() + static_cast<std::ptrdiff_t>(sorted_), to = order_.begin() + static_cast<std::ptrdiff_t>(end);
    if (end < order_.size()) std::nth_element(from, to, order_.end(), better);
    std::sort(from, to, better);
    sorted_ = end;
  }
  return order_[rank];
}

void Sampler::Truncate(size_t size) {
  if (size > 0) Ranked(size - 1);
  order_.resize(size);
  sorted_ = std::min(sorted_, size);
}

void Sampler::Filter(const SamplingParams& params) {
  order_.clear();
  sorted_ = 0;
  for (size_t t = 0; t < adjusted_.size(); ++t) {
    if (adjusted_[t] > kForbidden) order_.push_back(static_cast<int32_t>(t));
  }
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < order_.size()) Truncate(static_cast<size_t>(params.top_k));
  if (params.top_p < 1) KeepTopP(params.top_p);
  if (params.min_p > 0) {
    const float top = adjusted_[static_cast<size_t>(Ranked(0))];
    const auto strong = [&](int32_t t) { return FixedExp(adjusted_[static_cast<size_t>(t)] - top) >= params.min_p; };
    // Sorts as many as will be asked for at once.
    if (const auto likely = std::count_if(order_.begin(), order_.end(), strong); likely > 0) Ranked(static_cast<size_t>(likely) - 1);
    size_t kept = 0;
    while (kept < order_.size() && strong(Ranked(kept))) ++kept;
    Truncate(kept);
  }
}

// The fewest best tokens whose share of the whole is at least top_p.
void Sampler::KeepTopP(float top_p) {
  const float top = adjusted_[static_cast<size_t>(Ranked(0))];
  const auto weight = [&](int32_t token) {
    return static_cast<uint64_t>(FixedExp(adjusted_[static_cast<size_t>(token)] - top) * kOne);
  };
  // By magnitude of the weight, to sort as many as will be asked for at once.
  std::array<uint64_t, 65> weights{};
  std::array<size_t, 65> counts{};
  uint64_t total = 0;
  for (const int32_t token : order_) {
    const uint64_t w = weight(token);
    const auto magnitude = static_cast<size_t>(std::bit_width(w));
    weights[magnitude] += w;
    ++counts[magnitude];
    total += w;
  }
  const double wanted = static_cast<double>(top_p) * static_cast<double>(total);
  uint64_t above = 0;
  size_t likely = 0;
  for (size_t m = weights.size(); m-- > 0 && static_cast<double>(above) < wanted;) {
    above += weights[m];
    likely += counts[m];
  }
  if (likely > 0) Ranked(likely - 1);
  uint64_t sum = 0;
  size_t kept = 0;
  while (kept < order_.size() && (kept == 0 || static_cast<double>(sum) < wanted)) sum += weight(Ranked(kept++));
  Truncate(kept);
}

Logprobs FinishLogprobs(double norm, float chosen, std::vector<TokenLogprob> best) {
  for (TokenLogprob& entry : best) entry.logprob = static_cast<float>(entry.logprob - norm);
  return {.chosen = static_cast<float>(chosen - norm), .top = std::move(best)};
}

Logprobs ComputeLogprobs(std::span<const float> logits, int32_t chosen, size_t count) {
  const auto better = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
  };
  // A heap with the worst in front; its entries hold logits until all are known.
  std::vector<TokenLogprob> top;
  count = std::min(count, logits.size());
  top.reserve(count);
  for (size_t t = 0; t < logits.size() && count > 0; ++t) {
    const TokenLogprob entry{static_cast<int32_t>(t), logits[t]};
    if (top.size() < count) {
      top.push_back(entry);
      std::push_heap(top.begin(), top.end(), better);
    } else if (better(entry, top.front())) {
      std::pop_heap(top.begin(), top.end(), better);
      top.back() = entry;
      std::push_heap(top.begin(), top.end(), better);
    }
  }
  std::sort_heap(top.begin(), top.end(), better);
  return FinishLogprobs(LogSumExp(logits), logits[static_cast<size_t>(chosen)], std::move(top));
}

}  // namespace deepinfer::sampling
