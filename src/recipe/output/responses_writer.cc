// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/responses_writer.h"

#include <algorithm>

#include "core/check.h"
#include "recipe/output/json_text.h"

namespace deepinfer::recipe {
namespace {

void WriteOptional(const std::optional<std::string>& text, JsonText* json) {
  text ? json->String(*text) : json->Null();
}

}  // namespace

ResponsesWriter::ItemKind ResponsesWriter::KindOf(const AnswerPart& part) const {
  if (part.kind == AnswerPart::Kind::kReasoning) return ItemKind::kReasoning;
  if (part.kind == AnswerPart::Kind::kText) return ItemKind::kMessage;
  const auto& custom = options_.custom_tools;
  if (std::find(custom.begin(), custom.end(), part.name) != custom.end()) return ItemKind::kCustom;
  return options_.client_tool_search && part.name == "tool_search" ? ItemKind::kToolSearch : ItemKind::kFunction;
}

std::string ResponsesWriter::ItemId(size_t index) const {
  static constexpr std::string_view kPrefixes[] = {"rs", "msg", "fc", "ctc", "tsc"};
  const ItemKind kind = KindOf(answers_[0].parts[index]);
  return fmt::format("{}_{}_{}", kPrefixes[static_cast<size_t>(kind)], context_.id, index);
}

std::string ResponsesWriter::ContentPart(const AnswerPart& part, bool empty) const {
  std::string text;
  JsonText json(&text);
  json.Open('{');
  if (part.kind == AnswerPart::Kind::kReasoning) {
    json.Key("type").String("reasoning_text");
  } else {
    json.Key("type").String("output_text").Key("annotations").Raw("[]").Key("logprobs").Open('[');
    if (!empty) json.Raw(LogprobEntries(part.logprobs, part.candidates));
    json.Close(']');
  }
  json.Key("text").String(empty ? "" : part.text).Close('}');
  return text;
}

std::string ResponsesWriter::CustomInputOf(const AnswerPart& part) const {
  CustomInput input;
  std::string text = input.Push(part.text);
  return text += input.Finish();
}

void ResponsesWriter::WriteCallItem(size_t index, std::string_view status, bool added, std::string* out) const {
  const AnswerPart& part = answers_[0].parts[index];
  const ItemKind kind = KindOf(part);
  JsonText json(out);
  json.Key("type").String(kind == ItemKind::kCustom       ? "custom_tool_call"
                          : kind == ItemKind::kToolSearch ? "tool_search_call"
                                                          : "function_call");
  json.Key("id").String(ItemId(index)).Key("status").String(status).Key("call_id").String(part.id);
  if (kind == ItemKind::kToolSearch) {
    json.Key("execution").String("client").Key("arguments").Raw(added ? "{}" : ArgumentsObject(part.text));
  } else if (kind == ItemKind::kCustom) {
    json.Key("name").String(part.name).Key("input").String(added ? "" : CustomInputOf(part));
  } else {
    const auto& tools = options_.namespace_tools;
    const auto tool = std::find_if(tools.begin(), tools.end(), [&](const auto& t) { return t.function == part.name; });
    json.Key("name").String(tool == tools.end() ? part.name : tool->local_name);
    if (tool != tools.end()) json.Key("namespace").String(tool->namespace_name);
    json.Key("arguments").String(added ? "" : part.text);
  }
}

std::string ResponsesWriter::Item(size_t index, std::string_view status, bool added) const {
  const std::vector<AnswerPart>& parts = answers_[0].parts;
  const AnswerPart& part = parts[index];
  std::string text = "{";
  JsonText json(&text);
  if (part.kind == AnswerPart::Kind::kCall) {
    WriteCallItem(index, status, added, &text);
    return text += '}';
  }
  const bool reasoning = part.kind == AnswerPart::Kind::kReasoning;
  json.Key("type").String(reasoning ? "reasoning" : "message").Key("id").String(ItemId(index));
  json.Key("status").String(status);
  if (!reasoning) {
    const bool call_follows = index + 1 < parts.size() && parts[index + 1].kind == AnswerPart::Kind::kCall;
    json.Key("role").String("assistant").Key("phase").String(call_follows ? "commentary" : "final_answer");
  }
  json.Key("content").Open('[');
  if (!added) json.Raw(ContentPart(part, false));
  json.Close(']');
  if (reasoning) {
    json.Key("summary").Raw("[]").Key("encrypted_content").String(fmt::format("{}-{}", context_.id, index));
  }
  return text += '}';
}

void ResponsesWriter::Emit(std::string_view type, std::string_view before, std::string_view after,
                           std::vector<SseEvent>* out) {
  SseEvent event{.event = std::string(type), .data = ""};
  JsonText json(&event.data);
  json.Open('{').Key("type").String(type).Raw(before).Key("sequence_number").Int(sequence_++).Raw(after).Close('}');
  out->push_back(std::move(event));
}

// Where an event belongs. Content parts are always the first of their item.
std::string ResponsesWriter::At(size_t index, bool content) const {
  std::string text;
  JsonText json(&text);
  if (content) json.Key("content_index").Int(0);
  json.Key("item_id").String(ItemId(index)).Key("output_index").Int(static_cast<int64_t>(index));
  return text;
}

void ResponsesWriter::Begin(std::vector<SseEvent>* out) {
  DI_CHECK(context_.num_choices == 1);
  if (out == nullptr) return;
  for (const std::string_view type : {"response.created", "response.in_progress"}) {
    Emit(type, "\"response\":" + Response("in_progress", false, ""), "", out);
  }
}

void ResponsesWriter::Added(size_t index, std::vector<SseEvent>* out) {
  const AnswerPart& part = answers_[0].parts[index];
  custom_input_ = CustomInput();
  std::string members = "\"item\":" + Item(index, "in_progress", true);
  JsonText json(&members);
  json.Raw(fmt::format(",\"output_index\":{}", index));
  Emit("response.output_item.added", members, "", out);
  if (part.kind != AnswerPart::Kind::kCall) {
    Emit("response.content_part.added", At(index, true) + ",\"part\":" + ContentPart(part, true), "", out);
  }
}

void ResponsesWriter::OnEvent(int, const OutputEvents& events, const OutputEvent& event, bool fresh,
                              std::vector<SseEvent>* out) {
  if (out == nullptr) return;
  const size_t index = answers_[0].parts.size() - 1;
  if (fresh) {
    if (index > 0) Done(index - 1, "completed", out);
    Added(index, out);
  }
  const std::string_view text = events.Text(event);
  std::string before;
  JsonText json(&before);
  if (event.kind == OutputEventKind::kReasoning || event.kind == OutputEventKind::kContent) {
    const bool reasoning = event.kind == OutputEventKind::kReasoning;
    json.Key("content_index").Int(0).Key("delta").String(text).Key("item_id").String(ItemId(index));
    if (!reasoning) json.Key("logprobs").Open('[').Raw(LogprobEntries(events, event)).Close(']');
    json.Key("output_index").Int(static_cast<int64_t>(index));
    Emit(reasoning ? "response.reasoning_text.delta" : "response.output_text.delta", before, "", out);
  } else if (event.kind == OutputEventKind::kCallArguments) {
    const ItemKind kind = KindOf(answers_[0].parts[index]);
    const std::string delta = kind == ItemKind::kCustom ? custom_input_.Push(text) : std::string(text);
    if (kind == ItemKind::kToolSearch || delta.empty()) return;
    json.Key("delta").String(delta).Raw(At(index, false));
    Emit(kind == ItemKind::kCustom ? "response.custom_tool_call_input.delta"
                                   : "response.function_call_arguments.delta",
         before, "", out);
  }
}

void ResponsesWriter::Done(size_t index, std::string_view status, std::vector<SseEvent>* out) {
  const AnswerPart& part = answers_[0].parts[index];
  std::string before;
  JsonText json(&before);
  std::string text;
  switch (KindOf(part)) {
    case ItemKind::kReasoning:
      JsonText(&text).Key("text").String(part.text);
      Emit("response.reasoning_text.done", At(index, true), text, out);
      break;
    case ItemKind::kMessage:
      json.Key("content_index").Int(0).Key("item_id").String(ItemId(index)).Key("logprobs").Open('[');
      json.Raw(LogprobEntries(part.logprobs, part.candidates)).Close(']');
      json.Key("output_index").Int(static_cast<int64_t>(index));
      JsonText(&text).Key("text").String(part.text);
      Emit("response.output_text.done", before, text, out);
      break;
    case ItemKind::kFunction:
      json.Key("arguments").String(part.text).Raw(At(index, false));
      Emit("response.function_call_arguments.done", before, "", out);
      break;
    case ItemKind::kCustom: {
      if (const std::string rest = custom_input_.Finish(); !rest.empty()) {
        JsonText(&text).Key("delta").String(rest).Raw(At(index, false));
        Emit("response.custom_tool_call_input.delta", text, "", out);
      }
      json.Key("input").String(CustomInputOf(part)).Raw(At(index, false));
      Emit("response.custom_tool_call_input.done", before, "", out);
      break;
    }
    case ItemKind::kToolSearch: break;
  }
  if (part.kind != AnswerPart::Kind::kCall) {
    Emit("response.content_part.done", At(index, true) + ",\"part\":" + ContentPart(part, false), "", out);
  }
  Emit("response.output_item.done",
       fmt::format("\"item\":{},\"output_index\":{}", Item(index, status, false), index), "", out);
}

std::string_view ResponsesWriter::EndStatus() const {
  const FinishReason finish = answers_[0].finish;
  const bool cut = finish == FinishReason::kLength || finish == FinishReason::kContentFilter;
  return cut ? "incomplete" : "completed";
}

void ResponsesWriter::OnChoiceEnd(int, std::vector<SseEvent>* out) {
  state_ = EndStatus();
  if (out == nullptr) return;
  const size_t count = answers_[0].parts.size();
  if (count > 0) Done(count - 1, EndStatus(), out);
  Emit(EndStatus() == "completed" ? "response.completed" : "response.incomplete", "\"response\":" + Body(), "", out);
}

void ResponsesWriter::Fail(const AnswerError& error, std::vector<SseEvent>* out) {
  state_ = error.code == Code::kCancelled ? "cancelled" : "failed";
  JsonText json(&error_);
  json.Open('{').Key("code").String(error.api_code.value_or(ErrorType(Protocol::kResponses, error.code)));
  json.Key("message").String(error.message).Close('}');
  if (out != nullptr) Emit("response.failed", "\"response\":" + Body(), "", out);
}

std::string ResponsesWriter::Usage() const {
  std::string text;
  JsonText json(&text);
  const int64_t output = CompletionTokens();
  json.Open('{').Key("input_tokens").Int(context_.prompt_tokens);
  json.Key("input_tokens_details").Open('{').Key("cached_tokens").Int(context_.cached_tokens).Close('}');
  json.Key("output_tokens").Int(output).Key("output_tokens_details").Open('{');
  json.Key("reasoning_tokens").Int(ReasoningTokens()).Close('}');
  json.Key("total_tokens").Int(context_.prompt_tokens + output).Close('}');
  return text;
}

std::string ResponsesWriter::Body() const {
  const bool ended = state_ == "completed" || state_ == "incomplete";
  return Response(state_, ended, state_ == "failed" ? error_ : "");
}

std::string ResponsesWriter::Response(std::string_view status, bool ended, std::string_view error) const {
  const ResponsesEcho& echo = options_.echo;
  const Answer& answer = answers_[0];
  std::string text;
  JsonText json(&text);
  json.Open('{').Key("id").String(context_.id).Key("object").String("response");
  json.Key("created_at").Int(context_.created).Key("status").String(status).Key("background").Bool(echo.background);
  json.Key("completed_at");
  ended ? json.Int(context_.clock ? context_.clock() : context_.created) : json.Null();
  json.Key("content_filters").Null().Key("error").Raw(error.empty() ? "null" : error);
  json.Key("frequency_penalty").Double(0).Key("incomplete_details");
  if (ended && status == "incomplete") {
    const bool filtered = answer.finish == FinishReason::kContentFilter;
    json.Open('{').Key("reason").String(filtered ? "content_filter" : "max_output_tokens").Close('}');
  } else {
    json.Null();
  }
  json.Key("instructions");
  WriteOptional(echo.instructions, &json);
  json.Key("max_output_tokens");
  echo.max_output_tokens ? json.Int(*echo.max_output_tokens) : json.Null();
  json.Key("max_tool_calls").Null().Key("model").String(context_.model).Key("moderation").Null();
  json.Key("output").Open('[');
  if (ended) {
    for (size_t i = 0; i < answer.parts.size(); ++i) {
      json.Raw(Item(i, i + 1 == answer.parts.size() ? EndStatus() : "completed", false));
    }
  }
  json.Close(']').Key("parallel_tool_calls").Bool(echo.parallel_tool_calls).Key("presence_penalty").Double(0);
  json.Key("previous_response_id");
  WriteOptional(echo.previous_response_id, &json);
  json.Key("prompt_cache_key").Null().Key("prompt_cache_retention").Null().Key("reasoning").Value(echo.reasoning);
  json.Key("safety_identifier").Null().Key("service_tier").String("default").Key("store").Bool(echo.store);
  json.Key("temperature").Double(echo.temperature).Key("text").Value(echo.text);
  json.Key("tool_choice").Value(echo.tool_choice).Key("tools").Value(echo.tools);
  json.Key("top_logprobs").Int(echo.top_logprobs).Key("top_p").Double(echo.top_p);
  json.Key("truncation").String("disabled").Key("usage").Raw(ended ? Usage() : "null").Key("user");
  WriteOptional(echo.user, &json);
  json.Key("metadata");
  echo.metadata.IsObject() ? json.Value(echo.metadata) : json.Raw("{}");
  if (ended) json.Raw(MalformedCalls(answer));
  json.Close('}');
  return text;
}

}  // namespace deepinfer::recipe
