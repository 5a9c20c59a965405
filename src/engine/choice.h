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
  // Drafts that a step verifies: kDraftsAsTheyPay, or always so many; 0: none.
  int drafts = 0;
};

inline constexpr int kDraftsAsTheyPay = -1;

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
  // The token that Draw would take at `position` if those drafted before it were part of the answer; nothing where no
  // token is allowed. DropDrafts forgets them all.
  std::optional<int32_t> Draft(std::span<const float> logits, uint32_t position);
  void DropDrafts();

  const ChoiceSettings& settings() const { return settings_; }
  bool IsEnd(int32_t token) const;
  // Whether the last drawn token ended the answer, and how many tokens it may still get.
  bool ended() const { return ended_; }
  int64_t tokens_left() const { return settings_.max_tokens - static_cast<int64_t>(answer_.size()); }

 private:
  std::optional<int32_t> Pick(std::span<const float> logits, uint32_t position, std::span<const uint32_t> mask);
  void Append(int32_t token);
  // Joins end tokens that come too early and words that would become complete to the mask.
  std::span<const uint32_t> Forbid(size_t vocab, std::span<const uint32_t> mask);

  ChoiceSettings settings_;
  sampling::TokenCounts counts_;
  sampling::Sampler sampler_;
  std::vector<int32_t> answer_;  // and, while a block is drawn, its drafts
  size_t drafted_ = 0;
  bool ended_ = false;
  std::vector<int32_t> forbidden_;
  std::vector<uint32_t> mask_;
};

}  // namespace deepinfer::engine
