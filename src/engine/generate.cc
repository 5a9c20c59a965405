// SPDX-License-Identifier: Apache-2.0
#include "engine/generate.h"

#include <chrono>

namespace deepinfer::engine {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Collects the outputs of one request.
class Run {
 public:
  Run(BatchEngine& engine, const GenerationRequest& request, const std::function<bool(const GeneratedToken&)>& on_token)
      : engine_(engine), request_(request), on_token_(on_token) {}

  Result<GenerateResult> Go(const std::function<bool()>& go_on);

 private:
  void Consume(const Output& output);

  BatchEngine& engine_;
  const GenerationRequest& request_;
  const std::function<bool(const GeneratedToken&)>& on_token_;
  GenerationId id_ = 0;
  GenerateResult result_;
  Clock::time_point start_ = Clock::now();
  std::string error_;
  bool cancelled_ = false;
  bool ended_ = false;
};

void Run::Consume(const Output& output) {
  if (output.finished) {
    ended_ = true;
    result_.finish = cancelled_ ? deepinfer::FinishReason::kCancelled : output.reason;
    error_ = output.error;
  }
  if (cancelled_) return;  // drafts: a step may bring several tokens
  result_.cached_tokens = output.cached_tokens;
  if (output.token >= 0) {
    if (result_.ids.empty()) {
      result_.prefill_seconds = SecondsSince(start_);
      start_ = Clock::now();
    }
    result_.ids.push_back(output.token);
    if (output.logprob) {
      sampling::Logprobs& logprobs = result_.logprobs.emplace_back();
      logprobs.chosen = *output.logprob;
      for (const TokenAlternative& other : output.alternatives) logprobs.top.push_back({other.token, other.logprob});
    }
  } else if (output.text.empty()) {
    return;
  }
  result_.text += output.text;
  if (on_token_({.id = output.token, .is_end = output.is_end_token, .text = output.text}) || output.finished) return;
  cancelled_ = true;
  engine_.Cancel(id_);
}

Result<GenerateResult> Run::Go(const std::function<bool()>& go_on) {
  const auto prompt = static_cast<int64_t>(request_.prompt.size());
  if (prompt >= engine_.context_max()) {
    return Error(Code::kInvalidArgument, "prompt: {} tokens and an answer do not fit into the context of {}", prompt,
                 engine_.context_max());
  }
  GenerationRequest request = request_;
  request.max_tokens = std::max<int64_t>(request.max_tokens, 1);
  std::string why;
  id_ = engine_.Submit(request, [this](const Output& output) { Consume(output); }, &why);
  if (id_ == 0) return Error(Code::kInvalidArgument, "{}", why);
  if (request_.max_tokens == 0) cancelled_ = true;
  if (cancelled_) engine_.Cancel(id_);
  while (!ended_) {
    if (!cancelled_ && go_on && !go_on()) {
      cancelled_ = true;
      engine_.Cancel(id_);
    }
    engine_.Step();
  }
  if (result_.finish == deepinfer::FinishReason::kError) return Error(Code::kDataLoss, "{}", error_);
  (result_.ids.empty() ? result_.prefill_seconds : result_.decode_seconds) = SecondsSince(start_);
  if (request_.max_tokens == 0) result_.finish = deepinfer::FinishReason::kLength;
  return std::move(result_);
}

}  // namespace

Result<GenerateResult> Generate(BatchEngine& engine, const GenerationRequest& request,
                                const std::function<bool(const GeneratedToken&)>& on_token,
                                const std::function<bool()>& go_on) {
  return Run(engine, request, on_token).Go(go_on);
}

}  // namespace deepinfer::engine
