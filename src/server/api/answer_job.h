// SPDX-License-Identifier: Apache-2.0
// One request on its way to its answer: tokens of the engine through the recipe's writer to the client, streamed or whole,
// and to the store of responses where it is to be kept.
//
// Life: made and started on a worker thread; from then on the pump's thread alone touches the answer. The engine's consumers
// hold it, so it lives until the engine is done with it. Any thread may cancel.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deepinfer/engine.h"
#include "deepinfer/recipe.h"
#include "server/api/api_error.h"
#include "server/api/response_store.h"
#include "server/api/token_pump.h"

namespace deepinfer::server {

// What became of an answer, for metrics.
struct AnswerRecord {
  recipe::Protocol protocol = recipe::Protocol::kChat;
  bool stream = false;
  std::string_view outcome;  // "ok", "cancelled", "deadline", "error"
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t answer_tokens = 0;
  double first_token_seconds = -1;  // from the request's first byte; -1: there was none
  double seconds = 0;
};
using AnswerRecordFn = std::function<void(const AnswerRecord&)>;

class AnswerJob final : public TokenSink, public std::enable_shared_from_this<AnswerJob> {
 public:
  // Everything it refers to outlives the engine's interest in it.
  struct Setup {
    Engine* engine = nullptr;
    std::shared_ptr<TokenPump> pump;
    std::shared_ptr<ResponseStore> store;  // nullptr: the answer is not kept
    std::shared_ptr<const HttpRequest> request;
    std::shared_ptr<Responder> responder;  // nullptr: nobody waits (a background response)
    recipe::Protocol protocol = recipe::Protocol::kChat;
    std::shared_ptr<const recipe::PreparedRequest> prepared;
    std::unique_ptr<recipe::AnswerStream> answer;
    std::string id;
    uint64_t seed = 0;
    AnswerRecordFn record;
  };
  explicit AnswerJob(Setup setup);

  // Hands the requests, one for each prompt, to the engine; all or none are taken. An error: what to answer, nothing was
  // sent. Otherwise the answer goes its way.
  std::optional<ApiError> Start(std::vector<GenerationRequest> requests);
  // Ends it soon. Before Start() it is noted.
  void Cancel();
  // The body of an answer in progress (Responses). REQUIRES: before Start().
  std::string InitialBody() const { return setup_.answer->Body(); }

  void OnTokens(std::vector<TokenMail>& mails) override;

 private:
  void Post(int first_choice, const Output& output);
  void Begin();
  void TakeRun(std::span<TokenMail> run);
  void TakeFirst(size_t prompt, const TokenMail& mail);
  void Push(std::span<TokenMail> run);
  void FinishChoice(int choice, recipe::FinishKind kind);
  void Fail(recipe::FailureKind kind, const std::string& message);
  void Complete();
  void Annotate(std::string_view outcome);
  void Close();
  void Store();
  std::string* sse() { return stream_ ? &sse_ : nullptr; }
  int EachPrompt() const;

  Setup setup_;
  const bool stream_;
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  std::vector<GenerationId> generations_;  // under mutex_; by prompt

  // The pump's.
  bool started_ = false;
  bool closed_ = false;
  std::vector<TokenMail> early_;  // came before the answer had begun
  std::vector<bool> ended_;       // choices
  int open_ = 0;                  // choices that have not ended
  std::vector<bool> counted_;     // prompts whose cached tokens are known
  std::string sse_;
  std::vector<int32_t> ids_;
  std::vector<recipe::TokenScore> scores_;
  AnswerRecord record_;
};

}  // namespace deepinfer::server
