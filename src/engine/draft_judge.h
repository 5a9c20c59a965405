// SPDX-License-Identifier: Apache-2.0
// Judges the drafts of one answer by chance: its settings, counts and masks make the target's distributions, as if the
// drafts before each row stood; spec/rejection.h says which do, and what follows. Rows that the verdict does not need are
// not looked at. Holds scratch memory of a block's rows; one thread at a time.
#pragma once

#include <span>
#include <vector>

#include "engine/choice.h"

namespace deepinfer::engine {

class DraftJudge {
 public:
  struct Input {
    std::span<const int32_t> drafts;       // at least one
    std::span<const float> distributions;  // [drafts, vocab]: what they were drawn from
    std::span<const float> logits;         // [drafts + 1, vocab]: the model's, of the newest token and of each draft
    uint32_t position = 0;                 // of the first draft
  };
  struct Outcome {
    spec::Verdict verdict;
    Status status;  // why no token follows, where that is not because the answer ends
  };
  // The choice is left as it was: its answer goes on when the tokens are put there. REQUIRES: choice->judged().
  Outcome Judge(Choice* choice, const Input& input);

 private:
  // Row `row` of the target, the rows before it having been asked for; empty where nothing can follow the draft before it.
  std::span<const float> Target(Choice* choice, const Input& input, size_t row, Status* status);

  std::vector<float> targets_;  // [drafts + 1, vocab]
};

}  // namespace deepinfer::engine
