// SPDX-License-Identifier: Apache-2.0
// What the stage machines of both profiles share: where events go, limits, and the token entries that wait for their
// text. Not for concurrent use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "recipe/output/output_events.h"
#include "recipe/output/output_parser.h"
#include "recipe/output/stage_machine.h"
#include "recipe/request.h"

namespace deepinfer::recipe {

class OutputMachine : public StageMachine {
 public:
  // `options` and `limits` must outlive the machine.
  OutputMachine(const ParseOptions& options, const OutputLimits& limits) : options_(options), limits_(limits) {}

  // Where events go.
  void SetEvents(OutputEvents* events) { events_ = events; }
  // What is fed next came as one piece.
  virtual void BeginChunk() {}
  // The next text that comes out carries this token.
  void AddScore(TokenId id, const TokenScore& score);
  // The tokens added so far carry no text that comes out.
  void ClearScores();
  // The end of the output: what is held back comes out.
  virtual void End() = 0;

  // Whether stop sequences end the answer; else they are text.
  void SetStopsActive(bool active) { stops_active_ = active; }

  virtual bool InReasoning() const = 0;
  // A marker or stop sequence ended the answer.
  bool done() const { return done_; }
  bool stopped() const { return stopped_; }
  const std::string& stop_sequence() const { return stop_sequence_; }
  bool cut() const { return cut_; }
  int32_t num_calls() const { return num_calls_; }
  const Status& status() const { return status_; }

 protected:
  void Emit(OutputEventKind kind, std::string_view text);
  void EmitCallBegin(std::string_view name);
  // Pieces of the current call's arguments: as they are, or escaped as within a JSON string.
  void EmitArguments(std::string_view text);
  void EmitEscapedArguments(std::string_view text);
  void EmitCallEnd();
  void EmitMalformed(int32_t call, Malformed reason, std::string_view raw);
  void Stop(std::string_view sequence);
  // The first error stands.
  void Fail(Status status);
  void FailLimit(std::string_view name, size_t limit);

  const ParseOptions& options_;
  const OutputLimits& limits_;
  bool done_ = false;
  bool cut_ = false;  // the output ended within a call
  bool stops_active_ = true;

 private:
  bool CountOutput(size_t bytes);

  OutputEvents* events_ = nullptr;
  Status status_;
  bool stopped_ = false;
  std::string stop_sequence_;
  int32_t num_calls_ = 0;
  size_t output_bytes_ = 0;
  size_t arguments_bytes_ = 0;  // of the current call
  std::string escaped_;
  std::vector<TokenLogprob> scores_;
  std::vector<TokenCandidate> candidates_;
};

}  // namespace deepinfer::recipe
