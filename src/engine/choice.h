// SPDX-License-Identifier: Apache-2.0
// What the drawing of one answer needs, beside the model: settings, counts for penalties, its grammar, and when it ends.
// Handed from the engine to the executor with each step; the executor alone touches it once the request runs, one thread
// at a time. Choices of one request share a grammar's caches: that holds for all of them together.
//
// Which tokens may come, in this order:
//   1. those that the grammar allows (before it begins: all but the model's end tokens);
//   2. of those, the ones that complete no bad word;
//   3. of those, no end token before min_tokens, nor ever under ignore_eos; but where nothing else is left, the answer
//      may end.
// Where (2) leaves nothing, the answer fails: its grammar and its bad words contradict each other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/api/ops.h"
#include "engine/answer_grammar.h"
#include "sampling/sampler.h"
#include "spec/rejection.h"

namespace deepinfer::engine {

struct ChoiceSettings {
  sampling::SamplingParams sampling;
  int64_t max_tokens = 0;
  int64_t min_tokens = 0;                       // end tokens are forbidden before
  std::vector<int32_t> end_tokens;              // ascending
  std::vector<int32_t> model_end_tokens;        // of those: what ends a grammar
  std::vector<std::vector<int32_t>> bad_words;  // token sequences that never become complete
  std::optional<int> logprobs;
  std::optional<int> prompt_logprobs;           // of choice 0 alone
  size_t mask_words = 0;                        // of a grammar's masks
  // Drafts that a step verifies: kDraftsAsTheyPay, or always so many; 0: none.
  int drafts = 0;
  spec::Acceptance acceptance = spec::Acceptance::kCoupled;
};

inline constexpr int kDraftsAsTheyPay = -1;

struct Drawn {
  int32_t token = 0;
  bool failed = false;  // no token: the answer cannot go on
  bool ends = false;    // by an end token or by max_tokens
  bool is_end_token = false;
  std::string error;    // where it failed: why
  std::optional<sampling::Logprobs> logprobs;
};

// A draw that a device makes. The lists are the choice's and change with it.
struct DeviceDraw {
  backend::AdjustedDraw draw;  // without places in lists
  bool plain = true;           // draw.draw alone counts
  std::span<const uint32_t> mask;  // empty: every token is allowed
  std::span<const backend::LogitEdit> edits, overrides;  // overrides: of tokens that are supposed
  std::optional<int> logprobs;
};

class Choice {
 public:
  Choice(ChoiceSettings settings, std::span<const int32_t> prompt, std::optional<AnswerGrammar> grammar = {});

  // Whether draws need masks: PrepareMasks is then worth calling while the forward pass runs.
  bool has_grammar() const { return grammar_.has_value(); }
  // Of all choices of the request, for whoever has masks prepared elsewhere. REQUIRES: has_grammar().
  const std::shared_ptr<MaskWork>& mask_work() const { return grammar_->work(); }
  // Whether the mask of the next draw is prepared.
  bool has_mask() const { return masks_used_ < masks_ready_; }
  // Whether its drafts are judged by chance (spec/rejection.h). A greedy answer's never are: it has but one course.
  bool judged() const { return settings_.acceptance != spec::Acceptance::kCoupled && !settings_.sampling.greedy(); }
  // Judged, and always so many drafts: the answer is then a function of the request, if no step has fewer.
  bool firm() const { return judged() && settings_.drafts > 0; }
  // Computes the masks of the next draw and, should it and those behind it give just `drafts`, of the draws behind it.
  // Costs time, changes nothing: a draw without a prepared mask prepares its own.
  void PrepareMasks(std::span<const int32_t> drafts = {});
  // Draws the token at `position`; the answer goes on behind it.
  Drawn Draw(std::span<const float> logits, uint32_t position);
  // The draw at `position` for a device that holds the logits; nothing where the host has to make it. Take then goes on with
  // what came of it (token -1: none). Suppose goes on behind a token that may turn out not to be drawn, so that the draw
  // behind it can be planned too; false: it cannot be drawn. DropDrafts forgets what was supposed.
  std::optional<DeviceDraw> PlanDraw(uint32_t position, int64_t vocab);
  Drawn Take(int32_t token, std::optional<sampling::Logprobs> logprobs);
  bool Suppose(int32_t token);
  // Whether the draws of a whole block may be planned as the first of them is, without a look at what the others draw: no
  // token's being allowed depends on it. Penalties for tokens of the block itself are then missing, but a draft is no more
  // than a guess.
  bool DraftsAhead() const;
  // The token that Draw would take at `position` if those drafted before it were part of the answer; nothing where no
  // token is allowed. DropDrafts forgets them all.
  std::optional<int32_t> Draft(std::span<const float> logits, uint32_t position);
  // The same with noise of a judged draft at `place` in its block; `distribution` [vocab]: what it was drawn from.
  std::optional<int32_t> DraftApart(std::span<const float> logits, uint32_t position, uint32_t place,
                                    std::span<float> distribution);
  // What Draw would draw from if what is supposed were part of the answer, or why there is no token.
  Status Target(std::span<const float> logits, std::span<float> distribution);
  // The answer goes on with a token that was chosen from `logits` by a verdict. REQUIRES: nothing is supposed.
  Drawn Put(std::span<const float> logits, int32_t token);
  void DropDrafts() { DropDrafts(drafted_); }
  // The last ones of them.
  void DropDrafts(size_t count);

  // Log-probabilities of the prompt, for a choice that wants them: its rows in order, some perhaps again (a resumed
  // request), which are dropped.
  bool wants_prompt_logprobs() const { return settings_.prompt_logprobs && prompt_scored_ + 1 < prompt_.size(); }
  size_t prompt_tokens() const { return prompt_.size(); }
  // `logits` are those of prompt token `position`, so of what follows it. REQUIRES: position + 1 < prompt_tokens().
  void ScorePrompt(size_t position, std::span<const float> logits);
  // REQUIRES: the first token was drawn.
  std::vector<sampling::Logprobs> TakePromptLogprobs() { return std::move(prompt_logprobs_); }

  const ChoiceSettings& settings() const { return settings_; }
  bool IsEnd(int32_t token) const;
  // Whether the last drawn token ended the answer, and how many tokens it may still get.
  bool ended() const { return ended_; }
  int64_t tokens_left() const { return settings_.max_tokens - static_cast<int64_t>(answer_.size()); }

 private:
  // A grammar's mask for one draw. Empty and without an error: any token.
  struct Mask {
    std::vector<uint32_t> words;
    Status status;
  };

  void Fill(Mask* mask);
  const Mask* NextMask();
  // The mask of the draw, by the rules above; nothing where no token is left.
  std::optional<std::span<const uint32_t>> Allowed(size_t vocab, std::span<const uint32_t> from_grammar);
  void FindBadWords();
  // The token at `position`, or why there is none.
  Result<int32_t> Pick(std::span<const float> logits, uint32_t position, const Mask* mask);
  // What a draw with that mask is made from; its own mask lives until the next call.
  Result<sampling::SampleInput> InputOf(std::span<const float> logits, const Mask* mask);
  // The grammar's mask behind the drafts taken so far.
  const Mask* MaskBehindDrafts();
  Status Append(int32_t token);
  // Of choice_device.cc: seed and temperature alone; the list of edits as it stands, and one of its tokens after the counts changed.
  backend::SampleDraw PlainDraw(uint32_t position) const;
  void ListEdits();
  void NoteEdit(int32_t token);
  Drawn GoOn(const Result<int32_t>& token);
  static Status NoToken();

  ChoiceSettings settings_;
  std::vector<int32_t> prompt_;  // only where its log-probabilities are wanted
  std::vector<sampling::Logprobs> prompt_logprobs_;
  size_t prompt_scored_ = 0;     // from the first on
  sampling::TokenCounts counts_;
  sampling::Sampler sampler_;
  std::vector<int32_t> answer_;  // and, while a block is drawn, its drafts
  size_t drafted_ = 0;
  bool ended_ = false;
  std::vector<int32_t> forbidden_;
  std::vector<uint32_t> allowed_, without_ends_;

  std::optional<AnswerGrammar> grammar_;
  std::vector<Mask> masks_;         // [0, masks_ready_): of the next draws
  size_t masks_ready_ = 0, masks_used_ = 0;
  std::vector<int32_t> expected_;   // mask i + 1 supposes that draw i gave expected_[i]
  Mask draft_mask_;

  // What penalties and bias make of logits, for a device; kept up to date once it was asked for.
  bool edits_listed_ = false, edits_known_ = true;
  std::vector<backend::LogitEdit> edits_, overrides_;
  std::unordered_map<int32_t, size_t> edit_places_;
};

}  // namespace deepinfer::engine
