// SPDX-License-Identifier: Apache-2.0
#include "engine/answer_grammar.h"

#include <algorithm>

namespace deepinfer::engine {

AnswerGrammar::AnswerGrammar(const grammar::CompiledGrammar& grammar, std::optional<int32_t> begins_after)
    : matcher_(grammar), begins_after_(begins_after), begun_(!begins_after), work_(std::make_shared<MaskWork>()) {}

AnswerGrammar AnswerGrammar::Fork() const { return {matcher_.Fork(), begins_after_, begun_, work_}; }

Status AnswerGrammar::Accept(int32_t token) {
  if (begun_) return matcher_.Accept(static_cast<uint32_t>(token));
  begun_ = token == *begins_after_;
  return Status();
}

void AnswerGrammar::Rollback(size_t count) {
  if (!begun_) return;
  const size_t within = std::min(count, matcher_.accepted());
  matcher_.Rollback(within);
  // What is left reaches back to the token that began the grammar.
  if (count > within && begins_after_) begun_ = false;
}

}  // namespace deepinfer::engine
