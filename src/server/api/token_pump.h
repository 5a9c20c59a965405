// SPDX-License-Identifier: Apache-2.0
// Carries tokens from the engine's thread to the requests that wait for them, on a thread of its own. The engine's thread
// leaves a token and goes on: one lock that is held for a few instructions, and one wake-up where the pump slept. The pump
// takes all that has come and hands each request its tokens together, so that what several steps left becomes one write.
// Thread-safe. Bounded by what running requests can generate while the pump is busy.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "deepinfer/engine.h"
#include "deepinfer/recipe.h"

namespace deepinfer::server {

class TokenSink;

struct TokenMail {
  std::shared_ptr<TokenSink> sink;
  int choice = 0;  // of all choices of the answer
  int32_t token = -1;
  float logprob = 0;
  bool has_logprob = false;
  bool finished = false;
  FinishReason reason = FinishReason::kStop;
  int64_t cached_tokens = 0;
  std::vector<recipe::TokenCandidate> top;
  std::unique_ptr<std::vector<PromptLogprob>> prompt;  // of the prompt's tokens
  std::string error;
};

// Who waits for tokens. Both are called on the pump's thread.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // Its mails of this round, in order of their arrival; may be moved from.
  virtual void OnTokens(std::vector<TokenMail>& mails) = 0;

 private:
  friend class TokenPump;
  std::vector<TokenMail> round_;  // the pump's
};

class TokenPump {
 public:
  TokenPump();
  ~TokenPump();

  // Ends the thread; mails that wait, or come later, are dropped. REQUIRES: called before the destructor, not from a sink.
  void Stop();
  void Post(TokenMail mail);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wakes_;
  std::vector<TokenMail> mails_;
  bool sleeps_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace deepinfer::server
