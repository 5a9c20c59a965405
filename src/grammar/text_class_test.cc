// SPDX-License-Identifier: Apache-2.0
// Tokens that a mask takes by class of text, without walking them, are those that trying each token finds: over
// constraints whose edges lie within, at and beyond the longest run that counts as of a class.
#include "grammar/text_class.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/utf8.h"
#include "deepinfer/grammar.h"

namespace deepinfer::grammar {
namespace {

constexpr uint32_t kStop = 256;

// All bytes, a stop, and runs of every class of many lengths, some with a stranger at the end.
std::vector<std::string> Tokens() {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
  tokens.emplace_back("");
  std::mt19937 random(7);
  for (const TextClassInfo& info : TextClasses()) {
    const auto ranges = info.characters.Ranges();
    for (size_t length : {1, 2, 3, 8, 15, 16, 17, 32, 33, 40}) {
      std::string text;
      for (size_t i = 0; i < length; ++i) {
        const auto& [first, last] = ranges[random() % ranges.size()];
        AppendUtf8(first + static_cast<uint32_t>(random() % std::min(last - first + 1, 500u)), &text);
      }
      tokens.push_back(text);
      for (const char* stranger : {"@", "\"", "\":", " ", "/", "-", "\xE6\xB1", "\\u00", "9", "Q"}) tokens.push_back(text + stranger);
    }
  }
  for (const char* text : {"a b c d e", " ab", "x@y", "ab.cd", "http://", "12-34", "a\"}"}) tokens.emplace_back(text);
  // Blanks, digits, and what follows them.
  for (const std::string blanks : {"  ", "   ", "\t", "\n\n", "\n  ", "\n\t ", " \n", "\r\n", "\n \n", "  \t  "}) {
    for (const char* before : {"", "{", "[", ",", ":", "\":", "\",", "\"", "1,", "1", "]"}) {
      for (const char* after : {"", "\"", "}", "]", "1", ",", "true"}) tokens.push_back(before + blanks + after);
    }
  }
  for (size_t length : {3, 4, 5, 30, 31, 32, 33, 34, 40}) {
    for (const char* before : {"", "\n", "\",\n", ","}) tokens.push_back(before + std::string(length, ' '));
    tokens.push_back(std::string(length, '7'));
    tokens.push_back("-" + std::string(length, '1') + ",");
  }
  return tokens;
}

class TextClassTest : public testing::Test {
 protected:
  void Agrees(const Constraint& constraint, std::string_view before) {
    auto compiled = Compile(constraint, vocabulary_, options_);
    ASSERT_TRUE(compiled.ok()) << constraint.text << ": " << compiled.status().message();
    Matcher matcher(*compiled);
    std::vector<uint32_t> mask(vocabulary_->mask_words());
    for (size_t i = 0; i <= before.size(); ++i) {
      // Twice: the second time from what was kept.
      for (int round = 0; round < 2; ++round) {
        ASSERT_TRUE(matcher.FillMask(mask).ok());
        for (uint32_t token = 0; token < tokens_.size(); ++token) {
          if (token == kStop) continue;
          ASSERT_EQ((mask[token / 32] >> (token % 32) & 1) != 0, matcher.CanAcceptBytes(tokens_[token]))
              << constraint.text << " after " << before.substr(0, i) << ": <" << tokens_[token] << ">";
        }
      }
      if (i == before.size()) break;
      ASSERT_TRUE(matcher.AcceptBytes(before.substr(i, 1)).ok()) << constraint.text << " at " << i;
    }
  }
  CompileOptions options_;
  std::vector<std::string> tokens_ = Tokens();
  std::shared_ptr<const Vocabulary> vocabulary_ = Vocabulary::Create(tokens_, {}, std::vector<uint32_t>{kStop});
};

TEST_F(TextClassTest, CharactersKnowTheirClasses) {
  for (uint32_t c = 0; c < 0x11000; c += c < 0x3100 ? 1 : 97) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    uint8_t expected = 0;
    for (const TextClassInfo& info : TextClasses()) {
      for (const auto& [first, last] : info.characters.Ranges()) expected |= first <= c && c <= last ? info.bit : 0;
    }
    ASSERT_EQ(TextClassesOf(c), expected) << c;
  }
}

TEST_F(TextClassTest, ContainedClassesAreParts) {
  for (const TextClassInfo& info : TextClasses()) {
    for (uint32_t c = 0; c < 0x3100; ++c) {
      const uint8_t classes = TextClassesOf(c);
      ASSERT_TRUE((classes & info.contains) == 0 || (classes & info.bit) != 0) << c;
    }
  }
}

TEST_F(TextClassTest, PatternsOverClasses) {
  const char* patterns[] = {
      "[a-z]+", "[a-z]{0,15}", "[a-z]{0,16}", "[a-z]{0,17}", "[a-z]{3,40}x", "[A-Za-z]*1", "[a-zA-Z0-9]+@[a-z.]+",
      "[a-zA-Z0-9 ]{1,20}", "\\S+", "(\\S+\\s+){0,3}\\S+", "(\\S+\\s+){0,99}\\S+", "[^@]+@[^@]+", "[^\\s@]+@[^\\s@]+\\.[a-z]+", "[ -~]*",
      "[^/]*/", ".{0,15}", ".{0,16}", ".{0,31}", ".{0,32}", ".{0,33}", "[^\\x00-\\x1f]*", "[\\p{L} ]+", "\\w+", "[^\\w]+", "[^a]{0,20}b"};
  for (const char* pattern : patterns) {
    Agrees(Constraint::Regex(pattern), "");
    Agrees(Constraint::JsonSchema(std::string(R"({"type":"string","pattern":"^)") + [&] {
             std::string escaped;
             AppendJsonString(pattern, false, &escaped);
             return escaped.substr(1, escaped.size() - 2);
           }() + "$\"}"), "\"");
  }
  Agrees(Constraint::JsonSchema(R"({"type":"string","pattern":"^[a-z]{0,20}$"})"), "\"abcdefghij");
  Agrees(Constraint::JsonSchema(R"({"type":"string","maxLength":20})"), "\"abcdefghij");
  Agrees(Constraint::JsonSchema(R"({"type":"string","minLength":3,"maxLength":40})"), "\"abcdefghij");
}

TEST_F(TextClassTest, LongTokensAtLengthLimits) {
  for (int limit : {47, 48, 49, 60, 100, 160, 300}) {
    const std::string schema = fmt::format(R"({{"type":"object","properties":{{"a":{{"type":"string","maxLength":{}}}}}}})", limit);
    Agrees(Constraint::JsonSchema(schema), "{\"a\":\"xyz");
  }
}

TEST_F(TextClassTest, KeysBesideOthers) {
  const char* schemas[] = {
      R"({"type":"object","properties":{"a":{"type":"string"},"ab":{},"b\"c":{},"\u6c49x":{},"\ud83d\ude00":{}},"required":["ab"]})",
      R"({"type":"object","properties":{"a":{"type":"string"},"":{}},"additionalProperties":{"type":"integer"}})",
      R"({"type":"object","properties":{"abc":false,"a/b":{"type":"null"}},"minProperties":1})", R"({"type":"object","maxProperties":1})"};
  for (const char* schema : schemas) {
    for (KeyOrder order : {KeyOrder::kSchema, KeyOrder::kFree}) {
      options_.key_order = order;
      Agrees(Constraint::JsonSchema(schema), "{\"");
      Agrees(Constraint::JsonSchema(schema), "{\"ab\"");
      Agrees(Constraint::JsonSchema(schema), "{\"\\u00");
      Agrees(Constraint::JsonSchema(schema), "{\"\xE6\xB1");
    }
  }
  options_.key_order = KeyOrder::kFree;
  Agrees(Constraint::JsonSchema(R"({"type":"object","additionalProperties":{"type":"integer"}})"), R"({"ab":1,"x@y":2,"a)");
}

TEST_F(TextClassTest, BlanksAndDigits) {
  const char* schema = R"({"type":"object","properties":{"a":{"type":"array","items":{"type":["integer","object"]}},"b":{"maximum":700},
      "c":{"type":"array","uniqueItems":true}},"required":["a"]})";
  for (Spelling spelling : {Spelling::kAny, Spelling::kUsual}) {
    for (uint32_t most : {0, 1, 2, 3, 5, 32}) {
      options_.spelling = spelling;
      options_.whitespace_max = most;
      Agrees(Constraint::JsonSchema(schema), R"({"a":[1,{},77],"b":5,"c":[1,2]})");
      if (most > 0) Agrees(Constraint::JsonSchema(schema), "{\n\"a\": [1, {}");
      if (most > 4) Agrees(Constraint::JsonSchema(schema), "{\n  \"a\": [\n   1,\n  2]");
      if (spelling == Spelling::kAny && most > 4) Agrees(Constraint::JsonSchema(schema), "{ \t\"a\" :\r\n [ 1 , 2 ] , \"b\"  ");
    }
  }
}

TEST_F(TextClassTest, FormatsAndKeys) {
  Agrees(Constraint::JsonSchema(R"({"format":"email","type":"string"})"), "\"me.you@ex-a");
  Agrees(Constraint::JsonSchema(R"({"format":"uri","type":"string"})"), "\"https://a");
  Agrees(Constraint::JsonSchema(R"({"format":"hostname","type":"string"})"), "\"ab-c.");
  Agrees(Constraint::JsonSchema(R"({"format":"date-time","type":"string"})"), "\"2024-02-2");
  Agrees(Constraint::JsonSchema(R"({"type":"object","properties":{"name":{"type":"string"},"nature":{"type":"integer"}}})"), "{\"na");
  Agrees(Constraint::JsonSchema(R"({"type":"object","properties":{"name":{}},"patternProperties":{"^[a-z]+$":{}},)"
                                R"("additionalProperties":false})"),
         "{\"nam");
  Agrees(Constraint::JsonSchema(R"({"type":"string","not":{"enum":["ab","abcd"]}})"), "\"ab");
  Agrees(Constraint::JsonSchema(R"({"type":"string","maxLength":10,"not":{"enum":["aaaaaaaaaa","abcd"]}})"), "\"aaaaaaaaa");
}

}  // namespace
}  // namespace deepinfer::grammar
