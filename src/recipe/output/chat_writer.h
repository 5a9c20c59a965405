// SPDX-License-Identifier: Apache-2.0
// Chat Completions: chunks and the whole completion. See response_writer.h.
#pragma once

#include <string>
#include <vector>

#include "recipe/output/response_writer.h"

namespace deepinfer::recipe {

class ChatWriter : public ResponseWriter {
 public:
  ChatWriter(AnswerContext context, const AnswerOptions& options, const ParseOptions& parsing, Profile profile);

  void Begin(std::vector<SseEvent>* out) override;
  void Fail(const AnswerError& error, std::vector<SseEvent>* out) override;
  std::string Body() const override;

 protected:
  void OnEvent(int choice, const OutputEvents& events, const OutputEvent& event, bool fresh,
               std::vector<SseEvent>* out) override;
  void OnChoiceEnd(int choice, std::vector<SseEvent>* out) override;
  void OnAllEnd(std::vector<SseEvent>* out) override;

 private:
  // One chunk. `choice` and `usage` are JSON text; an empty `choice` gives an empty list.
  void Chunk(std::string_view choice, std::string_view usage, std::vector<SseEvent>* out) const;
  void Delta(int choice, std::string_view delta, std::string_view logprobs, std::string_view finish,
             std::string_view usage, std::vector<SseEvent>* out) const;
  // What chunks before the last say of usage: null where it was asked for, nothing otherwise.
  std::string_view NoUsage() const { return options_.include_usage ? "null" : ""; }
  std::string Usage() const;
  std::string_view FinishName(FinishReason reason) const;
  std::string WholeChoice(int choice) const;

  std::string chunk_head_;  // what all chunks begin with
};

}  // namespace deepinfer::recipe
