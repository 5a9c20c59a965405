// SPDX-License-Identifier: Apache-2.0
// grammar_check: reads lines {"schema": text, "documents": [text]} and answers {"accepted": [bool]} or {"error": text}.
// For tools/grammar/differential.py.
#include <cstdio>
#include <iostream>
#include <string>

#include "deepinfer/grammar.h"

namespace grammar = deepinfer::grammar;

int main() {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
  const auto vocabulary = grammar::Vocabulary::Create(tokens, {}, {});
  grammar::CompileOptions options;
  options.key_order = grammar::KeyOrder::kFree;
  for (std::string line; std::getline(std::cin, line);) {
    auto request = deepinfer::ParseJson(line);
    if (!request.ok()) return 1;
    auto compiled = grammar::Compile(grammar::Constraint::JsonSchema(request->Find("schema")->AsString()), vocabulary, options);
    std::string answer;
    if (!compiled.ok()) {
      answer = "{\"error\":";
      deepinfer::AppendJsonString(compiled.status().message(), false, &answer);
    } else {
      answer = "{\"accepted\":[";
      const char* separator = "";
      for (const deepinfer::Json& document : request->Find("documents")->Items()) {
        grammar::Matcher matcher(*compiled);
        const bool accepted = matcher.AcceptBytes(document.AsString()).ok() && matcher.IsComplete();
        answer += std::string(separator) + (accepted ? "true" : "false");
        separator = ",";
      }
      answer += "]";
    }
    std::cout << answer << "}" << std::endl;
  }
  return 0;
}
