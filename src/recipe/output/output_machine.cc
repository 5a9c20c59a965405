// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/output_machine.h"

#include <utility>

#include "recipe/output/json_escape.h"

namespace deepinfer::recipe {

void OutputMachine::AddScore(TokenId id, const TokenScore& score) {
  scores_.push_back({.id = id,
                     .logprob = score.logprob,
                     .top_begin = static_cast<uint32_t>(candidates_.size()),
                     .top_count = static_cast<uint32_t>(score.top.size())});
  candidates_.insert(candidates_.end(), score.top.begin(), score.top.end());
}

void OutputMachine::ClearScores() {
  scores_.clear();
  candidates_.clear();
}

bool OutputMachine::CountOutput(size_t bytes) {
  if (!status_.ok()) return false;
  output_bytes_ += bytes;
  if (output_bytes_ > limits_.output_bytes_max) {
    FailLimit("output_bytes_max", limits_.output_bytes_max);
    return false;
  }
  return true;
}

void OutputMachine::Emit(OutputEventKind kind, std::string_view text) {
  if (text.empty() || !CountOutput(text.size())) return;
  events_->Append(kind, -1, text);
  for (const TokenLogprob& score : scores_) {
    events_->AttachLogprob(score, std::span(candidates_).subspan(score.top_begin, score.top_count));
  }
  ClearScores();
}

void OutputMachine::EmitCallBegin(std::string_view name) {
  if (static_cast<size_t>(num_calls_) >= limits_.calls_max) {
    FailLimit("calls_max", limits_.calls_max);
    return;
  }
  if (!CountOutput(name.size())) return;
  events_->Add(OutputEventKind::kCallBegin, num_calls_, name);
  ++num_calls_;
  arguments_bytes_ = 0;
}

void OutputMachine::EmitArguments(std::string_view text) {
  if (text.empty() || !CountOutput(text.size())) return;
  arguments_bytes_ += text.size();
  if (arguments_bytes_ > limits_.arguments_bytes_max) {
    FailLimit("arguments_bytes_max", limits_.arguments_bytes_max);
    return;
  }
  events_->Append(OutputEventKind::kCallArguments, num_calls_ - 1, text);
}

void OutputMachine::EmitEscapedArguments(std::string_view text) {
  escaped_.clear();
  AppendJsonEscaped(text, &escaped_);
  EmitArguments(escaped_);
}

void OutputMachine::EmitCallEnd() {
  if (status_.ok()) events_->Add(OutputEventKind::kCallEnd, num_calls_ - 1, {});
}

void OutputMachine::EmitMalformed(int32_t call, Malformed reason, std::string_view raw) {
  if (!CountOutput(raw.size())) return;
  events_->Add(OutputEventKind::kMalformed, call, raw).malformed = reason;
}

void OutputMachine::Stop(std::string_view sequence) {
  done_ = true;
  stopped_ = true;
  stop_sequence_ = sequence;
}

void OutputMachine::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void OutputMachine::FailLimit(std::string_view name, size_t limit) {
  Fail(Error(Code::kResourceExhausted, "model output goes over the limit {} of {}", name, limit));
}

}  // namespace deepinfer::recipe
