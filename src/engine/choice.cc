// SPDX-License-Identifier: Apache-2.0
#include "engine/choice.h"

#include <time.h>

#include <algorithm>

namespace deepinfer::engine {
namespace {

// Of processor time: what else runs on the machine makes no mask slow.
double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

bool IsEmpty(std::span<const uint32_t> mask) {
  return std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; });
}

// `mask` (empty: all tokens) without `tokens`, in `out`.
std::span<const uint32_t> Without(std::span<const int32_t> tokens, size_t vocab, std::span<const uint32_t> mask,
                                  std::vector<uint32_t>* out) {
  if (mask.empty()) {
    out->assign((vocab + 31) / 32, ~uint32_t{0});
  } else {
    out->assign(mask.begin(), mask.end());
  }
  for (const int32_t token : tokens) (*out)[static_cast<size_t>(token) / 32] &= ~(uint32_t{1} << (token % 32));
  return *out;
}

}  // namespace

Choice::Choice(ChoiceSettings settings, std::span<const int32_t> prompt, std::optional<AnswerGrammar> grammar)
    : settings_(std::move(settings)), grammar_(std::move(grammar)) {
  if (settings_.sampling.repetition_penalty != 1) {
    for (const int32_t token : prompt) ++counts_.prompt[token];
  }
  // So that drawing a token allocates nothing, for answers of a usual length.
  constexpr int64_t kReserved = int64_t{1} << 14;
  answer_.reserve(static_cast<size_t>(std::min(settings_.max_tokens, kReserved)));
  if (settings_.prompt_logprobs) {
    prompt_.assign(prompt.begin(), prompt.end());
    prompt_logprobs_.reserve(prompt.size() - 1);
  }
}

void Choice::ScorePrompt(size_t position, std::span<const float> logits) {
  if (position != prompt_scored_) return;
  const auto alternatives = static_cast<size_t>(*settings_.prompt_logprobs);
  prompt_logprobs_.push_back(sampling::ComputeLogprobs(logits, prompt_[position + 1], alternatives));
  ++prompt_scored_;
}

void Choice::Fill(Mask* mask) {
  mask->status = Status();
  mask->words.clear();
  if (!grammar_->begun()) return;
  const double start = ThreadSeconds();
  mask->words.resize(settings_.mask_words);
  mask->status = grammar_->FillMask(mask->words);
  grammar_->work()->NoteSeconds(ThreadSeconds() - start);
}

void Choice::PrepareMasks(std::span<const int32_t> drafts) {
  masks_ready_ = masks_used_ = 0;
  expected_.clear();
  if (!grammar_) return;
  while (true) {
    if (masks_ready_ == masks_.size()) masks_.emplace_back();
    Fill(&masks_[masks_ready_++]);
    const size_t next = expected_.size();
    if (next == drafts.size() || !grammar_->Accept(drafts[next]).ok()) break;
    expected_.push_back(drafts[next]);
  }
  grammar_->Rollback(expected_.size());
}

const Choice::Mask* Choice::NextMask() {
  if (masks_used_ == masks_ready_) PrepareMasks();
  return &masks_[masks_used_];
}

void Choice::FindBadWords() {
  forbidden_.clear();
  for (const std::vector<int32_t>& word : settings_.bad_words) {
    const size_t before = word.size() - 1;
    if (answer_.size() >= before && std::equal(word.begin(), word.end() - 1, answer_.end() - static_cast<std::ptrdiff_t>(before))) {
      forbidden_.push_back(word.back());
    }
  }
}

std::optional<std::span<const uint32_t>> Choice::Allowed(size_t vocab, std::span<const uint32_t> from_grammar) {
  std::span<const uint32_t> allowed = from_grammar;
  FindBadWords();
  if (!forbidden_.empty()) allowed = Without(forbidden_, vocab, allowed, &allowed_);
  if (!allowed.empty() && IsEmpty(allowed)) return std::nullopt;
  const bool too_early = static_cast<int64_t>(answer_.size()) < settings_.min_tokens;
  const bool before_grammar = grammar_ && !grammar_->begun();
  if (!too_early && !before_grammar) return allowed;
  const std::span<const uint32_t> rest =
      Without(too_early ? settings_.end_tokens : settings_.model_end_tokens, vocab, allowed, &without_ends_);
  return grammar_ && !before_grammar && IsEmpty(rest) ? allowed : rest;
}

Result<sampling::SampleInput> Choice::InputOf(std::span<const float> logits, const Mask* mask) {
  if (mask != nullptr) DI_RETURN_IF_ERROR(mask->status);
  const std::optional<std::span<const uint32_t>> allowed =
      Allowed(logits.size(), mask == nullptr ? std::span<const uint32_t>() : mask->words);
  if (!allowed) {
    return Error(Code::kFailedPrecondition, "no token is allowed: bad_words forbids all {}",
                 grammar_ ? "that the grammar allows here" : "of them");
  }
  return sampling::SampleInput{.logits = logits, .counts = &counts_, .mask = *allowed};
}

Result<int32_t> Choice::Pick(std::span<const float> logits, uint32_t position, const Mask* mask) {
  DI_ASSIGN_OR_RETURN(sampling::SampleInput input, InputOf(logits, mask));
  input.position = position;
  const std::optional<int32_t> token = sampler_.Sample(settings_.sampling, input);
  if (!token) return NoToken();
  return *token;
}

Status Choice::Append(int32_t token) {
  if (grammar_) DI_RETURN_IF_ERROR(grammar_->Accept(token));
  if (settings_.sampling.has_penalties()) {
    ++counts_.answer[token];
    if (edits_listed_) NoteEdit(token);
  }
  answer_.push_back(token);
  return Status();
}

bool Choice::IsEnd(int32_t token) const {
  return std::binary_search(settings_.end_tokens.begin(), settings_.end_tokens.end(), token);
}

Drawn Choice::Draw(std::span<const float> logits, uint32_t position) {
  const Result<int32_t> token = Pick(logits, position, grammar_ ? NextMask() : nullptr);
  return token.ok() ? Put(logits, *token) : GoOn(token);
}

Drawn Choice::Put(std::span<const float> logits, int32_t token) {
  Drawn drawn = GoOn(token);
  if (settings_.logprobs && !drawn.failed) {
    drawn.logprobs = sampling::ComputeLogprobs(logits, drawn.token, static_cast<size_t>(*settings_.logprobs));
  }
  return drawn;
}

Status Choice::NoToken() {
  return Error(Code::kInternal, "no token is allowed here, or the model gave no logit that is a number");
}

Drawn Choice::GoOn(const Result<int32_t>& token) {
  const Status status = token.ok() ? Append(*token) : token.status();
  if (!status.ok()) return {.failed = true, .ends = true, .error = status.message()};
  const bool as_expected = masks_used_ < expected_.size() && expected_[masks_used_] == *token;
  masks_used_ = as_expected ? masks_used_ + 1 : masks_ready_;
  Drawn drawn{.token = *token};
  drawn.is_end_token = IsEnd(*token);
  drawn.ends = ended_ = drawn.is_end_token || tokens_left() <= 0;
  return drawn;
}

std::optional<int32_t> Choice::Draft(std::span<const float> logits, uint32_t position) {
  if (grammar_) Fill(&draft_mask_);
  const Result<int32_t> token = Pick(logits, position, grammar_ ? &draft_mask_ : nullptr);
  return token.ok() && Suppose(*token) ? std::optional<int32_t>(*token) : std::nullopt;
}

std::optional<int32_t> Choice::DraftApart(std::span<const float> logits, uint32_t position, uint32_t place,
                                          std::span<float> distribution) {
  if (grammar_) Fill(&draft_mask_);
  Result<sampling::SampleInput> input = InputOf(logits, grammar_ ? &draft_mask_ : nullptr);
  if (!input.ok()) return std::nullopt;
  input->position = position;
  input->stream = sampling::NoiseStream::kDraft;
  input->block_offset = place;
  const std::optional<int32_t> token = sampler_.Sample(settings_.sampling, *input);
  if (!token || !sampler_.Distribution(settings_.sampling, *input, distribution)) return std::nullopt;
  return Suppose(*token) ? token : std::nullopt;
}

const Choice::Mask* Choice::MaskBehindDrafts() {
  if (!grammar_) return nullptr;
  const auto drafts = std::span(answer_).last(drafted_);
  const size_t ready = masks_used_ + drafted_;
  const auto expected = expected_.begin() + static_cast<std::ptrdiff_t>(masks_used_);
  const bool prepared = ready < masks_ready_ && std::equal(drafts.begin(), drafts.end(), expected);
  if (prepared) return &masks_[ready];
  Fill(&draft_mask_);
  return &draft_mask_;
}

Status Choice::Target(std::span<const float> logits, std::span<float> distribution) {
  DI_ASSIGN_OR_RETURN(const sampling::SampleInput input, InputOf(logits, MaskBehindDrafts()));
  return sampler_.Distribution(settings_.sampling, input, distribution) ? Status() : NoToken();
}

bool Choice::Suppose(int32_t token) {
  if (token < 0 || !Append(token).ok()) return false;
  ++drafted_;
  return true;
}

void Choice::DropDrafts(size_t count) {
  if (grammar_) grammar_->Rollback(count);
  drafted_ -= count;
  for (; count > 0; --count) {
    if (settings_.sampling.has_penalties()) {
      const auto counted = counts_.answer.find(answer_.back());
      // A count of 0 would still be penalised as present.
      if (--counted->second == 0) counts_.answer.erase(counted);
      if (edits_listed_) NoteEdit(answer_.back());
    }
    answer_.pop_back();
  }
}

}  // namespace deepinfer::engine
