// SPDX-License-Identifier: Apache-2.0
// grammar_check: answers questions about schemas, one JSON object a line. For tools/grammar/differential.py.
//   {"schema": text, "documents": [text]}   {"accepted": [bool]}        keys in any order, blanks allowed
//   {"schema": text, "language": [text]}    {"differences": [text]}     compact; see Language()
//   {"schema": text, "finish": text}        {"finished": text or null}  a document that begins so; see Finish()
// or {"error": text} where the schema does not compile.
#include <iostream>
#include <random>
#include <set>
#include <string>

#include "deepinfer/grammar.h"

namespace deepinfer::grammar {
namespace {

constexpr uint32_t kStop = 256;

class Checker {
 public:
  Checker() {
    for (int i = 0; i < 256; ++i) tokens_.emplace_back(1, static_cast<char>(i));
    tokens_.emplace_back("");
    for (const char* text : {"{\"", "{\"a\":", "\":", "\":\"", "\":0", "\":[", "\"a\"", "\"b\":", ",\"", "\",\"", "[0", "[\"", "[[", "[{", "[]", "{}", "]}",
                             "}}", "}]", "\"]", "0]", "0}", "1,", "a\"", "ab", "10", "true", "nu", "alse", "},", "],", "],[", "},{\"a"}) {
      tokens_.emplace_back(text);
    }
    vocabulary_ = Vocabulary::Create(tokens_, {}, std::vector<uint32_t>{kStop});
  }

  std::string Answer(const Json& request) {
    CompileOptions options;
    options.key_order = KeyOrder::kFree;
    const Json* language = request.Find("language");
    if (language != nullptr) options.whitespace_max = 0;
    auto compiled = Compile(Constraint::JsonSchema(request.Find("schema")->AsString()), vocabulary_, options);
    if (!compiled.ok()) return "{\"error\":" + Quoted(compiled.status().message()) + "}";
    if (const Json* text = request.Find("finish")) {
      const auto schema = ParseJson(request.Find("schema")->AsString());
      return "{\"finished\":" + Finish(*compiled, *schema, text->AsString()) + "}";
    }
    return language != nullptr ? Language(*compiled, *language) : Documents(*compiled, *request.Find("documents"));
  }

 private:
  static std::string Quoted(std::string_view text) {
    std::string out;
    AppendJsonString(text, false, &out);
    return out;
  }

  std::string Documents(const CompiledGrammar& grammar, const Json& documents) {
    std::string answer = "{\"accepted\":[";
    const char* separator = "";
    for (const Json& document : documents.Items()) {
      Matcher matcher(grammar);
      const bool accepted = matcher.AcceptBytes(document.AsString()).ok() && matcher.IsComplete();
      answer += std::string(separator) + (accepted ? "true" : "false");
      separator = ",";
    }
    return answer + "]}";
  }

  // The list is all of the language but for other spellings of the same values. After every prefix of the listed texts
  // each token must be allowed exactly if it leads to another prefix, and the stop exactly after a listed text. Tokens
  // that begin another spelling (an escape, a fraction, a minus sign) are left out of the comparison.
  std::string Language(const CompiledGrammar& grammar, const Json& language) {
    std::set<std::string> words, prefixes{""};
    for (const Json& word : language.Items()) {
      words.insert(word.AsString());
      for (size_t i = 1; i <= word.AsString().size(); ++i) prefixes.insert(word.AsString().substr(0, i));
    }
    std::string differences;
    std::vector<uint32_t> mask(vocabulary_->mask_words());
    for (const std::string& prefix : prefixes) {
      Matcher matcher(grammar);
      if (!matcher.AcceptBytes(prefix).ok() || !matcher.FillMask(mask).ok()) {
        differences += (differences.empty() ? "" : ",") + Quoted("refused: " + prefix);
        continue;
      }
      for (uint32_t token = 0; token < tokens_.size(); ++token) {
        const std::string& text = tokens_[token];
        if (text.find_first_of("\\.-") != std::string::npos) continue;
        const bool expected = token == kStop ? words.count(prefix) != 0 : prefixes.count(prefix + text) != 0;
        if (((mask[token / 32] >> (token % 32) & 1) != 0) == expected) continue;
        const std::string what = token == kStop ? "stop" : "<" + text + ">";
        differences += (differences.empty() ? "" : ",") + Quoted((expected ? "missing: " : "too much: ") + prefix + what);
      }
    }
    return "{\"differences\":[" + differences + "]}";
  }

  // Goes on with what ends most: closing brackets, the keys of all "required" lists, short values, patterns that are words,
  // and else any byte that is allowed. null: not allowed so far, or not finished in 20,000 steps.
  std::string Finish(const CompiledGrammar& grammar, const Json& schema, std::string text) {
    Matcher matcher(grammar);
    if (!matcher.AcceptBytes(text).ok()) return "null";
    std::set<std::string> required, words;
    CollectRequired(schema, &required, &words);
    std::vector<std::string> inside{"\""};
    inside.insert(inside.end(), words.begin(), words.end());
    std::vector<std::string> outside{"}", "]"};
    for (const std::string& key : required) outside.insert(outside.end(), {Quoted(key) + ":", "," + Quoted(key) + ":"});
    outside.insert(outside.end(), {",0", ",\"\"", ",[", ",{", "0", "\"\"", "[", "{", "null", "true", "false"});
    std::vector<uint32_t> mask(vocabulary_->mask_words());
    std::mt19937 random(1);
    for (int step = 0; step < 20'000 && !matcher.IsComplete(); ++step) {
      std::string next;
      for (const std::string& candidate : InString(text) ? inside : outside) {
        if (next.empty() && matcher.CanAcceptBytes(candidate)) next = candidate;
      }
      if (next.empty()) {
        if (!matcher.FillMask(mask).ok()) return "null";
        std::vector<char> allowed;
        for (uint32_t byte = 0; byte < 256; ++byte) {
          if (mask[byte / 32] >> (byte % 32) & 1) allowed.push_back(static_cast<char>(byte));
        }
        if (allowed.empty()) return "null";
        next = allowed[random() % allowed.size()];
      }
      if (!matcher.AcceptBytes(next).ok()) return "null";
      text += next;
    }
    return matcher.IsComplete() ? Quoted(text) : "null";
  }

  static bool InString(std::string_view text) {
    bool inside = false;
    for (size_t i = 0; i < text.size(); ++i) {
      if (inside && text[i] == '\\') {
        ++i;
      } else if (text[i] == '"') {
        inside = !inside;
      }
    }
    return inside;
  }

  static void CollectRequired(const Json& schema, std::set<std::string>* names, std::set<std::string>* words) {
    if (schema.IsArray()) {
      for (const Json& item : schema.Items()) CollectRequired(item, names, words);
    } else if (schema.IsObject()) {
      for (const auto& [key, value] : schema.Members()) {
        CollectRequired(value, names, words);
        const bool pattern = key == "pattern" && value.IsString() && !value.AsString().empty();
        if (pattern && value.AsString().find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos) words->insert(value.AsString());
        if (key != "required" || !value.IsArray()) continue;
        for (const Json& name : value.Items()) {
          if (name.IsString()) names->insert(name.AsString());
        }
      }
    }
  }

  std::vector<std::string> tokens_;
  std::shared_ptr<const Vocabulary> vocabulary_;
};

}  // namespace
}  // namespace deepinfer::grammar

int main() {
  deepinfer::grammar::Checker checker;
  for (std::string line; std::getline(std::cin, line);) {
    auto request = deepinfer::ParseJson(line);
    if (!request.ok()) return 1;
    std::cout << checker.Answer(*request) << std::endl;
  }
  return 0;
}
