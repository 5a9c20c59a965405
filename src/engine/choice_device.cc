// SPDX-License-Identifier: Apache-2.0
// Draws that a device makes: what Choice::Draw would do, as data (backend/api/ops.h, AdjustedDraw).
#include <algorithm>

#include "engine/choice.h"

namespace deepinfer::engine {

void Choice::NoteEdit(int32_t token) {
  const sampling::SamplingParams& p = settings_.sampling;
  const auto [place, is_new] = edit_places_.try_emplace(token, edits_.size());
  if (is_new) edits_.push_back({.token = token});
  backend::LogitEdit& edit = edits_[place->second];
  const auto count = counts_.answer.find(token);
  const bool answered = count != counts_.answer.end();
  edit.repeat = answered || counts_.prompt.contains(token) ? p.repetition_penalty : 1;
  edit.off = answered ? p.presence_penalty + p.frequency_penalty * static_cast<float>(count->second) : 0;
}

void Choice::ListEdits() {
  if (edits_listed_) return;
  edits_listed_ = true;
  if (settings_.sampling.has_penalties()) {
    for (const auto& [token, count] : counts_.prompt) NoteEdit(token);
    for (const auto& [token, count] : counts_.answer) NoteEdit(token);
  }
  for (const auto& [token, bias] : settings_.sampling.logit_bias) {
    NoteEdit(token);
    float& sum = edits_[edit_places_.at(token)].bias;
    edits_known_ = edits_known_ && sum == 0;  // two of a token are added one after the other, which is not their sum
    sum = bias;
  }
}

backend::SampleDraw Choice::PlainDraw(uint32_t position) const {
  const sampling::SamplingParams& p = settings_.sampling;
  const sampling::NoiseKey key{.seed = p.seed, .position = position, .choice = p.choice};
  return {.seed = key.seed,
          .position = key.position,
          .choice = key.choice,
          .stream = key.stream_word(),
          .temperature = p.greedy() ? 0.0f : p.temperature};
}

bool Choice::DraftsAhead() const {
  return !grammar_ && settings_.bad_words.empty() && static_cast<int64_t>(answer_.size()) >= settings_.min_tokens;
}

std::optional<DeviceDraw> Choice::PlanDraw(uint32_t position, int64_t vocab) {
  const sampling::SamplingParams& p = settings_.sampling;
  ListEdits();
  if (!edits_known_ || vocab > backend::kAdjustedVocabMax || settings_.logprobs.value_or(0) > backend::kTopLogitsMax) return {};
  const Mask* mask = nullptr;
  if (grammar_) {
    const size_t ahead = masks_used_ + drafted_;
    if (ahead >= masks_ready_) Fill(&draft_mask_);
    mask = ahead < masks_ready_ ? &masks_[ahead] : &draft_mask_;
    if (!mask->status.ok()) return {};
  }
  const auto allowed = Allowed(static_cast<size_t>(vocab), mask == nullptr ? std::span<const uint32_t>() : mask->words);
  if (!allowed) return {};
  DeviceDraw draw{.draw = {.draw = PlainDraw(position)}, .mask = *allowed, .edits = edits_, .logprobs = settings_.logprobs};
  overrides_.clear();
  if (!edits_.empty()) {
    const auto supposed = std::span(answer_).last(drafted_);
    for (size_t i = 0; i < supposed.size(); ++i) {
      const auto place = edit_places_.find(supposed[i]);
      const auto before = supposed.first(i);
      if (place == edit_places_.end() || std::find(before.begin(), before.end(), supposed[i]) != before.end()) continue;
      overrides_.push_back(edits_[place->second]);
    }
  }
  draw.overrides = overrides_;
  if (!p.greedy()) {
    draw.draw.top_k = static_cast<int32_t>(std::min<int64_t>(p.top_k, vocab));
    draw.draw.top_p = p.top_p;
    draw.draw.min_p = p.min_p;
  }
  draw.plain = draw.mask.empty() && edits_.empty() && draw.draw.top_k == 0 && !(draw.draw.top_p < 1) && draw.draw.min_p <= 0;
  return draw;
}

Drawn Choice::Take(int32_t token, std::optional<sampling::Logprobs> logprobs) {
  Drawn drawn = GoOn(token >= 0 ? Result<int32_t>(token) : Result<int32_t>(NoToken()));
  if (!drawn.failed) drawn.logprobs = std::move(logprobs);
  return drawn;
}

}  // namespace deepinfer::engine
