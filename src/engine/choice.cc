// SPDX-License-Identifier: Apache-2.0
#include "engine/choice.h"

#include <algorithm>

namespace deepinfer::engine {

Choice::Choice(ChoiceSettings settings, std::span<const int32_t> prompt) : settings_(std::move(settings)) {
  if (settings_.sampling.repetition_penalty != 1) {
    for (const int32_t token : prompt) ++counts_.prompt[token];
  }
}

std::span<const uint32_t> Choice::Forbid(size_t vocab, std::span<const uint32_t> mask) {
  forbidden_.clear();
  if (static_cast<int64_t>(answer_.size()) < settings_.min_tokens) forbidden_ = settings_.end_tokens;
  for (const std::vector<int32_t>& word : settings_.bad_words) {
    const size_t before = word.size() - 1;
    if (answer_.size() >= before && std::equal(word.begin(), word.end() - 1, answer_.end() - static_cast<std::ptrdiff_t>(before))) {
      forbidden_.push_back(word.back());
    }
  }
  if (forbidden_.empty()) return mask;
  if (mask.empty()) {
    mask_.assign((vocab + 31) / 32, ~uint32_t{0});
  } else {
    mask_.assign(mask.begin(), mask.end());
  }
  for (const int32_t token : forbidden_) mask_[static_cast<size_t>(token) / 32] &= ~(uint32_t{1} << (token % 32));
  return mask_;
}

std::optional<int32_t> Choice::Pick(std::span<const float> logits, uint32_t position, std::span<const uint32_t> mask) {
  return sampler_.Sample(settings_.sampling,
                         {.logits = logits, .position = position, .counts = &counts_, .mask = Forbid(logits.size(), mask)});
}

void Choice::Append(int32_t token) {
  if (settings_.sampling.has_penalties()) ++counts_.answer[token];
  answer_.push_back(token);
}

bool Choice::IsEnd(int32_t token) const {
  return std::binary_search(settings_.end_tokens.begin(), settings_.end_tokens.end(), token);
}

Drawn Choice::Draw(std::span<const float> logits, uint32_t position, std::span<const uint32_t> mask) {
  const std::optional<int32_t> token = Pick(logits, position, mask);
  if (!token) return {.failed = true, .ends = true};
  Drawn drawn{.token = *token};
  Append(*token);
  drawn.is_end_token = IsEnd(*token);
  drawn.ends = ended_ = drawn.is_end_token || tokens_left() <= 0;
  if (settings_.logprobs) {
    drawn.logprobs = sampling::ComputeLogprobs(logits, *token, static_cast<size_t>(*settings_.logprobs));
  }
  return drawn;
}

std::optional<int32_t> Choice::Draft(std::span<const float> logits, uint32_t position) {
  const std::optional<int32_t> token = Pick(logits, position, {});
  if (!token) return std::nullopt;
  Append(*token);
  ++drafted_;
  return token;
}

void Choice::DropDrafts() {
  for (; drafted_ > 0; --drafted_) {
    if (settings_.sampling.has_penalties()) {
      const auto count = counts_.answer.find(answer_.back());
      // A count of 0 would still be penalised as present.
      if (--count->second == 0) counts_.answer.erase(count);
    }
    answer_.pop_back();
  }
}

}  // namespace deepinfer::engine
