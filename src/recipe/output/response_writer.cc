// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/response_writer.h"

#include <utility>

#include "core/check.h"
#include "core/json.h"
#include "core/utf8.h"
#include "recipe/output/chat_writer.h"
#include "recipe/output/completions_writer.h"
#include "recipe/output/json_text.h"
#include "recipe/output/messages_writer.h"
#include "recipe/output/responses_writer.h"

namespace deepinfer::recipe {
namespace {

// The mixing step of SplitMix64: enough to make ids look random and differ.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Of duplicate keys the last, at the place of the first.
void DropDuplicateKeys(Json* value) {
  if (value->IsArray()) {
    for (Json& item : value->Items()) DropDuplicateKeys(&item);
  } else if (value->IsObject()) {
    Json::Object kept;
    for (auto& [key, item] : value->Members()) {
      DropDuplicateKeys(&item);
      Json* before = nullptr;
      for (auto& member : kept) {
        if (member.first == key) before = &member.second;
      }
      if (before != nullptr) {
        *before = std::move(item);
      } else {
        kept.emplace_back(key, std::move(item));
      }
    }
    value->Members() = std::move(kept);
  }
}

}  // namespace

std::unique_ptr<ResponseWriter> ResponseWriter::Create(AnswerContext context, const AnswerOptions& options,
                                                       const ParseOptions& parsing, Profile profile) {
  switch (options.protocol) {
    case Protocol::kChat: return std::make_unique<ChatWriter>(std::move(context), options, parsing, profile);
    case Protocol::kResponses: return std::make_unique<ResponsesWriter>(std::move(context), options, parsing, profile);
    case Protocol::kMessages: return std::make_unique<MessagesWriter>(std::move(context), options, parsing, profile);
    case Protocol::kCompletions: break;
  }
  return std::make_unique<CompletionsWriter>(std::move(context), options, parsing, profile);
}

ResponseWriter::ResponseWriter(AnswerContext context, const AnswerOptions& options, const ParseOptions& parsing,
                               Profile profile)
    : context_(std::move(context)),
      options_(options),
      parsing_(parsing),
      profile_(profile),
      answers_(static_cast<size_t>(context_.num_choices)) {}

void ResponseWriter::Add(int choice, const OutputEvents& events, std::vector<SseEvent>* out) {
  Answer& answer = answers_[static_cast<size_t>(choice)];
  for (const OutputEvent& event : events.events()) {
    const bool call = event.kind == OutputEventKind::kCallBegin;
    const bool fresh = answer.Take(events, event, call ? CallId(choice, event.call) : std::string());
    OnEvent(choice, events, event, fresh, out);
  }
}

void ResponseWriter::AddPromptLogprobs(size_t, std::vector<TokenLogprob>, std::vector<TokenCandidate>,
                                       std::vector<SseEvent>*) {}

void ResponseWriter::EndChoice(int choice, const OutputUsage& usage, std::vector<SseEvent>* out) {
  DI_CHECK(num_ended_ < context_.num_choices);
  answers_[static_cast<size_t>(choice)].usage = usage;
  OnChoiceEnd(choice, out);
  if (++num_ended_ == context_.num_choices) OnAllEnd(out);
}

std::string ResponseWriter::CallId(int choice, int call) const {
  static constexpr std::string_view kAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string id = fmt::format("call_{:02}_", call);
  uint64_t state = Mix(context_.call_id_seed ^ Mix((static_cast<uint64_t>(choice) << 32) + static_cast<uint64_t>(call)));
  for (int i = 0; i < 24; ++i) {
    state = Mix(state);
    id += kAlphabet[state % (i < 20 ? kAlphabet.size() : 10)];
  }
  return id;
}

int64_t ResponseWriter::CompletionTokens() const {
  int64_t sum = 0;
  for (const Answer& answer : answers_) sum += answer.usage.completion_tokens;
  return sum;
}

int64_t ResponseWriter::ReasoningTokens() const {
  int64_t sum = 0;
  for (const Answer& answer : answers_) {
    if (!compatible()) {
      sum += answer.usage.reasoning_tokens;
    } else if (context_.count_tokens) {
      sum += context_.count_tokens(answer.Joined(AnswerPart::Kind::kReasoning));
    }
  }
  return sum;
}

std::string ResponseWriter::TokenText(TokenId id) const {
  const std::string_view bytes = context_.vocabulary->Bytes(id);
  if (FindInvalidUtf8(bytes) == std::string_view::npos) return std::string(bytes);
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", byte);
    }
  }
  return text;
}

std::string ResponseWriter::LogprobEntries(std::span<const TokenLogprob> tokens,
                                           std::span<const TokenCandidate> candidates) const {
  std::string text;
  if (tokens.empty()) return text;
  DI_CHECK(context_.vocabulary != nullptr);
  JsonText json(&text);
  const auto write = [&](TokenId id, float logprob) {
    json.Key("token").String(TokenText(id)).Key("logprob").Float(logprob).Key("bytes").Open('[');
    for (const char c : context_.vocabulary->Bytes(id)) json.Int(static_cast<unsigned char>(c));
    json.Close(']');
  };
  for (const TokenLogprob& token : tokens) {
    json.Open('{');
    write(token.id, token.logprob);
    json.Key("top_logprobs").Open('[');
    for (const TokenCandidate& candidate : candidates.subspan(token.top_begin, token.top_count)) {
      json.Open('{');
      write(candidate.id, candidate.logprob);
      json.Close('}');
    }
    json.Close(']').Close('}');
  }
  return text;
}

std::string ResponseWriter::LogprobEntries(const OutputEvents& events, const OutputEvent& event) const {
  return LogprobEntries(events.Logprobs(event), events.candidates());
}

std::string ResponseWriter::ArgumentsObject(const std::string& arguments) const {
  auto parsed = ParseJson(arguments);
  if (!parsed.ok() || !parsed->IsObject()) return "{}";
  DropDuplicateKeys(&*parsed);
  return WriteJson(*parsed);
}

std::string ResponseWriter::MalformedCalls(const Answer& answer) const {
  if (compatible() || answer.malformed.empty()) return {};
  std::string text = "\"malformed_tool_calls\":";
  JsonText json(&text);
  json.Open('[');
  for (const MalformedCall& call : answer.malformed) {
    json.Open('{').Key("index");
    call.call >= 0 ? json.Int(call.call) : json.Null();
    json.Key("reason").String(MalformedText(call.reason)).Key("raw").String(call.raw).Close('}');
  }
  json.Close(']');
  return text;
}

}  // namespace deepinfer::recipe
