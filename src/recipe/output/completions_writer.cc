// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/completions_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "recipe/output/json_text.h"

namespace deepinfer::recipe {
namespace {

// Characters that begin in `text`.
int64_t NumCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

CompletionsWriter::CompletionsWriter(AnswerContext context, const AnswerOptions& options, const ParseOptions& parsing,
                                     Profile profile)
    : ResponseWriter(std::move(context), options, parsing, profile) {
  for (int choice = 0; choice < context_.num_choices; ++choice) offsets_.push_back(NumCharacters(EchoOf(choice)));
}

size_t CompletionsWriter::PromptOf(int choice) const {
  const size_t each = static_cast<size_t>(context_.num_choices) / context_.echoed_prompts.size();
  return static_cast<size_t>(choice) / each;
}

std::string_view CompletionsWriter::EchoOf(int choice) const {
  return context_.echoed_prompts.empty() ? std::string_view() : context_.echoed_prompts[PromptOf(choice)];
}

std::string CompletionsWriter::Usage() const {
  std::string text;
  JsonText json(&text);
  const int64_t completion = CompletionTokens();
  json.Open('{').Key("prompt_tokens").Int(context_.prompt_tokens).Key("completion_tokens").Int(completion);
  json.Key("total_tokens").Int(context_.prompt_tokens + completion);
  json.Key("prompt_tokens_details").Open('{').Key("cached_tokens").Int(context_.cached_tokens).Close('}');
  json.Key("prompt_cache_hit_tokens").Int(context_.cached_tokens);
  json.Key("prompt_cache_miss_tokens").Int(context_.prompt_tokens - context_.cached_tokens).Close('}');
  return text;
}

std::string_view CompletionsWriter::FinishName(int choice) const {
  switch (answers_[static_cast<size_t>(choice)].finish) {
    case FinishReason::kLength: return "length";
    case FinishReason::kContentFilter: return "content_filter";
    default: return "stop";
  }
}

std::string CompletionsWriter::Choice(int choice, std::string_view text, std::string_view logprobs,
                                      std::string_view finish) const {
  std::string out;
  JsonText json(&out);
  json.Open('{').Key("text").String(text).Key("index").Int(choice).Key("logprobs");
  logprobs.empty() ? json.Null() : json.Raw(logprobs);
  json.Key("finish_reason");
  finish.empty() ? json.Null() : json.String(finish);
  json.Close('}');
  return out;
}

std::string CompletionsWriter::Object(std::string_view choices, std::string_view usage) const {
  std::string out;
  JsonText json(&out);
  json.Open('{').Key("id").String(context_.id).Key("object").String("text_completion");
  json.Key("created").Int(context_.created).Key("model").String(context_.model);
  json.Key("system_fingerprint").String(context_.system_fingerprint);
  json.Key("choices").Open('[').Raw(choices).Close(']');
  if (!usage.empty()) json.Key("usage").Raw(usage);
  json.Close('}');
  return out;
}

void CompletionsWriter::Append(std::span<const TokenLogprob> tokens, std::span<const TokenCandidate> candidates,
                               int64_t* offset, Lists* lists) const {
  const auto comma = [&](std::string* list) { *list += list->empty() ? "" : ","; };
  for (const TokenLogprob& token : tokens) {
    for (std::string* list : {&lists->tokens, &lists->scores, &lists->tops, &lists->offsets}) comma(list);
    JsonText(&lists->tokens).String(TokenText(token.id));
    JsonText(&lists->offsets).Int(*offset);
    *offset += NumCharacters(context_.vocabulary->Bytes(token.id));
    if (std::isnan(token.logprob)) {
      lists->scores += "null";
      lists->tops += "null";
      continue;
    }
    JsonText(&lists->scores).Float(token.logprob);
    JsonText top(&lists->tops);
    top.Open('{');
    for (const TokenCandidate& candidate : candidates.subspan(token.top_begin, token.top_count)) {
      top.Key(TokenText(candidate.id)).Float(candidate.logprob);
    }
    top.Close('}');
  }
}

std::string CompletionsWriter::Logprobs(const Lists& lists) {
  if (lists.empty()) return {};
  return fmt::format(R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":[{}]}})", lists.tokens,
                     lists.scores, lists.tops, lists.offsets);
}

void CompletionsWriter::Begin(std::vector<SseEvent>* out) {
  if (out == nullptr || context_.echoed_prompts.empty() || options_.prompt_logprobs) return;
  const std::string_view usage = options_.include_usage ? "null" : "";
  for (int choice = 0; choice < context_.num_choices; ++choice) {
    out->push_back({.event = "", .data = Object(Choice(choice, EchoOf(choice), "", ""), usage)});
  }
}

// The echo of each of the prompt's choices goes out with them.
void CompletionsWriter::AddPromptLogprobs(size_t prompt, std::vector<TokenLogprob> tokens,
                                          std::vector<TokenCandidate> candidates, std::vector<SseEvent>* out) {
  prompts_.resize(context_.echoed_prompts.size());
  prompts_[prompt] = {.tokens = std::move(tokens), .candidates = std::move(candidates)};
  if (out == nullptr) return;
  Lists lists;
  int64_t offset = 0;
  Append(prompts_[prompt].tokens, prompts_[prompt].candidates, &offset, &lists);
  for (int choice = 0; choice < context_.num_choices; ++choice) {
    if (PromptOf(choice) != prompt) continue;
    const std::string text = Choice(choice, EchoOf(choice), Logprobs(lists), "");
    out->push_back({.event = "", .data = Object(text, options_.include_usage ? "null" : "")});
  }
}

void CompletionsWriter::OnEvent(int choice, const OutputEvents& events, const OutputEvent& event, bool,
                                std::vector<SseEvent>* out) {
  if (out == nullptr || event.kind != OutputEventKind::kContent) return;
  Lists lists;
  Append(events.Logprobs(event), events.candidates(), &offsets_[static_cast<size_t>(choice)], &lists);
  const std::string text = Choice(choice, events.Text(event), Logprobs(lists), "");
  out->push_back({.event = "", .data = Object(text, options_.include_usage ? "null" : "")});
}

void CompletionsWriter::OnChoiceEnd(int choice, std::vector<SseEvent>* out) {
  if (out == nullptr) return;
  const std::string text = Choice(choice, "", "", FinishName(choice));
  out->push_back({.event = "", .data = Object(text, options_.include_usage ? "null" : "")});
}

void CompletionsWriter::OnAllEnd(std::vector<SseEvent>* out) {
  if (out == nullptr) return;
  if (options_.include_usage) out->push_back({.event = "", .data = Object("", Usage())});
  out->push_back({.event = "", .data = "[DONE]"});
}

void CompletionsWriter::Fail(const AnswerError& error, std::vector<SseEvent>* out) {
  if (out == nullptr) return;
  out->push_back({.event = "", .data = ErrorBody(Protocol::kCompletions, profile_, error)});
}

std::string CompletionsWriter::Body() const {
  std::string choices;
  JsonText json(&choices);
  for (int choice = 0; choice < context_.num_choices; ++choice) {
    const Answer& answer = answers_[static_cast<size_t>(choice)];
    Lists lists;
    int64_t offset = 0;
    if (!prompts_.empty()) {
      const PromptLogprobs& prompt = prompts_[PromptOf(choice)];
      Append(prompt.tokens, prompt.candidates, &offset, &lists);
    }
    offset = NumCharacters(EchoOf(choice));
    // Output without tools or thinking has one part at most.
    if (!answer.parts.empty()) Append(answer.parts[0].logprobs, answer.parts[0].candidates, &offset, &lists);
    const std::string text = std::string(EchoOf(choice)) + answer.Joined(AnswerPart::Kind::kText);
    json.Raw(Choice(choice, text, Logprobs(lists), FinishName(choice)));
  }
  return Object(choices, Usage());
}

}  // namespace deepinfer::recipe
