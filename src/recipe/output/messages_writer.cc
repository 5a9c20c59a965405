// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/messages_writer.h"

#include "core/check.h"
#include "recipe/output/json_text.h"

namespace deepinfer::recipe {
namespace {

SseEvent Named(std::string_view type, std::string_view members) {
  SseEvent event{.event = std::string(type), .data = ""};
  JsonText json(&event.data);
  json.Open('{').Key("type").String(type).Raw(members).Close('}');
  return event;
}

std::string_view StopReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "end_turn";
    case FinishReason::kStopSequence: return "stop_sequence";
    case FinishReason::kToolCalls: return "tool_use";
    case FinishReason::kLength: return "max_tokens";
    case FinishReason::kContentFilter: return "refusal";
  }
  return "end_turn";
}

constexpr std::string_view kEmptyThinking = R"({"type":"thinking","thinking":"","signature":""})";
constexpr std::string_view kEmptyText = R"({"type":"text","text":""})";

}  // namespace

std::string MessagesWriter::Usage(int64_t output_tokens) const {
  std::string text;
  JsonText json(&text);
  json.Open('{').Key("input_tokens").Int(context_.prompt_tokens - context_.cached_tokens);
  json.Key("cache_creation_input_tokens").Int(0).Key("cache_read_input_tokens").Int(context_.cached_tokens);
  json.Key("output_tokens").Int(output_tokens).Key("service_tier").String("standard").Close('}');
  return text;
}

std::string MessagesWriter::StopReason() const {
  const Answer& answer = answers_[0];
  std::string text;
  JsonText json(&text);
  json.Key("stop_reason").String(StopReasonName(answer.finish)).Key("stop_sequence");
  answer.finish == FinishReason::kStopSequence ? json.String(answer.stop_sequence) : json.Null();
  return text;
}

std::string MessagesWriter::MessageObject(std::string_view content, bool ended) const {
  std::string text;
  JsonText json(&text);
  json.Open('{').Key("id").String(context_.id).Key("type").String("message").Key("role").String("assistant");
  json.Key("model").String(context_.model).Key("content").Open('[').Raw(content).Close(']');
  json.Raw(ended ? StopReason() : R"("stop_reason":null,"stop_sequence":null)");
  if (ended) json.Raw(MalformedCalls(answers_[0]));
  json.Key("usage").Raw(Usage(ended ? CompletionTokens() : 0)).Close('}');
  return text;
}

void MessagesWriter::OpenBlock(Block kind, std::string_view block, std::vector<SseEvent>* out) {
  CloseBlock(out);
  open_ = kind;
  std::string members;
  JsonText(&members).Key("index").Int(num_blocks_).Key("content_block").Raw(block);
  out->push_back(Named("content_block_start", members));
  if (num_blocks_++ == 0) out->push_back(KeepAlive());
}

void MessagesWriter::CloseBlock(std::vector<SseEvent>* out) {
  if (open_ == Block::kNone) return;
  if (open_ == Block::kThinking) Delta("signature_delta", "signature", context_.id, out);
  open_ = Block::kNone;
  std::string members;
  JsonText(&members).Key("index").Int(num_blocks_ - 1);
  out->push_back(Named("content_block_stop", members));
}

void MessagesWriter::Delta(std::string_view type, std::string_view field, std::string_view text,
                           std::vector<SseEvent>* out) const {
  std::string members;
  JsonText json(&members);
  json.Key("index").Int(num_blocks_ - 1).Key("delta").Open('{').Key("type").String(type).Key(field).String(text);
  json.Close('}');
  out->push_back(Named("content_block_delta", members));
}

void MessagesWriter::Begin(std::vector<SseEvent>* out) {
  DI_CHECK(context_.num_choices == 1);
  if (out == nullptr) return;
  std::string members;
  JsonText(&members).Key("message").Raw(MessageObject("", false));
  out->push_back(Named("message_start", members));
  if (thinking()) OpenBlock(Block::kThinking, kEmptyThinking, out);
}

void MessagesWriter::OnEvent(int, const OutputEvents& events, const OutputEvent& event, bool,
                             std::vector<SseEvent>* out) {
  if (out == nullptr) return;
  switch (event.kind) {
    case OutputEventKind::kReasoning:
      if (open_ != Block::kThinking) OpenBlock(Block::kThinking, kEmptyThinking, out);
      Delta("thinking_delta", "thinking", events.Text(event), out);
      break;
    case OutputEventKind::kContent:
      if (open_ != Block::kText) OpenBlock(Block::kText, kEmptyText, out);
      Delta("text_delta", "text", events.Text(event), out);
      break;
    case OutputEventKind::kCallBegin: {
      const AnswerPart& part = answers_[0].parts.back();
      std::string block;
      JsonText json(&block);
      json.Open('{').Key("type").String("tool_use").Key("id").String(part.id).Key("name").String(part.name);
      json.Key("input").Raw("{}").Close('}');
      OpenBlock(Block::kCall, block, out);
      break;
    }
    case OutputEventKind::kCallArguments:
      Delta("input_json_delta", "partial_json", events.Text(event), out);
      break;
    case OutputEventKind::kCallEnd:
    case OutputEventKind::kMalformed:
    case OutputEventKind::kFinish: break;
  }
}

void MessagesWriter::OnChoiceEnd(int, std::vector<SseEvent>* out) {
  if (out == nullptr) return;
  CloseBlock(out);
  std::string members;
  JsonText json(&members);
  json.Key("delta").Open('{').Raw(StopReason()).Raw(MalformedCalls(answers_[0])).Close('}');
  json.Key("usage").Raw(Usage(CompletionTokens()));
  out->push_back(Named("message_delta", members));
  out->push_back(Named("message_stop", ""));
}

void MessagesWriter::Fail(const AnswerError& error, std::vector<SseEvent>* out) {
  if (out == nullptr) return;
  out->push_back({.event = "error", .data = ErrorBody(Protocol::kMessages, Profile::kDefault, error)});
}

SseEvent MessagesWriter::KeepAlive() const { return Named("ping", ""); }

std::string MessagesWriter::Body() const {
  std::string content;
  JsonText json(&content);
  const auto write_thinking = [&](std::string_view text) {
    json.Open('{').Key("type").String("thinking").Key("thinking").String(text).Key("signature").String(context_.id);
    json.Close('}');
  };
  const std::vector<AnswerPart>& parts = answers_[0].parts;
  if (thinking() && (parts.empty() || parts[0].kind != AnswerPart::Kind::kReasoning)) write_thinking("");
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::kReasoning) {
      write_thinking(part.text);
    } else if (part.kind == AnswerPart::Kind::kText) {
      json.Open('{').Key("type").String("text").Key("text").String(part.text).Close('}');
    } else if (compatible() || part.whole) {
      json.Open('{').Key("type").String("tool_use").Key("id").String(part.id).Key("name").String(part.name);
      json.Key("input").Raw(ArgumentsObject(part.text)).Close('}');
    }  // a call that was cut has no input: its text is among the malformed ones
  }
  return MessageObject(content, true);
}

}  // namespace deepinfer::recipe
