// SPDX-License-Identifier: Apache-2.0
// What the drawing of one answer needs, beside the model: settings, counts for penalties, and when it ends. Handed from
// the engine to the executor with each step; the executor alone touches it once the request runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sampling/sampler.h"

namespace deepinfer::engine {

struct ChoiceSettings {
  sampling::SamplingParams sampling;
  int64_t max_tokens = 0;
  int64_t min_tokens = 0;                       // end tokens are forbidden before
  std::vector<int32_t> end_tokens;              // ascending
  std::vector<std::vector<int32_t>> bad_words;  // token sequences that never become complete
  std::optional<int> logprobs;
};

struct Drawn {
  int32_t token = 0;
  bool failed = false;  // no token is allowed
  bool ends = false;    // by an end token or by max_tokens
  bool is_end_token = false;
  std::optional<sampling::Logprobs> logprobs;
};

class Choice {
 public:
  Choice(ChoiceSettings settings, std::span<const int32_t> prompt);

  // Draws the token at `position`. `mask`: allowed tokens, empty: all.
  Drawn Draw(std::span<const float> logits, uint32_t position, std::span<const uint32_t> mask = {});
  const ChoiceSettings& settings() const { return settings_; }

 private:
  // Joins end tokens that come too early and words that would become complete to the mask.
  std::span<const uint32_t> Forbid(size_t vocab, std::span<const uint32_t> mask);

  ChoiceSettings settings_;
  sampling::TokenCounts counts_;
  sampling::Sampler sampler_;
  std::vector<int32_t> answer_;
  std::vector<int32_t> forbidden_;
  std::vector<uint32_t> mask_;
};

}  // namespace deepinfer::engine
