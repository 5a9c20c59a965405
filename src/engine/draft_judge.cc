// SPDX-License-Identifier: Apache-2.0
#include "engine/draft_judge.h"

namespace deepinfer::engine {

std::span<const float> DraftJudge::Target(Choice* choice, const Input& input, size_t row, Status* status) {
  const size_t vocab = input.logits.size() / (input.drafts.size() + 1);
  if (row > 0) {
    const int32_t draft = input.drafts[row - 1];
    if (choice->IsEnd(draft) || !choice->Suppose(draft)) return {};
  }
  const auto target = std::span(targets_).subspan(row * vocab, vocab);
  *status = choice->Target(input.logits.subspan(row * vocab, vocab), target);
  return status->ok() ? target : std::span<float>();
}

DraftJudge::Outcome DraftJudge::Judge(Choice* choice, const Input& input) {
  if (targets_.size() < input.logits.size()) targets_.resize(input.logits.size());
  Outcome outcome;
  const sampling::SamplingParams& sampling = choice->settings().sampling;
  const spec::VerifyInput verify{
      .drafts = input.drafts,
      .draft = input.distributions,
      .target = [&](size_t row) { return Target(choice, input, row, &outcome.status); },
      .seed = sampling.seed,
      .choice = sampling.choice,
      .position = input.position,
  };
  const bool by_block = choice->settings().acceptance == spec::Acceptance::kBlock;
  outcome.verdict = by_block ? spec::VerifyByBlock(verify) : spec::VerifyByToken(verify);
  choice->DropDrafts();
  return outcome;
}

}  // namespace deepinfer::engine
