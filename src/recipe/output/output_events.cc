// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/output_events.h"

#include "core/check.h"

namespace deepinfer::recipe {

std::string_view MalformedText(Malformed reason) {
  switch (reason) {
    case Malformed::kNone: return "";
    case Malformed::kCut: return "the output ended within the call";
    case Malformed::kNoCall: return "text between calls that is no call";
    case Malformed::kBadName: return "the call has no usable function name";
    case Malformed::kBadBody: return "the call's body is neither parameters nor a JSON object";
    case Malformed::kBadParameter: return "the opening tag of a parameter cannot be read";
    case Malformed::kDuplicateParameter: return "a parameter is given twice; the first value stands";
  }
  return "";
}

void OutputEvents::Clear() {
  events_.clear();
  text_.clear();
  logprobs_.clear();
  candidates_.clear();
}

void OutputEvents::Append(OutputEventKind kind, int32_t call, std::string_view text) {
  if (events_.empty() || events_.back().kind != kind || events_.back().call != call) {
    Add(kind, call, text);
    return;
  }
  text_.append(text);
  events_.back().text_size += text.size();
}

OutputEvent& OutputEvents::Add(OutputEventKind kind, int32_t call, std::string_view text) {
  OutputEvent event;
  event.kind = kind;
  event.call = call;
  event.text_begin = text_.size();
  event.text_size = text.size();
  event.logprob_begin = logprobs_.size();
  text_.append(text);
  events_.push_back(event);
  return events_.back();
}

void OutputEvents::AttachLogprob(const TokenLogprob& token, std::span<const TokenCandidate> top) {
  DI_CHECK(!events_.empty());
  TokenLogprob entry = token;
  entry.top_begin = static_cast<uint32_t>(candidates_.size());
  entry.top_count = static_cast<uint32_t>(top.size());
  candidates_.insert(candidates_.end(), top.begin(), top.end());
  logprobs_.push_back(entry);
  ++events_.back().logprob_count;
}

}  // namespace deepinfer::recipe
