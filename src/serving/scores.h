// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of the engine in the recipe's form. Functions of their arguments.
#pragma once

#include <span>
#include <vector>

#include "deepinfer/engine.h"
#include "deepinfer/recipe.h"

namespace deepinfer::serving {

// Those of a prompt for AnswerStream::SetPromptScores.
class PromptScores {
 public:
  explicit PromptScores(std::span<const PromptLogprob> prompt) {
    tops_.reserve(prompt.size());
    for (const PromptLogprob& token : prompt) {
      std::vector<recipe::TokenCandidate>& top = tops_.emplace_back();
      for (const TokenAlternative& a : token.alternatives) top.push_back({.id = a.token, .logprob = a.logprob});
      scores_.push_back({.logprob = token.logprob, .top = top});
    }
  }
  PromptScores(const PromptScores&) = delete;
  PromptScores& operator=(const PromptScores&) = delete;

  std::span<const recipe::TokenScore> scores() const { return scores_; }

 private:
  std::vector<std::vector<recipe::TokenCandidate>> tops_;
  std::vector<recipe::TokenScore> scores_;  // views of tops_
};

}  // namespace deepinfer::serving
