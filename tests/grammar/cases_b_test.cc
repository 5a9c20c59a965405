// SPDX-License-Identifier: Apache-2.0
// Bugs that other engines had with constrained output, as tests named after their numbers in the project's case list
// (section B). Cases about requests and servers live with those modules.
#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "deepinfer/grammar.h"

namespace deepinfer::grammar {
namespace {

// CPU time: what else runs on the machine does not count.
double SecondsSince(std::clock_t start) { return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC; }

class CasesB : public testing::Test {
 protected:
  CasesB() {
    std::vector<std::string> tokens;
    for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
    tokens.emplace_back("");
    for (const char* text : {"  ", "\n\n", "{\"", "\":", "1}"}) tokens.emplace_back(text);
    const uint32_t stop[] = {256};
    vocabulary_ = Vocabulary::Create(tokens, {}, stop);
  }
  Result<CompiledGrammar> Try(const Constraint& constraint, const CompileOptions& options = {}) {
    const std::clock_t start = std::clock();
    auto compiled = Compile(constraint, vocabulary_, options);
    EXPECT_LT(SecondsSince(start), 3.0);
    return compiled;
  }
  Result<CompiledGrammar> TrySchema(const std::string& schema) { return Try(Constraint::JsonSchema(schema)); }
  void Refused(const Constraint& constraint, const std::string& part = "") {
    auto compiled = Try(constraint);
    ASSERT_FALSE(compiled.ok()) << constraint.text;
    EXPECT_FALSE(compiled.status().message().empty());
    EXPECT_NE(compiled.status().message().find(part), std::string::npos) << compiled.status().message();
  }
  bool Accepts(const Result<CompiledGrammar>& grammar, std::string_view text) {
    EXPECT_TRUE(grammar.ok()) << grammar.status().message();
    if (!grammar.ok()) return false;
    Matcher matcher(*grammar);
    return matcher.AcceptBytes(text).ok() && matcher.IsComplete();
  }
  void Check(const Result<CompiledGrammar>& grammar, std::vector<std::string> yes, std::vector<std::string> no) {
    for (const std::string& text : yes) EXPECT_TRUE(Accepts(grammar, text)) << text;
    for (const std::string& text : no) EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
  // Takes the first allowed of the wanted bytes at each step, the lowest allowed token where none is.
  std::string Script(const CompiledGrammar& grammar, std::string_view wanted, size_t tokens_max) {
    Matcher matcher(grammar);
    std::vector<uint32_t> mask(vocabulary_->mask_words());
    std::string text;
    for (size_t i = 0; i < tokens_max && !matcher.IsFinished(); ++i) {
      EXPECT_TRUE(matcher.FillMask(mask).ok());
      const auto allowed = [&](uint32_t token) { return (mask[token / 32] >> (token % 32) & 1) != 0; };
      uint32_t pick = 257;
      for (char c : wanted) {
        if (pick == 257 && allowed(static_cast<uint8_t>(c))) pick = static_cast<uint8_t>(c);
      }
      for (uint32_t c : {'"', '}', ':'}) {
        if (pick == 257 && allowed(c)) pick = c;
      }
      for (uint32_t c = 0x21; c < 256 && pick == 257; ++c) {
        if (allowed(c)) pick = c;
      }
      EXPECT_TRUE(matcher.Accept(pick).ok()) << text;
      text.push_back(static_cast<char>(pick));
    }
    EXPECT_TRUE(matcher.IsComplete()) << text;
    return text;
  }
  std::shared_ptr<const Vocabulary> vocabulary_;
};

TEST_F(CasesB, B01InvalidPatternAfterAValidOne) {
  Check(Try(Constraint::Regex("^(.*)$")), {"", "abc"}, {"a\nb"});
  Check(Try(Constraint::Regex("^(|.*)$")), {"", "abc"}, {});
  for (const char* bad : {"[", "(?<=a)b", "(", "a{3,1}", "\\p{Nope}"}) Refused(Constraint::Regex(bad), "offset");
  Check(Try(Constraint::Regex("^(.*)$")), {"x"}, {});
}

TEST_F(CasesB, B02DegenerateConstraints) {
  for (const char* schema : {"", "null", "false", "[]", "3"}) Refused(Constraint::JsonSchema(schema));
  Refused(Constraint::Grammar(""));
  Refused(Constraint::Choice({}));
  Refused(Constraint::Choice({""}));
  Refused(Constraint::StructuralTag(""));
  Refused(Constraint::StructuralTag("{}"));
  Check(TrySchema("true"), {"1", "{\"a\":[null]}"}, {"", "{"});
}

TEST_F(CasesB, B05WhitespaceRunaway) {
  auto grammar = TrySchema(R"({"type":"object","properties":{"a":{"type":"boolean"},"b":{"const":1}},"required":["a","b"],"additionalProperties":false})");
  ASSERT_TRUE(grammar.ok());
  for (const char* blanks : {"\n", " ", "\t", "\r"}) {
    const std::string text = Script(*grammar, std::string(blanks) + "t", 400);
    EXPECT_TRUE(ParseJson(text).ok()) << text;
  }
}

TEST_F(CasesB, B06RecursiveRef) {
  Check(TrySchema(R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"c":{"type":"array","items":{"$ref":"#/$defs/n"}}},"required":["v","c"],"additionalProperties":false}}})"),
        {R"({"v":1,"c":[{"v":2,"c":[{"v":3,"c":[]}]}]})"}, {R"({"v":1,"c":[{"v":2}]})"});
  Refused(Constraint::JsonSchema(R"({"$ref":"#"})"), "$ref");
  Refused(Constraint::JsonSchema(R"({"$ref":"#/$defs/nothing"})"), "$ref");
}

TEST_F(CasesB, B07LeftRecursion) {
  Check(Try(Constraint::Grammar("root ::= e\ne ::= e \"+\" \"1\" | \"1\"\n")), {"1", "1+1+1"}, {"", "+1"});
  Refused(Constraint::Grammar("root ::= a\na ::= b \"x\"\nb ::= a | \"y\"\n"), "left-recursive");
  Refused(Constraint::Grammar("root ::= a\na ::= opt a \"x\" | \"y\"\nopt ::= \"\" | \"z\"\n"), "left-recursive");
}

TEST_F(CasesB, B09PropertyNames) {
  Check(TrySchema(R"({"type":"object","propertyNames":{"pattern":"^a$|^b$"},"additionalProperties":{"type":"integer"}})"),
        {"{}", R"({"a":1})", R"({"b":2})"}, {R"({"a":"plain"})", R"({"c":1})", R"({"ab":1})"});
}

TEST_F(CasesB, B10CombinatorBesideOtherKeywords) {
  for (const char* keyword : {"anyOf", "allOf", "oneOf"}) {
    const std::string schema = std::string(R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false,")") + keyword + R"(":[{"required":["a"]}]})";
    Check(TrySchema(schema), {R"({"a":1})"}, {"[]", "{}", R"({"a":"x"})", R"({"a":1,"b":2})"});
  }
}

TEST_F(CasesB, B11PatternPropertiesWithProperties) {
  Check(TrySchema(R"({"type":"object","properties":{"id":{"type":"integer"}},"required":["id"],"patternProperties":{"^s_":{"type":"number"},"d$":{"minimum":5}},"additionalProperties":false})"),
        {R"({"id":7,"s_x":1.5})", R"({"id":7,"s_d":6})"}, {R"({"id":3})", R"({"id":7,"s_x":"a"})", R"({"id":7,"z":1})", R"({"id":7,"s_d":1})"});
}

TEST_F(CasesB, B13NegativeRanges) {
  Check(TrySchema(R"({"type":"number","minimum":-4,"maximum":4})"), {"-0.5", "0", "-4", "3.99"}, {"-4.1", "4.5"});
  Check(TrySchema(R"({"type":"integer","minimum":-5})"), {"-3", "0", "7"}, {"-6", "-", "--3", "-01"});
  Check(TrySchema(R"({"type":"number","maximum":-0.1})"), {"-0.123", "-5"}, {"-0.05", "0"});
  Check(TrySchema(R"({"type":"integer","minimum":-100,"maximum":-7})"), {"-7", "-100", "-42"}, {"-6", "-101", "7"});
}

TEST_F(CasesB, B14BoundsAreNumbersNotPatterns) {
  Check(TrySchema(R"({"type":"number","minimum":0.5,"maximum":2.5})"), {"0.5", "0.75", "2.5"}, {"0,5", "0x5", "2 5", "0\"5"});
}

TEST_F(CasesB, B17NonAscii) {
  Check(TrySchema("{\"enum\":[\"\u00e9\",\"\u6c49\",\"\U0001F600\",\"e\\u0301\"]}"), {"\"\u00e9\"", "\"\u6c49\"", "\"\U0001F600\"", "\"e\u0301\""}, {"\"e\"", "\"\u6c48\""});
  Check(TrySchema("{\"pattern\":\"^[\u0430-\u044f]+$\",\"type\":\"string\"}"), {"\"\u0434\u0430\""}, {"\"\u0434a\""});
  Check(TrySchema("{\"pattern\":\"^[\U0001F600-\U0001F63F]$\",\"type\":\"string\"}"), {"\"\U0001F605\""}, {"\"\U0001F640\""});
  Check(TrySchema("{\"pattern\":\"^[^\u0430]$\",\"type\":\"string\"}"), {"\"a\""}, {"\"\u0430\"", "\"aa\""});
  Check(TrySchema("{\"pattern\":\"^[\u00e9]{2}$\",\"type\":\"string\"}"), {"\"\u00e9\u00e9\""}, {"\"\u00e9\""});
}

TEST_F(CasesB, B18EmptyEnum) {
  Refused(Constraint::JsonSchema(R"({"type":"object","properties":{"x":{"enum":[]}},"required":["x"]})"), "unsatisfiable");
  Check(TrySchema(R"({"type":"object","properties":{"x":{"enum":[]}},"additionalProperties":false})"), {"{}"}, {R"({"x":1})"});
  Refused(Constraint::JsonSchema(R"({"not":{}})"), "unsatisfiable");
}

TEST_F(CasesB, B19OddPropertyNames) {
  const std::string keys = R"("a\nb","q\"k","b\\s","","\u0000","😀","</s>","<|User|>")";
  std::string properties;
  for (const char* key : {R"("a\nb")", R"("q\"k")", R"("b\\s")", R"("")", R"("\u0000")", R"("😀")", R"("</s>")", R"("<|User|>")"}) {
    properties += (properties.empty() ? "" : ",") + std::string(key) + R"(:{"const":1})";
  }
  auto grammar = TrySchema(R"({"type":"object","properties":{)" + properties + R"(},"required":[)" + keys + R"(],"additionalProperties":false})");
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  const std::string text = Script(*grammar, "u0", 1000);
  auto parsed = ParseJson(text);
  ASSERT_TRUE(parsed.ok()) << text;
  EXPECT_EQ(parsed->Members().size(), 8u) << text;
}

TEST_F(CasesB, B20LongRepetitions) {
  auto grammar = Try(Constraint::Regex("^[a-z]{200,}x[0-9]{200,}$"));
  const std::string digits(200, '7');
  Check(grammar, {std::string(200, 'b') + "x" + digits}, {std::string(199, 'b') + "x" + digits, std::string(200, 'b') + "x" + digits.substr(1)});
  Check(TrySchema(R"({"type":"string","minLength":2})"), {"\"ab\""}, {"\"a\""});
  std::string items = "1";
  for (int i = 1; i < 149; ++i) items += ",1";
  Check(TrySchema(R"({"type":"array","items":{"type":"integer"},"minItems":150})"), {"[" + items + ",1]"}, {"[" + items + "]"});
}

TEST_F(CasesB, B22EmptyIntervals) {
  for (const char* schema : {R"({"type":"integer","minimum":5,"maximum":4})", R"({"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":2})",
                             R"({"type":"string","minLength":3,"maxLength":2})", R"({"type":"array","minItems":2,"maxItems":1})",
                             R"({"const":"x","enum":["a","b"]})"}) {
    Refused(Constraint::JsonSchema(schema), "unsatisfiable");
    Refused(Constraint::JsonSchema(std::string(R"({"type":"object","properties":{"p":)") + schema + R"(},"required":["p"]})"), "#/properties/p");
  }
}

TEST_F(CasesB, B23ClassesAndAnchors) {
  const auto pattern = [&](const std::string& p) { return TrySchema(R"({"type":"string","pattern":")" + p + "\"}"); };
  Check(pattern(R"(^\\d+$)"), {"\"12\""}, {"\"\u0663\""});
  Check(pattern(R"(^\\w+$)"), {"\"a_1\""}, {"\"\u00e9\""});
  Check(pattern(R"(^\\S+$)"), {"\"[\""}, {"\" \""});
  Check(pattern("b"), {"\"abc\""}, {"\"ac\""});
  Check(pattern("^$"), {"\"\""}, {"\"a\""});
  Check(pattern("^a|b$"), {"\"ax\"", "\"xb\""}, {"\"xax\""});
  Check(pattern(R"(\\$5)"), {"\"US$5\""}, {"\"US5\""});
}

TEST_F(CasesB, B25LargeBounds) {
  for (uint64_t bound : {1997u, 2001u, 8192u, 10000u}) {
    auto grammar = TrySchema(fmt::format(R"({{"type":"string","maxLength":{}}})", bound));
    const std::string at(bound, 'x');
    Check(grammar, {"\"" + at + "\""}, {"\"" + at + "x\""});
    auto array = TrySchema(fmt::format(R"({{"type":"array","items":{{"const":1}},"maxItems":{}}})", bound));
    std::string items = "1";
    for (uint64_t i = 1; i < bound; ++i) items += ",1";
    Check(array, {"[" + items + "]"}, {"[" + items + ",1]"});
  }
  for (const char* bound : {"65536", "2147483647", "2147483648"}) {
    Check(TrySchema(fmt::format(R"({{"type":"string","maxLength":{}}})", bound)), {"\"abc\""}, {});
    Check(TrySchema(fmt::format(R"({{"type":"array","maxItems":{}}})", bound)), {"[1,2]"}, {});
  }
}

// There is no setting for separators; a member of that name in the schema is an unknown keyword and changes nothing.
TEST_F(CasesB, B27NoCustomSeparators) {
  auto grammar = TrySchema(
      R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a","b"],)"
      R"("x-guidance":{"key_separator":":\"","item_separator":", \n"}})");
  Check(grammar, {R"({"a":"x","b":1})", R"({"a": "x", "b": 1})"}, {R"({"a":""x","b":1})", R"({"a":"x"b":1})"});
}

// The matcher's part of a draft block in which the thinking ends: what comes before the end is never fed, so at any split
// the drafts behind it are checked from the start, and refused ones are rolled back without a trace.
TEST_F(CasesB, B28ThinkingEndInsideADraftBlock) {
  auto grammar = TrySchema(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false})");
  ASSERT_TRUE(grammar.ok());
  const std::string answer = "{\"a\":1}";
  std::vector<uint32_t> before(vocabulary_->mask_words()), after(before);
  for (size_t behind = 0; behind <= 5; ++behind) {
    Matcher matcher(*grammar);
    ASSERT_TRUE(matcher.FillMask(before).ok());
    size_t fed = 0;
    for (; fed < behind; ++fed) ASSERT_TRUE(matcher.Accept(static_cast<uint8_t>(answer[fed])).ok());
    EXPECT_FALSE(matcher.Accept('h').ok());
    matcher.Rollback(fed);
    ASSERT_TRUE(matcher.FillMask(after).ok());
    EXPECT_EQ(before, after);
    EXPECT_TRUE(matcher.AcceptBytes(answer).ok());
    EXPECT_TRUE(matcher.IsFinished());
  }
}

TEST_F(CasesB, B32NothingAfterTheEnd) {
  Matcher regex(*Try(Constraint::Regex("yes")));
  ASSERT_TRUE(regex.AcceptBytes("yes").ok());
  EXPECT_TRUE(regex.IsFinished());
  EXPECT_FALSE(regex.CanAcceptBytes("!"));
  Matcher choice(*Try(Constraint::Choice({"a", "ab"})));
  ASSERT_TRUE(choice.AcceptBytes("a").ok());
  EXPECT_TRUE(choice.IsComplete());
  EXPECT_FALSE(choice.IsFinished());
  ASSERT_TRUE(choice.AcceptBytes("b").ok());
  EXPECT_TRUE(choice.IsFinished());
  std::vector<uint32_t> mask(vocabulary_->mask_words());
  ASSERT_TRUE(choice.FillMask(mask).ok());
  for (uint32_t token = 0; token < vocabulary_->size(); ++token) EXPECT_EQ(mask[token / 32] >> (token % 32) & 1, token == 256 ? 1u : 0u);
}

TEST_F(CasesB, B34ToolWithoutParameters) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
  tokens.insert(tokens.end(), {"", ""});
  const auto vocabulary = Vocabulary::Create(tokens, std::vector<uint32_t>{257}, std::vector<uint32_t>{256});
  for (const char* parameters : {"", "{}", R"({"type":"object"})", R"({"type":"object","properties":{}})",
                                 R"({"type":"object","properties":{},"additionalProperties":false})"}) {
    for (bool v41 : {true, false}) {
      DsmlOptions options;
      options.dsml_token = 257;
      options.required = true;
      options.parallel = false;
      options.v41 = v41;
      auto compiled = Compile(Constraint::Dsml({{"now", parameters, true}}, options), vocabulary, {});
      ASSERT_TRUE(compiled.ok()) << parameters << ": " << compiled.status().message();
      Matcher matcher(*compiled);
      const std::string call = v41 ? "\n\n<@ calls>\n<@ invoke name=\"now\">\n\n</@ invoke>\n</@ calls>"
                                   : "\n\n<@tool_calls>\n<@invoke name=\"now\">\n</@invoke>\n</@tool_calls>";
      for (size_t i = 0; i < call.size(); ++i) {
        ASSERT_FALSE(matcher.IsComplete()) << i;
        ASSERT_TRUE(matcher.Accept(call[i] == '@' ? 257 : static_cast<uint8_t>(call[i])).ok()) << parameters << " at " << call.substr(0, i);
      }
      EXPECT_TRUE(matcher.IsFinished()) << parameters;
      // Blanks for ever are no way to go on: behind the name there is one line feed or a parameter.
      Matcher blanks(*compiled);
      for (char c : call.substr(0, call.find("now") + 6)) ASSERT_TRUE(blanks.Accept(c == '@' ? 257 : static_cast<uint8_t>(c)).ok());
      EXPECT_FALSE(blanks.CanAcceptBytes("   "));
      EXPECT_FALSE(blanks.CanAcceptBytes("\n\n\n"));
    }
  }
}

TEST_F(CasesB, B36PaddedVocabulary) {
  Matcher matcher(*Try(Constraint::Regex(".*")));
  EXPECT_FALSE(matcher.Accept(static_cast<uint32_t>(vocabulary_->size())).ok());
  EXPECT_FALSE(matcher.Accept(4'000'000'000u).ok());
}

TEST_F(CasesB, B37ExcludedStrings) {
  auto grammar = Try(Constraint::StructuralTag(
      R"({"type":"structural_tag","structures":[{"begin":"bcd:","schema":true,"end":";"},{"begin":"abce:","schema":true,"end":";"}],"triggers":["bcd","abce"]})"));
  Check(grammar, {"abcf", "abc", "ab"}, {"abcd", "aabcd", "abcabce", "abcbcd"});
}

TEST_F(CasesB, B39Formats) {
  const auto format = [&](const std::string& name) { return TrySchema(R"({"type":"string","format":")" + name + "\"}"); };
  Check(format("date"), {"\"2024-02-29\""}, {"\"2023-02-29\""});
  Check(format("date-time"), {"\"1990-12-31T15:59:60-08:00\""}, {"\"2016-12-31T22:59:60Z\""});
  Check(format("time"), {"\"23:59:59Z\""}, {"\"24:00:00Z\""});
  const std::string label(63, 'a');
  std::string name = label + "." + label + "." + label + "." + label;  // 255 characters
  Check(format("hostname"), {"\"" + label + "\"", "\"" + name.substr(2) + "\""}, {"\"" + label + "a\"", "\"" + name.substr(1) + "\""});
  Check(format("ipv4"), {"\"127.0.0.1\""}, {"\"256.1.1.1\"", "\"01.1.1.1\""});
  Check(format("ipv6"), {"\"::1\""}, {"\"1::2::3\""});
  Check(format("no-such-format"), {"\"x\""}, {});
}

TEST_F(CasesB, B41PropertyOrder) {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"],"additionalProperties":true})";
  CompileOptions free_order;
  free_order.key_order = KeyOrder::kFree;
  Check(Try(Constraint::JsonSchema(schema)), {R"({"a":2,"b":1})"}, {R"({"b":1,"a":2})", R"({"a":1,"b":1,"b":2})", R"({"a":1,"a":1,"b":2})"});
  Check(Try(Constraint::JsonSchema(schema), free_order), {R"({"b":1,"a":2})", R"({"a":2,"x":0,"b":1})"}, {R"({"b":1,"b":1,"a":2})", R"({"a":2,"x":0,"x":0,"b":1})"});
  const std::string one_of = R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a"],"oneOf":[{"required":["b"]},{"required":["c"]}]})";
  Check(Try(Constraint::JsonSchema(one_of), free_order), {R"({"a":1,"b":2})", R"({"c":0,"a":1})"}, {R"({"a":1})", R"({"a":1,"b":1,"c":1})"});
}

// No dialect here has rules limited by tokens: the attribute is refused by name. A request cut short has a valid prefix.
TEST_F(CasesB, B42ZeroBudgetInsideARule) {
  Refused(Constraint::Lark("start: a\na[max_tokens=0]: /x+/\n"), "attributes");
  Refused(Constraint::Lark("start: a\na[lazy, max_tokens=1]: /x+/\n"), "attributes");
  Check(Try(Constraint::Regex("x{0}")), {""}, {"x"});
  Check(Try(Constraint::Grammar("root ::= [x]{0}\n")), {""}, {"x"});
  Matcher matcher(*Try(Constraint::Regex("abcdefghij")));
  ASSERT_TRUE(matcher.Accept('a').ok());
  EXPECT_FALSE(matcher.IsComplete());
  EXPECT_TRUE(matcher.CanAcceptBytes("bcdefghij"));
}

TEST_F(CasesB, ChoicesAreText) {
  Refused(Constraint::Choice({"ab", "a\xFF"}), "choice 1");
  Refused(Constraint::Choice({"\xE6\xB1"}), "choice 0");
}

TEST_F(CasesB, B44UndefinedRules) {
  Refused(Constraint::Grammar("root ::= missing \"x\"\n"), "\"missing\"");
  Refused(Constraint::Grammar("a ::= \"x\"\n"), "\"root\"");
  Refused(Constraint::Grammar("root ::= \"x\"\nroot ::= \"y\"\n"), "line 2");
  Refused(Constraint::Grammar("my rule ::= \"x\"\n"), "line 1");
  Refused(Constraint::Grammar("# nothing\n"));
  Check(Try(Constraint::Grammar("root ::= a\r\na ::= \"x\"\r\n")), {"x"}, {});
  Check(Try(Constraint::Grammar("\xEF\xBB\xBFroot ::= \"x\"\n")), {"x"}, {});
}

TEST_F(CasesB, B45CompactMode) {
  CompileOptions compact;
  compact.whitespace_max = 0;
  auto grammar = Try(Constraint::JsonSchema(R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"array"},"c":{"type":"object"}}})"), compact);
  Check(grammar, {R"({"a":"x","b":[1,2]})", "{}", R"({"b":[],"c":{"d":{}}})"}, {R"({"a": "x"})", R"({"b":[1, 2]})", "{ }"});
  Matcher matcher(*grammar);
  ASSERT_TRUE(matcher.AcceptBytes("{\"a\":").ok());
  EXPECT_TRUE(matcher.CanAcceptBytes("\""));
}

TEST_F(CasesB, HostileInputEndsSoon) {
  std::string deep(100'000, '(');
  Refused(Constraint::Regex(deep));
  Refused(Constraint::Grammar("root ::= " + deep));
  std::string nested;
  for (int i = 0; i < 100'000; ++i) nested += "{\"items\":";
  Refused(Constraint::JsonSchema(nested));
  Refused(Constraint::JsonSchema(R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})"), "$ref");
  Refused(Constraint::JsonSchema(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"), "unsatisfiable");
  Refused(Constraint::Grammar("root ::= \"x\" root\n"), "unsatisfiable");
  Matcher exponential(*Try(Constraint::Regex("(x+x+)+y")));
  EXPECT_TRUE(exponential.AcceptBytes(std::string(2000, 'x')).ok());
  EXPECT_TRUE(Try(Constraint::Regex("(.*a){20}[ab]{1000000000}")).ok());
  std::string large = R"({"type":"object","properties":{)";
  for (int i = 0; i < 14'000; ++i) large += fmt::format(R"({}"property_number_{}":{{"type":"integer","description":"some text here"}})", i == 0 ? "" : ",", i);
  EXPECT_GT(large.size(), 900'000u);
  auto compiled = TrySchema(large + "}}");
  if (compiled.ok()) {
    Matcher matcher(*compiled);
    std::vector<uint32_t> mask(vocabulary_->mask_words());
    ASSERT_TRUE(matcher.AcceptBytes("{\"").ok());
    const std::clock_t start = std::clock();
    EXPECT_TRUE(matcher.FillMask(mask).ok());
    EXPECT_LT(SecondsSince(start), 2.0);
  }
}

}  // namespace
}  // namespace deepinfer::grammar
