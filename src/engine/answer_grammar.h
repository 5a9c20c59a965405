// SPDX-License-Identifier: Apache-2.0
// Where one answer stands with its grammar: before it begins (the thinking, which is free), or within it. Follows the
// answer token by token and can step back, for drafts.
// An AnswerGrammar and all its forks together belong to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "deepinfer/grammar.h"
#include "engine/mask_work.h"

namespace deepinfer::engine {

class AnswerGrammar {
 public:
  // `begins_after`: the grammar begins behind the first of these tokens; none: with the answer. Takes about as long as
  // compiling did where all idle engines of the grammar are in use.
  AnswerGrammar(const grammar::CompiledGrammar& grammar, std::optional<int32_t> begins_after);
  // Another answer at the same place.
  AnswerGrammar Fork() const;

  // False before the grammar begins: every token but the model's own end tokens may come.
  bool begun() const { return begun_; }
  // kResourceExhausted: a limit. REQUIRES: begun(), and mask has the vocabulary's mask_words().
  Status FillMask(std::span<uint32_t> mask) { return matcher_.FillMask(mask); }
  // kInvalidArgument: not allowed here, nothing is changed. kResourceExhausted: a limit.
  Status Accept(int32_t token);
  // Takes back the last `count` tokens. REQUIRES: that many were accepted.
  void Rollback(size_t count);
  // What it shares with all its forks.
  const std::shared_ptr<MaskWork>& work() const { return work_; }

 private:
  AnswerGrammar(grammar::Matcher matcher, std::optional<int32_t> begins_after, bool begun, std::shared_ptr<MaskWork> work)
      : matcher_(std::move(matcher)), begins_after_(begins_after), begun_(begun), work_(std::move(work)) {}

  grammar::Matcher matcher_;
  std::optional<int32_t> begins_after_;
  bool begun_;
  std::shared_ptr<MaskWork> work_;
};

}  // namespace deepinfer::engine
