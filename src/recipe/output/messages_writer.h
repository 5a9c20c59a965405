// SPDX-License-Identifier: Apache-2.0
// Anthropic Messages: content blocks as events, and the whole message. See response_writer.h.
#pragma once

#include <string>
#include <vector>

#include "recipe/output/response_writer.h"

namespace deepinfer::recipe {

class MessagesWriter : public ResponseWriter {
 public:
  MessagesWriter(AnswerContext context, const AnswerOptions& options, const ParseOptions& parsing, Profile profile)
      : ResponseWriter(std::move(context), options, parsing, profile) {}

  void Begin(std::vector<SseEvent>* out) override;
  void Fail(const AnswerError& error, std::vector<SseEvent>* out) override;
  SseEvent KeepAlive() const override;
  std::string Body() const override;

 protected:
  void OnEvent(int choice, const OutputEvents& events, const OutputEvent& event, bool fresh,
               std::vector<SseEvent>* out) override;
  void OnChoiceEnd(int choice, std::vector<SseEvent>* out) override;
  void OnAllEnd(std::vector<SseEvent>*) override {}

 private:
  enum class Block { kNone, kThinking, kText, kCall };

  std::string Usage(int64_t output_tokens) const;
  std::string StopReason() const;
  // The message's fields around its content, which is JSON text.
  std::string MessageObject(std::string_view content, bool ended) const;
  void OpenBlock(Block kind, std::string_view block, std::vector<SseEvent>* out);
  void CloseBlock(std::vector<SseEvent>* out);
  void Delta(std::string_view type, std::string_view field, std::string_view text, std::vector<SseEvent>* out) const;

  Block open_ = Block::kNone;
  int num_blocks_ = 0;  // opened so far
};

}  // namespace deepinfer::recipe
