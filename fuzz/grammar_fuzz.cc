// SPDX-License-Identifier: Apache-2.0
// Hostile constraints, and masks against trying tokens: the first byte picks the front end, the text up to the first
// zero byte is the constraint, the rest steers a walk. Every allowed token must be accepted, a refused one must not be,
// and no step may be without an allowed token.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "deepinfer/grammar.h"

namespace grammar = deepinfer::grammar;

namespace {

constexpr uint32_t kStop = 256, kMarker = 257;
constexpr uint8_t kKinds = 10;

std::shared_ptr<const grammar::Vocabulary> SmallVocabulary() {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
  tokens.insert(tokens.end(), {"", ""});
  for (const char* text : {"\",\"", "\":", "ab", "{\"", "\"}", "[1,", "12", "\\u00", "\xE6\xB1"}) tokens.emplace_back(text);
  // Pieces of tool calls and tags, so that a walk gets into them.
  for (const char* text : {"<", "</", ">\n", "<a>", "</a>", " calls>\n", "tool_calls>", " invoke name=\"", "f\">\n", "g\">",
                           " parameter name=\"", "\" string=\"true\">", "\" string=\"false\">", " parameter>\n", " invoke>\n", " calls>"}) {
    tokens.emplace_back(text);
  }
  const uint32_t stop[] = {kStop}, special[] = {kMarker};
  return grammar::Vocabulary::Create(tokens, special, stop);
}

grammar::DsmlOptions Dsml(const std::string& text) {
  grammar::DsmlOptions options;
  options.dsml_token = kMarker;
  options.required = text.size() % 2 == 0;
  options.parallel = text.size() % 5 != 0;
  options.v41 = text.size() % 3 != 0;
  options.opener_in_prompt = options.required && text.size() % 4 == 0;
  return options;
}

grammar::Constraint MakeConstraint(uint8_t kind, std::string text) {
  switch (kind % kKinds) {
    case 0: return grammar::Constraint::Regex(std::move(text));
    case 1: return grammar::Constraint::Grammar(std::move(text));
    case 2: return grammar::Constraint::Lark(std::move(text));
    case 3: return grammar::Constraint::StructuralTag(std::move(text));
    case 4: {  // a list, one choice a line
      std::vector<std::string> choices;
      for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        choices.push_back(text.substr(begin, end - begin));
        begin = end + 1;
      }
      return grammar::Constraint::Choice(std::move(choices));
    }
    case 5:
    case 6: return grammar::Constraint::Dsml({{"f", text, true}, {"g", "", false}}, Dsml(text));
    case 7: {  // what stands beside the calls, or a tag whose begin, schema and end are made of the text
      grammar::DsmlOptions options = Dsml(text);
      (text.size() % 2 == 0 ? options.text_schema : options.text_regex) = text;
      return grammar::Constraint::Dsml({{"f", R"({"properties":{"a":{"type":"string"},"b":{"type":"integer"}}})", true}}, options);
    }
    case 8: {
      std::string tag = R"({"structures":[{"begin":"<a>","schema":)" + text + R"(,"end":"</a>"},{"begin":)";
      deepinfer::AppendJsonString("<" + text.substr(0, 8), false, &tag);
      return grammar::Constraint::StructuralTag(tag + R"(,"schema":{"type":"integer"},"end":"</"}],"triggers":["<"]})");
    }
    default: return grammar::Constraint::JsonSchema(std::move(text));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto vocabulary = SmallVocabulary();
  if (size < 2) return 0;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0', 1), size);
  grammar::CompileOptions options;
  options.whitespace_max = 2;
  options.limits.time = std::chrono::milliseconds(500);
  options.limits.steps = 300'000;
  auto compiled = grammar::Compile(MakeConstraint(data[0], input.substr(1, end - 1)), vocabulary, options);
  if (!compiled.ok()) {
    if (compiled.status().message().empty()) std::abort();
    return 0;
  }
  grammar::Matcher matcher(*compiled);
  std::vector<uint32_t> mask(vocabulary->mask_words());
  for (size_t i = end + 1; i < size && i < end + 24; ++i) {
    if (!matcher.FillMask(mask).ok()) return 0;
    std::vector<uint32_t> allowed;
    for (uint32_t token = 0; token < vocabulary->size(); ++token) {
      const bool bit = (mask[token / 32] >> (token % 32) & 1) != 0;
      grammar::Matcher probe = matcher.Fork();
      const deepinfer::Status status = probe.Accept(token);
      if (status.code() == deepinfer::Code::kResourceExhausted) return 0;
      if (status.ok() != bit) std::abort();
      if (bit) allowed.push_back(token);
    }
    if (allowed.empty()) std::abort();
    const uint32_t token = allowed[data[i] % allowed.size()];
    if (token == kStop) return 0;
    if (!matcher.Accept(token).ok()) return 0;
  }
  return 0;
}
