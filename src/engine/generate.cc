// SPDX-License-Identifier: Apache-2.0
#include "engine/generate.h"

#include <algorithm>
#include <chrono>

#include "engine/stop_strings.h"

namespace deepinfer::engine {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Status Validate(const Session& session, const LoadedModel& loaded, const GenerateRequest& request) {
  DI_RETURN_IF_ERROR(request.sampling.Validate(loaded.config().vocab_size));
  if (request.prompt.empty()) return Error(Code::kInvalidArgument, "prompt: it has no tokens");
  if (request.max_tokens < 0) {
    return Error(Code::kInvalidArgument, "max_tokens: expected 0 or more, found {}", request.max_tokens);
  }
  if (request.logprobs && (*request.logprobs < 0 || *request.logprobs > loaded.config().vocab_size)) {
    return Error(Code::kInvalidArgument, "logprobs: expected 0..{}, found {}", loaded.config().vocab_size, *request.logprobs);
  }
  for (const std::string& stop : request.stop) {
    if (stop.empty()) return Error(Code::kInvalidArgument, "stop: a stop string may not be empty");
  }
  const auto used = static_cast<int64_t>(session.tokens().size() + request.prompt.size());
  if (used > session.context_max()) {
    return Error(Code::kInvalidArgument, "prompt: {} tokens do not fit into the context of {}", used, session.context_max());
  }
  return Status();
}

// What one call keeps between tokens.
class Run {
 public:
  Run(Session& session, const LoadedModel& loaded, const GenerateRequest& request,
      const std::function<bool(const GeneratedToken&)>& on_token)
      : session_(session),
        loaded_(loaded),
        request_(request),
        on_token_(on_token),
        decoder_(loaded.tokenizer()),
        stops_(request.stop) {}

  Result<GenerateResult> Go();

 private:
  // Draws the next token from `logits`. True when the answer ends with it.
  Result<bool> Next(std::span<const float> logits);
  bool Emit(TokenId id, bool is_end);
  void FlushText();

  Session& session_;
  const LoadedModel& loaded_;
  const GenerateRequest& request_;
  const std::function<bool(const GeneratedToken&)>& on_token_;
  IncrementalDecoder decoder_;
  StopStrings stops_;
  sampling::Sampler sampler_;
  sampling::TokenCounts counts_;
  GenerateResult result_;
};

Result<GenerateResult> Run::Go() {
  auto start = Clock::now();
  Result<std::vector<float>> prefilled = session_.Append({.ids = request_.prompt, .go_on = request_.go_on});
  result_.prefill_seconds = SecondsSince(start);
  if (prefilled.status().code() == Code::kCancelled) {
    result_.finish = FinishReason::kCancelled;
    return std::move(result_);
  }
  DI_ASSIGN_OR_RETURN(std::vector<float> logits, std::move(prefilled));
  for (const TokenId id : session_.tokens()) ++counts_.prompt[id];
  start = Clock::now();
  while (static_cast<int64_t>(result_.ids.size()) < request_.max_tokens) {
    DI_ASSIGN_OR_RETURN(const bool done, Next(logits));
    if (done) break;
    const bool room = static_cast<int64_t>(session_.tokens().size()) < session_.context_max();
    if (!room || static_cast<int64_t>(result_.ids.size()) == request_.max_tokens) break;
    DI_ASSIGN_OR_RETURN(logits, session_.Append({.ids = std::span(&result_.ids.back(), 1)}));
  }
  if (result_.finish == FinishReason::kLength) FlushText();
  result_.decode_seconds = SecondsSince(start);
  return std::move(result_);
}

Result<bool> Run::Next(std::span<const float> logits) {
  const std::optional<int32_t> drawn =
      sampler_.Sample(request_.sampling, {.logits = logits,
                                          .position = static_cast<uint32_t>(session_.tokens().size()),
                                          .counts = &counts_});
  if (!drawn) return Error(Code::kInternal, "the model gave no logit that is a number");
  ++counts_.answer[*drawn];
  result_.ids.push_back(*drawn);
  if (request_.logprobs) {
    result_.logprobs.push_back(sampling::ComputeLogprobs(logits, *drawn, static_cast<size_t>(*request_.logprobs)));
  }
  const std::vector<int64_t>& ends = loaded_.config().eos_token_ids;
  const bool is_end = !request_.ignore_eos && std::find(ends.begin(), ends.end(), *drawn) != ends.end();
  return Emit(*drawn, is_end);
}

bool Run::Emit(TokenId id, bool is_end) {
  std::string characters, text;
  if (is_end) {
    decoder_.Flush(&characters);
  } else {
    decoder_.Push(id, &characters);
  }
  bool done = is_end;
  if (stops_.Push(characters, &text)) {
    done = true;
  } else if (is_end) {
    stops_.Flush(&text);
  }
  if (done) result_.finish = FinishReason::kStop;
  result_.text += text;
  const bool go_on = on_token_({.id = id,
                                .is_end = is_end,
                                .text = text,
                                .logprobs = request_.logprobs ? &result_.logprobs.back() : nullptr});
  if (!go_on && !done) {
    result_.finish = FinishReason::kCancelled;
    done = true;
  }
  return done;
}

// Length ended the answer: a half character or the beginning of a stop string is text after all.
void Run::FlushText() {
  std::string characters, text;
  decoder_.Flush(&characters);
  if (stops_.Push(characters, &text)) {
    result_.finish = FinishReason::kStop;
  } else {
    stops_.Flush(&text);
  }
  result_.text += text;
  if (!text.empty()) on_token_({.text = text});
}

}  // namespace

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

Result<GenerateResult> Generate(Session& session, const LoadedModel& loaded, const GenerateRequest& request,
                                const std::function<bool(const GeneratedToken&)>& on_token) {
  DI_RETURN_IF_ERROR(Validate(session, loaded, request));
  return Run(session, loaded, request, on_token).Go();
}

}  // namespace deepinfer::engine
