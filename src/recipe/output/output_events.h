// SPDX-License-Identifier: Apache-2.0
// What the output parser says: a batch of events whose texts lie in one buffer. A batch is filled by one call of
// OutputParser and read before the next; Clear() keeps its memory, so that a steady stream allocates nothing.
// Not for concurrent use. Views into a batch are valid until it is cleared or filled again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/recipe.h"  // TokenCandidate
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

enum class OutputEventKind : uint8_t {
  kReasoning,      // text
  kContent,        // text
  kCallBegin,      // call; text: the function's name
  kCallArguments,  // call; text: the next piece of the arguments, which joined are JSON (see kMalformed)
  kCallEnd,        // call: its arguments are complete
  // A call, or text in a block of calls, that does not follow the format. text: all of it as the model wrote it.
  // call: the call that was begun and never ended, or whose arguments lack something; -1 where none was begun.
  kMalformed,
  kFinish,  // the last event: reason; text: the stop sequence, where that is the reason
};

enum class Malformed : uint8_t {
  kNone,
  kCut,                  // the output ended within it
  kNoCall,               // text between calls that is no call
  kBadName,              // the function's name is empty, too long or holds markup
  kBadBody,              // neither parameters nor a JSON object
  kBadParameter,         // a parameter's opening tag that cannot be read
  kDuplicateParameter,   // the first value stands, the later ones are in the raw text alone
};
// One short English sentence.
std::string_view MalformedText(Malformed reason);

enum class FinishReason : uint8_t { kStop, kStopSequence, kToolCalls, kLength, kContentFilter };

// One generated token's log-probability and its best alternatives, in the backend's order.
struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;
  uint32_t top_begin = 0;  // its alternatives in the list that goes with it
  uint32_t top_count = 0;
};

struct OutputEvent {
  OutputEventKind kind = OutputEventKind::kContent;
  Malformed malformed = Malformed::kNone;
  FinishReason finish = FinishReason::kStop;
  int32_t call = -1;  // from 0 in order of appearance
  size_t text_begin = 0;
  size_t text_size = 0;
  // Tokens whose text this event begins to carry (kReasoning and kContent, where the backend gave logprobs).
  size_t logprob_begin = 0;
  size_t logprob_count = 0;
};

class OutputEvents {
 public:
  void Clear();
  bool empty() const { return events_.empty(); }
  std::span<const OutputEvent> events() const { return events_; }
  std::string_view Text(const OutputEvent& event) const {
    return std::string_view(text_).substr(event.text_begin, event.text_size);
  }
  std::span<const TokenLogprob> Logprobs(const OutputEvent& event) const {
    return std::span(logprobs_).subspan(event.logprob_begin, event.logprob_count);
  }
  std::span<const TokenCandidate> candidates() const { return candidates_; }
  std::span<const TokenCandidate> Top(const TokenLogprob& token) const {
    return std::span(candidates_).subspan(token.top_begin, token.top_count);
  }

  // For the parser. Text of the kind and call of the last event is joined to it.
  void Append(OutputEventKind kind, int32_t call, std::string_view text);
  OutputEvent& Add(OutputEventKind kind, int32_t call, std::string_view text);
  // Hands tokens to the last event.
  void AttachLogprob(const TokenLogprob& token, std::span<const TokenCandidate> top);

 private:
  std::vector<OutputEvent> events_;
  std::string text_;
  std::vector<TokenLogprob> logprobs_;
  std::vector<TokenCandidate> candidates_;
};

}  // namespace deepinfer::recipe
