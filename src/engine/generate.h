// SPDX-License-Identifier: Apache-2.0
// One answer from an engine that the caller steps: prompt in, tokens and text out, until something stops it. For programs
// that talk to one user; it runs the engine's steps on the calling thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/batch_engine.h"

namespace deepinfer::engine {

// One drawn token as it happens.
struct GeneratedToken {
  TokenId id = -1;         // -1: no token, only text that was held back until the end
  bool is_end = false;     // an end token, which is not part of the text
  std::string_view text;   // characters that became certain with this token; may be empty
};

struct GenerateResult {
  std::vector<TokenId> ids;  // drawn tokens, an end token included
  std::string text;
  std::vector<sampling::Logprobs> logprobs;  // of each token, where the request wants them
  deepinfer::FinishReason finish = deepinfer::FinishReason::kLength;
  int64_t cached_tokens = 0;   // of the prompt
  double prefill_seconds = 0;  // until the first token
  double decode_seconds = 0;
};

// Runs `request` (one choice; max_tokens may be 0) to its end. `on_token` is called after every token and once more for
// text held back until the end; false cancels. `go_on` is asked before every step; false cancels too. REQUIRES: nothing
// else runs on the engine, and own_thread is false.
// Errors: kInvalidArgument names the field; kDataLoss where the answer could not be computed: a damaged file, a device.
Result<GenerateResult> Generate(BatchEngine& engine, const GenerationRequest& request,
                                const std::function<bool(const GeneratedToken&)>& on_token,
                                const std::function<bool()>& go_on = nullptr);

}  // namespace deepinfer::engine
