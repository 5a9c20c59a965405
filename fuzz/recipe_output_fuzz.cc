// SPDX-License-Identifier: Apache-2.0
// Any text or ids, in any options and both profiles: however the input is cut, the events, joined, are the same; calls
// have ascending numbers, and those that ended have arguments that are JSON (default profile); writers give JSON.
// The input: options, a seed for the cuts, then text, or ids as pairs of bytes.
#include <cstdint>
#include <cstdlib>
#include <random>

#include "core/check.h"
#include "core/json.h"
#include "core/utf8.h"
#include "recipe/output/output_parser.h"
#include "recipe/output/response_writer.h"

namespace deepinfer::recipe {
namespace {

const OutputVocabulary& Vocabulary() {
  static const auto* vocabulary = [] {
    const auto tokenizer = Tokenizer::Load(DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json");
    DI_CHECK(tokenizer.ok());
    auto made = OutputVocabulary::Create(**tokenizer);
    DI_CHECK(made.ok());
    return new OutputVocabulary(*std::move(made));
  }();
  return *vocabulary;
}

struct Input {
  ParseOptions options;
  Profile profile = Profile::kDefault;
  BackendFinish finish = BackendFinish::kStop;
  Protocol protocol = Protocol::kChat;
  uint64_t seed = 0;
  bool ids = false;
  std::string text;
  std::vector<TokenId> tokens;
};

Input Read(const uint8_t* data, size_t size) {
  Input input;
  const auto byte = [&](size_t i) -> unsigned { return i < size ? data[i] : 0; };
  input.options.parse_tool_calls = (byte(0) & 1) != 0;
  input.options.starts_in_tool_calls = (byte(0) & 3) == 3;
  input.options.parse_json_output = (byte(0) & 4) != 0;
  input.options.one_call_only = (byte(0) & 8) != 0;
  input.options.stage = static_cast<ThinkingStage>(byte(0) >> 4 & 3);
  input.profile = (byte(0) & 64) != 0 ? Profile::kCompatible : Profile::kDefault;
  input.ids = (byte(0) & 128) != 0;
  input.finish = static_cast<BackendFinish>(byte(1) & 3);
  input.protocol = static_cast<Protocol>(byte(1) >> 2 & 3);
  constexpr const char* kStops[] = {"STOP", "aab", "\n\n", "</think>x", "<｜DSML｜", "語"};
  for (size_t i = 0; i < std::size(kStops); ++i) {
    if ((byte(2) >> i & 1) != 0) input.options.stop_sequences.emplace_back(kStops[i]);
  }
  input.seed = byte(3);
  for (size_t i = 4; i < size; ++i) {
    if (!input.ids) {
      input.text += static_cast<char>(data[i]);
    } else if (i + 1 < size) {
      input.tokens.push_back(static_cast<TokenId>(byte(i) << 8 | byte(i + 1)) % 8300);
      ++i;
    }
  }
  return input;
}

struct Run {
  Answer answer;
  std::string body;
};

Run Parse(const Input& input, size_t longest) {
  auto made = OutputParser::Create(input.options, input.profile, &Vocabulary());
  DI_CHECK(made.ok());
  OutputParser& parser = **made;
  AnswerOptions options;
  options.protocol = input.protocol;
  AnswerContext context;
  context.id = "r1";
  context.vocabulary = &Vocabulary();
  const auto writer = ResponseWriter::Create(std::move(context), options, input.options, input.profile);
  std::vector<SseEvent> sse;
  OutputEvents events;
  Answer answer;
  const auto take = [&] {
    for (const OutputEvent& event : events.events()) {
      DI_CHECK(FindInvalidUtf8(events.Text(event)) == std::string_view::npos);
      answer.Take(events, event, "");
    }
    writer->Add(0, events, &sse);
    events.Clear();
  };
  writer->Begin(&sse);
  std::mt19937_64 random(input.seed);
  const size_t size = input.ids ? input.tokens.size() : input.text.size();
  for (size_t begin = 0; begin < size;) {
    const size_t length = std::min(size - begin, 1 + random() % longest);
    const Status status = input.ids
                              ? parser.PushTokens(std::span(input.tokens).subspan(begin, length), {}, &events)
                              : parser.PushText(std::string_view(input.text).substr(begin, length), 1, &events);
    DI_CHECK(status.ok());
    take();
    begin += length;
  }
  DI_CHECK(parser.Finish(input.finish, &events).ok());
  take();
  writer->EndChoice(0, parser.usage(), &sse);
  for (const SseEvent& event : sse) DI_CHECK(event.data == "[DONE]" || ParseJson(event.data).ok());
  Run run{.answer = std::move(answer), .body = writer->Body()};
  DI_CHECK(ParseJson(run.body).ok());
  return run;
}

// Spaces apart where JSON mode of the compatible profile puts one a chunk.
std::string Describe(const Input& input, const Answer& answer) {
  const bool spaces = input.profile == Profile::kCompatible && input.options.parse_json_output;
  std::string text;
  for (const AnswerPart& part : answer.parts) {
    std::string shown = part.text;
    if (spaces) std::erase(shown, ' ');
    text += fmt::format("{} {} [{}] {}\n", static_cast<int>(part.kind), part.name, shown, part.whole);
  }
  for (const MalformedCall& call : answer.malformed) {
    text += fmt::format("{} {} [{}]\n", call.call, static_cast<int>(call.reason), call.raw);
  }
  return text + fmt::format("{} [{}]", static_cast<int>(answer.finish), answer.stop_sequence);
}

void CheckCalls(const Answer& answer) {
  int32_t next = 0;
  for (const AnswerPart& part : answer.parts) {
    if (part.kind != AnswerPart::Kind::kCall) continue;
    DI_CHECK(part.call == next++);
    if (!part.whole) continue;
    const auto arguments = ParseJson(part.text, {.depth_max = 512});
    DI_CHECK(arguments.ok() && arguments->IsObject());
  }
}

}  // namespace
}  // namespace deepinfer::recipe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer::recipe;
  Input input = Read(data, size);
  // The compatible profile loses a chunk that ends within a character: the last one ends with an "a".
  if (input.ids && input.profile == Profile::kCompatible) input.tokens.push_back(67);
  const Run whole = Parse(input, SIZE_MAX);
  if (input.profile == Profile::kDefault) CheckCalls(whole.answer);
  const std::string expected = Describe(input, whole.answer);
  for (const size_t longest : {size_t{1}, size_t{3}, size_t{20}}) {
    DI_CHECK(Describe(input, Parse(input, longest).answer) == expected);
  }
  return 0;
}
