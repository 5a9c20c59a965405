// SPDX-License-Identifier: Apache-2.0
// OpenAI Responses: typed events with sequence numbers, and the whole response object. See response_writer.h.
#pragma once

#include <string>
#include <vector>

#include "recipe/output/custom_input.h"
#include "recipe/output/response_writer.h"

namespace deepinfer::recipe {

class ResponsesWriter : public ResponseWriter {
 public:
  ResponsesWriter(AnswerContext context, const AnswerOptions& options, const ParseOptions& parsing, Profile profile)
      : ResponseWriter(std::move(context), options, parsing, profile) {}

  void Begin(std::vector<SseEvent>* out) override;
  void Fail(const AnswerError& error, std::vector<SseEvent>* out) override;
  std::string Body() const override;

 protected:
  void OnEvent(int choice, const OutputEvents& events, const OutputEvent& event, bool fresh,
               std::vector<SseEvent>* out) override;
  void OnChoiceEnd(int choice, std::vector<SseEvent>* out) override;
  void OnAllEnd(std::vector<SseEvent>*) override {}

 private:
  enum class ItemKind { kReasoning, kMessage, kFunction, kCustom, kToolSearch };

  ItemKind KindOf(const AnswerPart& part) const;
  std::string ItemId(size_t index) const;
  // The item of part `index` as it is added (without content), or as it is done.
  std::string Item(size_t index, std::string_view status, bool added) const;
  void WriteCallItem(size_t index, std::string_view status, bool added, std::string* out) const;
  // The parts that a part's content has in the API: one, or none while it is empty.
  std::string ContentPart(const AnswerPart& part, bool empty) const;
  // Input of a custom tool call, from its arguments so far.
  std::string CustomInputOf(const AnswerPart& part) const;

  // `before` and `after` are JSON members that stand before and after `sequence_number`.
  void Emit(std::string_view type, std::string_view before, std::string_view after, std::vector<SseEvent>* out);
  void Added(size_t index, std::vector<SseEvent>* out);
  void Done(size_t index, std::string_view status, std::vector<SseEvent>* out);
  std::string At(size_t index, bool content) const;

  std::string Response(std::string_view status, bool ended, std::string_view error) const;
  std::string_view EndStatus() const;
  std::string Usage() const;

  std::string_view state_ = "in_progress";  // what Body() says
  std::string error_;
  int64_t sequence_ = 0;
  CustomInput custom_input_;
};

}  // namespace deepinfer::recipe
