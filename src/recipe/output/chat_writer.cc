// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/chat_writer.h"

#include "recipe/output/json_text.h"

namespace deepinfer::recipe {
namespace {

void WriteCall(const AnswerPart& part, JsonText* json) {
  json->Open('{').Key("index").Int(part.call).Key("id").String(part.id).Key("type").String("function");
  json->Key("function").Open('{').Key("name").String(part.name).Key("arguments").String(part.text).Close('}').Close('}');
}

}  // namespace

ChatWriter::ChatWriter(AnswerContext context, const AnswerOptions& options, const ParseOptions& parsing, Profile profile)
    : ResponseWriter(std::move(context), options, parsing, profile) {
  JsonText json(&chunk_head_);
  json.Open('{').Key("id").String(context_.id).Key("object").String("chat.completion.chunk");
  json.Key("created").Int(context_.created).Key("model").String(context_.model);
  json.Key("system_fingerprint").String(context_.system_fingerprint);
}

std::string_view ChatWriter::FinishName(FinishReason reason) const {
  switch (reason) {
    case FinishReason::kStop:
    case FinishReason::kStopSequence: return "stop";
    case FinishReason::kToolCalls: return "tool_calls";
    case FinishReason::kLength: return "length";
    case FinishReason::kContentFilter: return "content_filter";
  }
  return "stop";
}

std::string ChatWriter::Usage() const {
  std::string text;
  JsonText json(&text);
  const int64_t completion = CompletionTokens();
  json.Open('{').Key("prompt_tokens").Int(context_.prompt_tokens).Key("completion_tokens").Int(completion);
  json.Key("total_tokens").Int(context_.prompt_tokens + completion);
  json.Key("prompt_tokens_details").Open('{').Key("cached_tokens").Int(context_.cached_tokens).Close('}');
  if (thinking() && KnowsReasoningTokens()) {
    json.Key("completion_tokens_details").Open('{').Key("reasoning_tokens").Int(ReasoningTokens()).Close('}');
  }
  json.Key("prompt_cache_hit_tokens").Int(context_.cached_tokens);
  json.Key("prompt_cache_miss_tokens").Int(context_.prompt_tokens - context_.cached_tokens).Close('}');
  return text;
}

void ChatWriter::Chunk(std::string_view choice, std::string_view usage, std::vector<SseEvent>* out) const {
  SseEvent event;
  event.data.reserve(chunk_head_.size() + choice.size() + usage.size() + 32);
  event.data = chunk_head_;
  event.data += R"(,"choices":[)";
  event.data += choice;
  event.data += ']';
  if (!usage.empty()) event.data.append(R"(,"usage":)").append(usage);
  event.data += '}';
  out->push_back(std::move(event));
}

void ChatWriter::Delta(int choice, std::string_view delta, std::string_view logprobs, std::string_view finish,
                       std::string_view usage, std::vector<SseEvent>* out) const {
  std::string text;
  JsonText json(&text);
  json.Open('{').Key("index").Int(choice).Key("delta").Raw(delta).Key("logprobs");
  logprobs.empty() ? json.Null() : json.Raw(logprobs);
  json.Key("finish_reason");
  finish.empty() ? json.Null() : json.String(finish);
  json.Close('}');
  Chunk(text, usage, out);
}

void ChatWriter::Begin(std::vector<SseEvent>* out) {
  if (out == nullptr) return;
  std::string delta = R"({"role":"assistant","content":"")";
  if (parsing_.stage == ThinkingStage::kContentContinuation) {
    delta += R"(,"reasoning_content":null)";
  } else if (thinking()) {
    delta = R"({"role":"assistant","content":null,"reasoning_content":"")";
  }
  delta += '}';
  for (int choice = 0; choice < context_.num_choices; ++choice) Delta(choice, delta, "", "", NoUsage(), out);
}

void ChatWriter::OnEvent(int choice, const OutputEvents& events, const OutputEvent& event, bool,
                         std::vector<SseEvent>* out) {
  if (out == nullptr) return;
  std::string delta;
  std::string logprobs;
  JsonText json(&delta);
  json.Open('{');
  if (event.kind == OutputEventKind::kReasoning || event.kind == OutputEventKind::kContent) {
    const bool reasoning = event.kind == OutputEventKind::kReasoning;
    json.Key("content");
    reasoning ? json.Null() : json.String(events.Text(event));
    if (thinking()) {
      json.Key("reasoning_content");
      reasoning ? json.String(events.Text(event)) : json.Null();
    }
    if (event.logprob_count > 0) {
      JsonText(&logprobs).Open('{').Key(reasoning ? "reasoning_content" : "content").Open('[').Raw(
          LogprobEntries(events, event)).Close(']').Close('}');
    }
  } else if (event.kind == OutputEventKind::kCallBegin) {
    json.Key("tool_calls").Open('[');
    WriteCall(answers_[static_cast<size_t>(choice)].parts.back(), &json);
    json.Close(']');
  } else if (event.kind == OutputEventKind::kCallArguments) {
    json.Key("tool_calls").Open('[').Open('{').Key("index").Int(event.call).Key("function").Open('{');
    json.Key("arguments").String(events.Text(event)).Close('}').Close('}').Close(']');
  } else {
    return;
  }
  json.Close('}');
  Delta(choice, delta, logprobs, "", NoUsage(), out);
}

void ChatWriter::OnChoiceEnd(int choice, std::vector<SseEvent>* out) {
  if (out == nullptr) return;
  const Answer& answer = answers_[static_cast<size_t>(choice)];
  std::string delta;
  JsonText json(&delta);
  json.Open('{').Key("content").String("");
  if (thinking()) json.Key("reasoning_content").Null();
  json.Raw(MalformedCalls(answer)).Close('}');
  // The compatible profile's last chunk carries the usage whether it was asked for or not.
  Delta(choice, delta, "", FinishName(answer.finish), compatible() ? Usage() : std::string(NoUsage()), out);
}

void ChatWriter::OnAllEnd(std::vector<SseEvent>* out) {
  if (out == nullptr) return;
  if (!compatible() && options_.include_usage) Chunk("", Usage(), out);
  out->push_back({.event = "", .data = "[DONE]"});
}

void ChatWriter::Fail(const AnswerError& error, std::vector<SseEvent>* out) {
  if (out == nullptr) return;
  out->push_back({.event = "", .data = ErrorBody(Protocol::kChat, profile_, error)});
}

std::string ChatWriter::WholeChoice(int choice) const {
  const Answer& answer = answers_[static_cast<size_t>(choice)];
  std::string text;
  JsonText json(&text);
  json.Open('{').Key("index").Int(choice).Key("message").Open('{').Key("role").String("assistant");
  json.Key("content").String(answer.Joined(AnswerPart::Kind::kText));
  if (thinking() && parsing_.stage != ThinkingStage::kContentContinuation) {
    json.Key("reasoning_content").String(answer.Joined(AnswerPart::Kind::kReasoning));
  }
  std::string content_logprobs;
  std::string reasoning_logprobs;
  JsonText content_json(&content_logprobs);
  JsonText reasoning_json(&reasoning_logprobs);
  for (const AnswerPart& part : answer.parts) {
    (part.kind == AnswerPart::Kind::kReasoning ? reasoning_json : content_json)
        .Raw(LogprobEntries(part.logprobs, part.candidates));
  }
  if (answer.HasCalls()) {
    json.Key("tool_calls").Open('[');
    for (const AnswerPart& part : answer.parts) {
      if (part.kind == AnswerPart::Kind::kCall) WriteCall(part, &json);
    }
    json.Close(']');
  }
  json.Raw(MalformedCalls(answer)).Close('}').Key("logprobs");
  if (content_logprobs.empty() && reasoning_logprobs.empty()) {
    json.Null();
  } else {
    json.Open('{');
    if (!content_logprobs.empty()) json.Key("content").Open('[').Raw(content_logprobs).Close(']');
    if (!reasoning_logprobs.empty()) json.Key("reasoning_content").Open('[').Raw(reasoning_logprobs).Close(']');
    json.Close('}');
  }
  json.Key("finish_reason").String(FinishName(answer.finish)).Close('}');
  return text;
}

std::string ChatWriter::Body() const {
  std::string body;
  JsonText json(&body);
  json.Open('{').Key("id").String(context_.id).Key("object").String("chat.completion");
  json.Key("created").Int(context_.created).Key("model").String(context_.model).Key("choices").Open('[');
  for (int choice = 0; choice < context_.num_choices; ++choice) json.Raw(WholeChoice(choice));
  json.Close(']').Key("usage").Raw(Usage()).Key("system_fingerprint").String(context_.system_fingerprint).Close('}');
  return body;
}

}  // namespace deepinfer::recipe
