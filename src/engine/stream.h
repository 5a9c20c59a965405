// SPDX-License-Identifier: Apache-2.0
// One answer on its way to its consumer: tokens in, characters and the end out. Nothing is delivered after the end,
// whatever steps in flight still bring. One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "deepinfer/engine.h"
#include "engine/choice.h"
#include "engine/stop_strings.h"
#include "sched/plan.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::engine {

// What all choices of a request share.
struct Generation {
  GenerationId id = 0;
  OutputFn consumer;
  int64_t prompt_tokens = 0;
  uint64_t seed = 0;
  int64_t deadline_at_ms = 0;  // 0: none
  int open = 0;                // choices that have not ended
};

class Stream {
 public:
  Stream(std::shared_ptr<Generation> generation, int choice, std::shared_ptr<Choice> drawing, const Tokenizer& tokenizer,
         const std::vector<std::string>& stop)
      : generation_(std::move(generation)),
        choice_(choice),
        drawing_(std::move(drawing)),
        decoder_(tokenizer),
        stops_(stop) {
    constexpr size_t kPieceBytes = 256;  // few tokens have more, so outputs allocate nothing
    characters_.reserve(kPieceBytes);
    text_.reserve(kPieceBytes);
  }

  // A drawn token. False: the answer ended with it, or had ended before.
  bool Deliver(const Drawn& drawn);
  // Ends the answer, if it has not ended: text that was held back goes first.
  void End(deepinfer::FinishReason reason, const std::string& error = {});

  bool ended() const { return ended_; }
  const std::shared_ptr<Generation>& generation() const { return generation_; }
  const std::shared_ptr<Choice>& drawing() const { return drawing_; }
  int64_t cached_tokens = 0;
  sched::RequestId request;

 private:
  // Calls the consumer; what it throws ends the answer.
  void Call(const Output& output);
  Output Base() const;

  std::shared_ptr<Generation> generation_;
  int choice_;
  std::shared_ptr<Choice> drawing_;
  IncrementalDecoder decoder_;
  std::string characters_, text_;  // of the output at hand
  StopStrings stops_;
  int64_t tokens_ = 0;
  bool ended_ = false;
  bool threw_ = false;
};

}  // namespace deepinfer::engine
