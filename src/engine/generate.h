// SPDX-License-Identifier: Apache-2.0
// Writing text with one session: prompt in, tokens and text out, until something stops it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/session.h"
#include "sampling/sampler.h"

namespace deepinfer::engine {

struct GenerateRequest {
  std::vector<TokenId> prompt;         // at least one token; appended to what the session already holds
  sampling::SamplingParams sampling;
  int64_t max_tokens = 256;            // also bounded by the context
  std::vector<std::string> stop;       // text that ends the answer and is not part of it
  bool ignore_eos = false;             // end tokens are tokens like any other
  std::optional<int> logprobs;         // that many alternatives beside each token's own log-probability
  // Asked before every chunk of the prompt; false cancels: no token, and the session is empty.
  std::function<bool()> go_on;
};

// One drawn token as it happens.
struct GeneratedToken {
  TokenId id = -1;         // -1: no token, only text that was held back until the end
  bool is_end = false;     // an end token, which is not part of the text
  std::string_view text;   // characters that became certain with this token; may be empty
  const sampling::Logprobs* logprobs = nullptr;
};

enum class FinishReason {
  kStop,       // an end token or a stop string
  kLength,     // max_tokens or the context's end
  kCancelled,  // the consumer said so
};
std::string_view FinishReasonName(FinishReason reason);  // "stop", "length", "cancelled"

struct GenerateResult {
  std::vector<TokenId> ids;  // drawn tokens, an end token included
  std::string text;
  std::vector<sampling::Logprobs> logprobs;
  FinishReason finish = FinishReason::kLength;
  double prefill_seconds = 0;  // until the first logits
  double decode_seconds = 0;
};

// `on_token` is called after every token and once more for text held back until the end; false cancels.
// Errors: kInvalidArgument names the field; else those of Session::Append.
Result<GenerateResult> Generate(Session& session, const LoadedModel& loaded, const GenerateRequest& request,
                                const std::function<bool(const GeneratedToken&)>& on_token);

}  // namespace deepinfer::engine
