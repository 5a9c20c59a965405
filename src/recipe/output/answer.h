// SPDX-License-Identifier: Apache-2.0
// One choice of an answer, collected from parser events: what the whole answers of all protocols are written from.
// Plain values. Not for concurrent use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipe/output/output_events.h"
#include "recipe/output/output_parser.h"

namespace deepinfer::recipe {

struct AnswerPart {
  enum class Kind { kReasoning, kText, kCall };
  Kind kind = Kind::kText;
  std::string text;  // of a call: its arguments
  // Calls:
  std::string name;
  std::string id;
  int32_t call = -1;
  bool whole = false;  // the arguments are complete
  // Reasoning and text, where the backend gave logprobs:
  std::vector<TokenLogprob> logprobs;
  std::vector<TokenCandidate> candidates;
};

struct MalformedCall {
  int32_t call = -1;  // -1: none was begun
  Malformed reason = Malformed::kNone;
  std::string raw;
};

struct Answer {
  std::vector<AnswerPart> parts;  // in order of appearance; neighbours differ in kind unless they are calls
  std::vector<MalformedCall> malformed;
  FinishReason finish = FinishReason::kStop;
  std::string stop_sequence;
  OutputUsage usage;

  bool HasCalls() const;
  std::string Joined(AnswerPart::Kind kind) const;
  // Takes one event in. A new call gets `call_id`. Returns true where it began a new part.
  bool Take(const OutputEvents& events, const OutputEvent& event, const std::string& call_id);
};

}  // namespace deepinfer::recipe
