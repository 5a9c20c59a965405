// SPDX-License-Identifier: Apache-2.0
#include "server/api/answer_job.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "core/json.h"
#include "serving/scores.h"

namespace deepinfer::server {
namespace {

constexpr int kStartMail = -1;  // choice of the mail that begins the answer

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

AnswerJob::AnswerJob(Setup setup)
    : setup_(std::move(setup)), stream_(setup_.responder != nullptr && setup_.prepared->stream()) {
  open_ = setup_.answer->num_choices();
  ended_.resize(static_cast<size_t>(open_));
  counted_.resize(setup_.prepared->prompts().size());
  record_.protocol = setup_.protocol;
  record_.stream = stream_;
  for (const auto& prompt : setup_.prepared->prompts()) record_.prompt_tokens += static_cast<int64_t>(prompt.size());
}

int AnswerJob::EachPrompt() const { return static_cast<int>(ended_.size() / counted_.size()); }

std::optional<ApiError> AnswerJob::Start(std::vector<GenerationRequest> requests) {
  if (setup_.responder != nullptr) {
    setup_.responder->OnGone([weak = weak_from_this()] {
      if (const auto job = weak.lock()) job->Cancel();
    });
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    std::string why;
    bool busy = false;
    const int first_choice = static_cast<int>(i) * EachPrompt();
    const GenerationId id = setup_.engine->Submit(
        requests[i], [job = shared_from_this(), first_choice](const Output& output) { job->Post(first_choice, output); }, &why,
        &busy);
    if (id == 0) {
      Cancel();
      return ApiError{.status = busy ? 429 : 400, .message = std::move(why)};
    }
    const std::lock_guard lock(mutex_);
    generations_.push_back(id);
  }
  // A client that went away meanwhile could not cancel what was not known yet.
  if (cancelled_) Cancel();
  setup_.pump->Post({.sink = shared_from_this(), .choice = kStartMail});
  return std::nullopt;
}

void AnswerJob::Cancel() {
  cancelled_ = true;
  std::vector<GenerationId> generations;
  {
    const std::lock_guard lock(mutex_);
    generations = generations_;
  }
  for (const GenerationId id : generations) setup_.engine->Cancel(id);
}

// On the engine's thread.
void AnswerJob::Post(int first_choice, const Output& output) {
  if (output.token < 0 && !output.finished) return;
  TokenMail mail{.sink = shared_from_this(),
                 .choice = first_choice + output.choice,
                 .token = output.token,
                 .finished = output.finished,
                 .reason = output.reason,
                 .cached_tokens = output.cached_tokens};
  if (output.logprob) {
    mail.logprob = *output.logprob;
    mail.has_logprob = true;
    mail.top.reserve(output.alternatives.size());
    for (const TokenAlternative& a : output.alternatives) mail.top.push_back({.id = a.token, .logprob = a.logprob});
  }
  if (!output.prompt_logprobs.empty()) {
    mail.prompt = std::make_unique<std::vector<PromptLogprob>>(output.prompt_logprobs.begin(), output.prompt_logprobs.end());
  }
  if (output.finished) mail.error = output.error;
  setup_.pump->Post(std::move(mail));
}

void AnswerJob::OnTokens(std::vector<TokenMail>& mails) {
  if (closed_) return;
  if (!started_) {
    for (TokenMail& mail : mails) {
      if (mail.choice == kStartMail) {
        started_ = true;
      } else {
        early_.push_back(std::move(mail));
      }
    }
    if (!started_) return;
    Begin();
    std::vector<TokenMail> early = std::move(early_);
    if (!early.empty()) OnTokens(early);
    return;
  }
  for (size_t begin = 0, end = 0; begin < mails.size() && !closed_; begin = end) {
    while (end < mails.size() && mails[end].choice == mails[begin].choice) ++end;
    TakeRun(std::span(mails).subspan(begin, end - begin));
  }
  if (closed_ || sse_.empty()) return;
  if (!setup_.responder->Write(sse_)) Cancel();
  sse_.clear();
}

void AnswerJob::Begin() {
  if (!stream_) return;
  StreamOptions options;
  options.headers.emplace_back("x-deepinfer-seed", std::to_string(setup_.seed));
  if (setup_.protocol == recipe::Protocol::kMessages) {
    // The first event tells the cached tokens, which are known with the first token.
    options.heartbeat.clear();
    setup_.answer->KeepAlive(&options.heartbeat);
    setup_.responder->BeginStream(std::move(options));
    return;
  }
  setup_.responder->BeginStream(std::move(options));
  setup_.answer->Begin(&sse_);
  if (!setup_.responder->Write(sse_)) Cancel();
  sse_.clear();
}

// Mails of one choice.
void AnswerJob::TakeRun(std::span<TokenMail> run) {
  const auto choice = static_cast<size_t>(run[0].choice);
  const size_t prompt = choice / static_cast<size_t>(EachPrompt());
  if (!counted_[prompt]) TakeFirst(prompt, run[0]);
  if (ended_[choice]) return;
  Push(run);
  const TokenMail& last = run.back();
  if (closed_ || ended_[choice] || !last.finished) return;
  switch (last.reason) {
    case FinishReason::kStop: FinishChoice(last.choice, recipe::FinishKind::kStop); return;
    case FinishReason::kLength: FinishChoice(last.choice, recipe::FinishKind::kLength); return;
    case FinishReason::kCancelled: Fail(recipe::FailureKind::kCancelled, "the request was cancelled"); return;
    case FinishReason::kDeadline: Fail(recipe::FailureKind::kDeadline, "the deadline of the request has passed"); return;
    case FinishReason::kError: Fail(recipe::FailureKind::kInternal, last.error); return;
  }
}

// What the first output of a prompt tells of the prompt.
void AnswerJob::TakeFirst(size_t prompt, const TokenMail& mail) {
  counted_[prompt] = true;
  record_.cached_tokens += mail.cached_tokens;
  setup_.answer->SetCachedTokens(record_.cached_tokens);
  if (!setup_.prepared->prompt_logprobs()) return;
  const serving::PromptScores scores(mail.prompt == nullptr ? std::span<const PromptLogprob>() : *mail.prompt);
  setup_.answer->SetPromptScores(prompt, scores.scores(), sse());
}

void AnswerJob::Push(std::span<TokenMail> run) {
  ids_.clear();
  scores_.clear();
  for (const TokenMail& mail : run) {
    if (mail.token < 0) continue;
    ids_.push_back(mail.token);
    if (mail.has_logprob) scores_.push_back({.logprob = mail.logprob, .top = mail.top});
  }
  if (ids_.empty()) return;
  if (record_.first_token_seconds < 0) record_.first_token_seconds = SecondsSince(setup_.request->received_at);
  record_.answer_tokens += static_cast<int64_t>(ids_.size());
  const int choice = run[0].choice;
  if (!setup_.answer->PushTokens(choice, ids_, scores_, sse())) {
    Fail(recipe::FailureKind::kInternal, "the answer went over a limit");
  } else if (setup_.answer->done(choice)) {
    GenerationId id = 0;
    {
      const std::lock_guard lock(mutex_);
      id = generations_[static_cast<size_t>(choice / EachPrompt())];
    }
    if (!run.back().finished) setup_.engine->Cancel(id, choice % EachPrompt());
    FinishChoice(choice, recipe::FinishKind::kStop);
  }
}

void AnswerJob::FinishChoice(int choice, recipe::FinishKind kind) {
  ended_[static_cast<size_t>(choice)] = true;
  if (!setup_.answer->Finish(choice, kind, sse())) {
    Fail(recipe::FailureKind::kInternal, "the answer went over a limit");
  } else if (--open_ == 0) {
    Complete();
  }
}

void AnswerJob::Complete() {
  Annotate("ok");
  Store();
  if (stream_) {
    setup_.responder->Write(sse_);
    setup_.responder->End();
  } else if (setup_.responder != nullptr) {
    setup_.responder->SendJson(200, setup_.answer->Body(), {{"x-deepinfer-seed", std::to_string(setup_.seed)}});
  }
  Close();
}

void AnswerJob::Fail(recipe::FailureKind kind, const std::string& message) {
  Cancel();
  Annotate(kind == recipe::FailureKind::kDeadline    ? "deadline"
           : kind == recipe::FailureKind::kCancelled ? "cancelled"
                                                     : "error");
  setup_.answer->Fail(kind, message, sse());
  Store();
  const int status = kind == recipe::FailureKind::kInternal ? 500 : kind == recipe::FailureKind::kDeadline ? 504 : 503;
  if (stream_) {
    setup_.responder->Write(sse_);
    setup_.responder->End();
  } else if (setup_.responder != nullptr) {
    SendError(*setup_.request, *setup_.responder, setup_.protocol, {.status = status, .message = message});
  }
  Close();
}

// Before the client sees the end: its next request may name this answer.
void AnswerJob::Store() {
  if (setup_.store == nullptr) return;
  std::string body = setup_.answer->Body();
  std::string output = "[]";
  if (const auto json = ParseJson(body, {.size_bytes_max = SIZE_MAX, .nodes_max = SIZE_MAX}); json.ok()) {
    if (const Json* items = json->Find("output"); items != nullptr) output = WriteJson(*items);
  }
  setup_.store->Finish(setup_.id, std::move(body), output);
}

// For the log, before the answer is complete.
void AnswerJob::Annotate(std::string_view outcome) {
  record_.outcome = outcome;
  if (setup_.responder == nullptr) return;
  setup_.responder->Annotate("outcome", outcome);
  setup_.responder->Annotate("prompt_tokens", record_.prompt_tokens);
  setup_.responder->Annotate("cached_tokens", record_.cached_tokens);
  setup_.responder->Annotate("answer_tokens", record_.answer_tokens);
}

// The last act: nothing of the answer is touched after it.
void AnswerJob::Close() {
  closed_ = true;
  record_.seconds = SecondsSince(setup_.request->received_at);
  if (setup_.record) setup_.record(record_);
  setup_.responder.reset();
  setup_.answer.reset();
}

}  // namespace deepinfer::server
