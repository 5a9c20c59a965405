// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/answer.h"

#include <algorithm>

namespace deepinfer::recipe {
namespace {

void TakeLogprobs(const OutputEvents& events, const OutputEvent& event, AnswerPart* part) {
  for (TokenLogprob token : events.Logprobs(event)) {
    const auto top = events.Top(token);
    token.top_begin = static_cast<uint32_t>(part->candidates.size());
    part->candidates.insert(part->candidates.end(), top.begin(), top.end());
    part->logprobs.push_back(token);
  }
}

}  // namespace

bool Answer::HasCalls() const {
  return std::any_of(parts.begin(), parts.end(), [](const AnswerPart& p) { return p.kind == AnswerPart::Kind::kCall; });
}

std::string Answer::Joined(AnswerPart::Kind kind) const {
  std::string text;
  for (const AnswerPart& part : parts) {
    if (part.kind == kind) text += part.text;
  }
  return text;
}

bool Answer::Take(const OutputEvents& events, const OutputEvent& event, const std::string& call_id) {
  const std::string_view text = events.Text(event);
  switch (event.kind) {
    case OutputEventKind::kReasoning:
    case OutputEventKind::kContent: {
      const auto kind =
          event.kind == OutputEventKind::kReasoning ? AnswerPart::Kind::kReasoning : AnswerPart::Kind::kText;
      const bool fresh = parts.empty() || parts.back().kind != kind;
      if (fresh) parts.emplace_back().kind = kind;
      parts.back().text += text;
      TakeLogprobs(events, event, &parts.back());
      return fresh;
    }
    case OutputEventKind::kCallBegin: {
      AnswerPart& part = parts.emplace_back();
      part.kind = AnswerPart::Kind::kCall;
      part.name = text;
      part.id = call_id;
      part.call = event.call;
      return true;
    }
    case OutputEventKind::kCallArguments: parts.back().text += text; return false;
    case OutputEventKind::kCallEnd: parts.back().whole = true; return false;
    case OutputEventKind::kMalformed:
      malformed.push_back({.call = event.call, .reason = event.malformed, .raw = std::string(text)});
      return false;
    case OutputEventKind::kFinish:
      finish = event.finish;
      stop_sequence = text;
      return false;
  }
  return false;
}

}  // namespace deepinfer::recipe
