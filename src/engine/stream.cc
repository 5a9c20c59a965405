// SPDX-License-Identifier: Apache-2.0
#include "engine/stream.h"

namespace deepinfer::engine {
namespace {

std::vector<TokenAlternative> Alternatives(const sampling::Logprobs& logprobs) {
  std::vector<TokenAlternative> alternatives;
  for (const sampling::TokenLogprob& entry : logprobs.top) alternatives.push_back({entry.token, entry.logprob});
  return alternatives;
}

}  // namespace

Output Stream::Base() const {
  Output output;
  output.choice = choice_;
  output.prompt_tokens = generation_->prompt_tokens;
  output.cached_tokens = cached_tokens;
  output.answer_tokens = tokens_;
  output.seed = generation_->seed;
  return output;
}

void Stream::Call(const Output& output) {
  if (threw_ || !generation_->consumer) return;
  try {
    generation_->consumer(output);
  } catch (...) {
    threw_ = true;
  }
}

bool Stream::Deliver(const Drawn& drawn) {
  if (ended_) return false;
  if (drawn.failed) {
    End(deepinfer::FinishReason::kError, drawn.error);
    return false;
  }
  ++tokens_;
  characters_.clear();
  text_.clear();
  if (!drawn.is_end_token) decoder_.Push(drawn.token, &characters_);
  const bool stopped = stops_.Push(characters_, &text_);
  Output output = Base();
  output.token = drawn.token;
  output.is_end_token = drawn.is_end_token;
  output.text = text_;
  std::vector<PromptLogprob> prompt_logprobs;
  if (tokens_ == 1 && drawing_->settings().prompt_logprobs) {
    for (const sampling::Logprobs& from : drawing_->TakePromptLogprobs()) prompt_logprobs.push_back({from.chosen, Alternatives(from)});
    output.prompt_logprobs = prompt_logprobs;
  }
  if (drawn.logprobs) {
    output.logprob = drawn.logprobs->chosen;
    output.alternatives = Alternatives(*drawn.logprobs);
  }
  Call(output);
  if (threw_) {
    End(deepinfer::FinishReason::kCancelled);
  } else if (stopped) {
    ended_ = true;
    --generation_->open;
    Output end = Base();
    end.finished = true;
    end.reason = deepinfer::FinishReason::kStop;
    Call(end);
  } else if (drawn.ends) {
    End(drawn.is_end_token ? deepinfer::FinishReason::kStop : deepinfer::FinishReason::kLength);
  }
  return !ended_;
}

void Stream::End(deepinfer::FinishReason reason, const std::string& error) {
  if (ended_) return;
  ended_ = true;
  --generation_->open;
  std::string characters, text;
  decoder_.Flush(&characters);
  if (stops_.Push(characters, &text)) {
    reason = deepinfer::FinishReason::kStop;
  } else {
    stops_.Flush(&text);
  }
  Output output = Base();
  output.text = text;
  output.finished = true;
  output.reason = reason;
  output.error = error;
  Call(output);
}

}  // namespace deepinfer::engine

namespace deepinfer {

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadline:
      return "deadline";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

}  // namespace deepinfer
