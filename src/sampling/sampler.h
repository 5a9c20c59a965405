// SPDX-License-Identifier: Apache-2.0
// Logits to a token: penalties and bias, mask, temperature, top-k, top-p, min-p, noise, argmax, in this order
// (design.md 6). Deterministic: the result is a function of the arguments, whatever the processor. Equal logits count
// as ordered by id. Probabilities for top-p are fixed-point integers, so that sums have no order.
// A Sampler holds scratch memory and is used by one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "sampling/noise.h"
#include "sampling/params.h"
#include "sampling/vocabulary.h"

namespace deepinfer::sampling {

// How often each token occurred, for penalties; kept up to date by the owner of the request.
struct TokenCounts {
  std::unordered_map<int32_t, int32_t> prompt;
  std::unordered_map<int32_t, int32_t> answer;
};

struct SampleInput {
  std::span<const float> logits;         // [vocab]
  uint32_t position = 0;                 // that the new token will have
  const TokenCounts* counts = nullptr;   // needed where the params have penalties
  std::span<const uint32_t> mask;        // bit t of the whole = token t is allowed; empty: all are
  NoiseStream stream = NoiseStream::kTarget;
  uint32_t block_offset = 0;             // NoiseKey::block_offset
};

class Sampler {
 public:
  // The drawn token; nothing where no token is allowed or no logit is a number.
  std::optional<int32_t> Sample(const SamplingParams& params, const SampleInput& input);

  // The distribution that Sample draws from: out [vocab] sums to 1 (greedy: the winner has all), 0 for what is excluded.
  // False, and out is untouched, where no token is allowed. fp64 sums in order of id.
  bool Distribution(const SamplingParams& params, const SampleInput& input, std::span<float> out);

 private:
  // Penalties, bias and mask into adjusted_. The best token, or nothing where none is allowed.
  std::optional<int32_t> Adjust(const SamplingParams& params, const SampleInput& input);
  // Divides adjusted_ by the temperature.
  void Heat(const SamplingParams& params);
  // Leaves in order_ the ids that top-k, top-p and min-p keep, best first.
  void Filter(const SamplingParams& params);
  void KeepTopP(float top_p);
  // The id that is better than all but `rank` others of order_, which is sorted up to there: most are never asked for.
  int32_t Ranked(size_t rank);
  void Truncate(size_t size);

  std::vector<float> adjusted_;  // logits after penalties, bias and mask; then divided by the temperature
  std::vector<int32_t> order_;   // the first sorted_ in order, best first; the others are worse
  size_t sorted_ = 0;
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

struct Logprobs {
  float chosen = 0;
  std::vector<TokenLogprob> top;  // best first, equal ones by id
};

// Natural log-probabilities under softmax(logits): of `chosen` and of the `count` best tokens.
Logprobs ComputeLogprobs(std::span<const float> logits, int32_t chosen, size_t count);
// The same from what a device read of the row: `norm` = LogSumExp, the logit of the chosen token, and the best tokens in
// order with their logits in place of log-probabilities.
Logprobs FinishLogprobs(double norm, float chosen, std::vector<TokenLogprob> best);

}  // namespace deepinfer::sampling
