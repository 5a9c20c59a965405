// SPDX-License-Identifier: Apache-2.0
// Properties of matchers over all front ends: what may stop is in the language, all of the language can be produced,
// no reachable state is a dead end, masks agree with byte-wise acceptance, rollback and fork restore exactly.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "deepinfer/grammar.h"

namespace deepinfer::grammar {
namespace {

constexpr uint32_t kStop = 256, kSpecial = 257, kOther = 258;

// All single bytes, a stop id, two special ids, and some longer tokens, among them partial UTF-8.
std::shared_ptr<const Vocabulary> SmallVocabulary() {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
  for (int i = 0; i < 3; ++i) tokens.emplace_back("");
  for (const char* text : {"{\"", "\":", "\": ", "\",", "\", \"", "\":\"", "\"}", "}}", "]}", "},{", "true", "false", "null", "12", "1.5",
                           "ab", "abc", "name", "the ", " cat", "\\u", "\\n", "00", "e9", "\n\n", "  ", "\xE6\xB1", "\x89", "\xE6\xB1\x89\xE5\xAD\x97",
                           "aa", "a\"", "b\",\"", "<", "</", "[[", "[1,", ",1", "\"a\"", "\",\"a", "1,2"}) {
    tokens.emplace_back(text);
  }
  const uint32_t special[] = {kSpecial, kOther}, stop[] = {kStop};
  return Vocabulary::Create(tokens, special, stop);
}

class GrammarTest : public testing::Test {
 protected:
  CompiledGrammar Must(const Constraint& constraint, const CompileOptions& options = {}) {
    auto compiled = Compile(constraint, vocabulary_, options);
    EXPECT_TRUE(compiled.ok()) << compiled.status().message();
    if (!compiled.ok()) std::abort();
    return *compiled;
  }
  bool Accepts(const CompiledGrammar& grammar, std::string_view text) {
    Matcher matcher(grammar);
    return matcher.AcceptBytes(text).ok() && matcher.IsComplete();
  }
  std::string Refusal(const Constraint& constraint) {
    auto compiled = Compile(constraint, vocabulary_, {});
    return compiled.ok() ? "" : compiled.status().message();
  }

  // Walks at random; at every step the mask must agree with trying each token, and must not be empty.
  void RandomWalk(const CompiledGrammar& grammar, uint32_t seed, int steps) {
    std::mt19937 random(seed);
    Matcher matcher(grammar);
    std::vector<uint32_t> mask(vocabulary_->mask_words());
    for (int step = 0; step < steps; ++step) {
      ASSERT_TRUE(matcher.FillMask(mask).ok());
      std::vector<uint32_t> allowed;
      for (uint32_t token = 0; token < vocabulary_->size(); ++token) {
        const bool bit = (mask[token / 32] >> (token % 32) & 1) != 0;
        Matcher probe = matcher.Fork();
        ASSERT_EQ(probe.Accept(token).ok(), bit) << "token " << token << " step " << step << " seed " << seed;
        if (bit) allowed.push_back(token);
      }
      ASSERT_FALSE(allowed.empty()) << "dead end at step " << step << " seed " << seed;
      const uint32_t token = allowed[random() % allowed.size()];
      ASSERT_TRUE(matcher.Accept(token).ok());
      if (token == kStop) return;
      if (step % 7 == 6) {
        const size_t back = random() % 4;
        std::vector<uint32_t> now(mask.size()), again(mask.size());
        Matcher fork = matcher.Fork();
        ASSERT_TRUE(matcher.FillMask(now).ok());
        matcher.Rollback(std::min(back, matcher.accepted()));
        ASSERT_TRUE(fork.FillMask(again).ok());
        ASSERT_EQ(now, again);
      }
    }
  }

  std::shared_ptr<const Vocabulary> vocabulary_ = SmallVocabulary();
};

TEST_F(GrammarTest, MasksAgreeWithTryingEveryToken) {
  const char* schemas[] = {
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string","maxLength":3}},"required":["a"]})",
      R"({"type":"object","additionalProperties":{"type":"string"},"minProperties":1,"maxProperties":3})",
      R"({"type":"array","uniqueItems":true,"items":{"enum":["a","b","ab"]},"minItems":2})",
      R"({"type":"array","uniqueItems":true,"items":{"type":"integer"}})",
      R"({"oneOf":[{"type":"object","properties":{"k":{"const":"x"}},"required":["k"]},{"type":"array","items":{"type":"number"}}]})",
      R"({"anyOf":[{"type":"object","required":["a"]},{"type":"object","required":["b"]}],"maxProperties":1})",
      R"({"type":"array","contains":{"type":"string"},"maxContains":2,"items":{"type":["string","boolean"]},"maxItems":4})",
      R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"v":{"type":"null"},"c":{"$ref":"#/$defs/n"}},"required":["v"],"additionalProperties":false}}})",
      R"({"not":{"type":["string","number"]}})",
      R"({"type":"object","patternProperties":{"^a":{"type":"integer"},"b$":{"minimum":5}},"additionalProperties":false})",
      R"({"type":"string","pattern":"^(ab|c)*$","minLength":2})",
      R"({"type":"object","if":{"properties":{"t":{"const":1}},"required":["t"]},"then":{"required":["x"]},"else":{"required":["y"]}})",
      R"({"type":"number","minimum":-1.5,"maximum":20,"multipleOf":0.5})", "true"};
  for (const char* schema : schemas) {
    for (KeyOrder order : {KeyOrder::kSchema, KeyOrder::kFree}) {
      CompileOptions options;
      options.key_order = order;
      options.whitespace_max = 2;
      const CompiledGrammar grammar = Must(Constraint::JsonSchema(schema), options);
      for (uint32_t seed = 0; seed < 4; ++seed) RandomWalk(grammar, seed, 25);
      options.spelling = Spelling::kUsual;
      const CompiledGrammar usual = Must(Constraint::JsonSchema(schema), options);
      for (uint32_t seed = 0; seed < 4; ++seed) RandomWalk(usual, seed, 25);
    }
  }
}

TEST_F(GrammarTest, UsualSpelling) {
  CompileOptions options;
  options.spelling = Spelling::kUsual;
  const CompiledGrammar grammar = Must(Constraint::JsonSchema(
      R"({"type":"object","properties":{"key":{"type":"array"},"s":{"type":"string"}},"required":["key"]})"), options);
  for (const char* text : {R"({"key":[]})", R"({ "key": [1, [ 2, 3 ], []], "s": "x" })", "{\n  \"key\": [\n\t1,\n\t2\n  ]\n}",
                           R"({"key":["\n\u00e9\u001f\/\u002B"],"s":"\ud83d\ude00"})", "{\"key\":[ ]\n}"}) {
    EXPECT_TRUE(Accepts(grammar, text)) << text;
  }
  for (const char* text : {R"({"key" :[]})", R"({"key":  []})", R"({  "key":[]})", "{\n\n\"key\":[]}", "{\"key\":\n[]}", "{\"key\":[] ,\"s\":\"\"}",
                           R"({"k\u0065y":[]})", R"({"key":["\u0041"]})", "{\"key\":[1\n,2]}", "{ \n\"key\":[]}"}) {
    EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
  options.whitespace_max = 0;
  EXPECT_FALSE(Accepts(Must(Constraint::JsonSchema("{\"type\":\"array\"}"), options), "[1, 2]"));
  // Integers are written without a fraction where they are asked for, and in no other place.
  for (const char* schema : {R"({"type":"integer"})", R"({"anyOf":[{"type":"integer"},{"type":"null"}]})", R"({"enum":[1,2]})",
                             R"({"type":"number","allOf":[{"type":"integer","minimum":1}]})", R"({"oneOf":[{"const":1},{"type":"string"}]})"}) {
    EXPECT_TRUE(Accepts(Must(Constraint::JsonSchema(schema), options), "1")) << schema;
    EXPECT_FALSE(Accepts(Must(Constraint::JsonSchema(schema), options), "1.0")) << schema;
  }
  for (const char* schema : {R"({"type":"number"})", R"({"enum":[1.0]})", R"({"type":"number","not":{"type":"integer","minimum":2}})",
                             R"({"anyOf":[{"type":"integer"},{"type":"number","maximum":9}]})"}) {
    EXPECT_TRUE(Accepts(Must(Constraint::JsonSchema(schema), options), "1.0")) << schema;
  }
  EXPECT_FALSE(Accepts(Must(Constraint::JsonSchema(R"({"type":"number","not":{"type":"integer"}})"), options), "1.0"));
  // And all numbers within what a double holds, unless others are asked for.
  const std::string many(101, '9');
  for (const std::string& number : {std::string("1e99"), std::string("-0.5E-7"), many.substr(1)}) {
    EXPECT_TRUE(Accepts(Must(Constraint::JsonSchema("true"), options), number)) << number;
  }
  for (const std::string& number : {std::string("1e100"), "0." + many, many}) {
    EXPECT_FALSE(Accepts(Must(Constraint::JsonSchema("true"), options), number)) << number;
  }
  EXPECT_TRUE(Accepts(Must(Constraint::JsonSchema(R"({"type":"integer","minimum":)" + many + "}"), options), many));
}

// Halves of surrogate pairs lead to nothing: no digit may come that makes one.
TEST_F(GrammarTest, NoDeadEndInSurrogates) {
  for (Spelling spelling : {Spelling::kAny, Spelling::kUsual}) {
    for (const char* schema : {R"({"type":"string"})", R"({"type":"string","pattern":"^[^x]*$"})", R"({"type":"string","not":{"const":"x"}})",
                               R"({"type":"object","additionalProperties":true})"}) {
      const CompiledGrammar grammar = Must(Constraint::JsonSchema(schema), {.spelling = spelling});
      const std::string open = schema[9] == 'o' ? "{\"" : "\"";
      const auto digits = [&](const std::string& text) {
        Matcher matcher(grammar);
        EXPECT_TRUE(matcher.AcceptBytes(open + text).ok()) << text;
        std::string allowed;
        for (const char c : std::string("0123456789abcdef")) allowed += matcher.CanAcceptBytes(std::string(1, c)) ? std::string(1, c) : "";
        return allowed;
      };
      EXPECT_EQ(digits("\\ud"), "0123456789ab") << schema;
      EXPECT_EQ(digits("\\uD9e8\\u"), "d") << schema;
      EXPECT_EQ(digits("\\uD9e8\\ud"), "cdef") << schema;
      EXPECT_EQ(digits("\\uD9e8\\udd"), "0123456789abcdef") << schema;
    }
  }
}

// A member that must yet come has to find a key that is left.
TEST_F(GrammarTest, NoDeadEndWhenKeysRunOut) {
  CompileOptions options;
  options.key_order = KeyOrder::kFree;
  options.whitespace_max = 0;
  const CompiledGrammar grammar = Must(
      Constraint::JsonSchema(R"({"type":"object","propertyNames":{"enum":["a","b"]},"properties":{"a":false},)"
                             R"("not":{"additionalProperties":{"enum":["x"]}}})"),
      options);
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.AcceptBytes("{\"b\":").ok());
  EXPECT_TRUE(matcher.CanAcceptBytes("\"y\"}"));
  EXPECT_FALSE(matcher.CanAcceptBytes("\"x\""));
  const CompiledGrammar pair = Must(Constraint::JsonSchema(R"({"type":"object","propertyNames":{"enum":["a","b"]},"minProperties":2,)"
                                                           R"("dependentRequired":{"a":["b"]}})"),
                                    options);
  EXPECT_TRUE(Accepts(pair, R"({"a":1,"b":2})"));
  EXPECT_FALSE(Accepts(pair, R"({"b":2})"));
  const CompiledGrammar implied = Must(
      Constraint::JsonSchema(R"({"type":"object","propertyNames":{"enum":["a","b"]},"dependentRequired":{"a":["b"]},)"
                             R"("not":{"additionalProperties":{"enum":["x"]}}})"),
      options);
  EXPECT_TRUE(Accepts(implied, R"({"b":"x","a":1})"));
  EXPECT_TRUE(Accepts(implied, R"({"a":1,"b":"x"})"));
  EXPECT_FALSE(Accepts(implied, R"({"a":1})"));
  const CompiledGrammar three = Must(
      Constraint::JsonSchema(R"({"type":"object","propertyNames":{"pattern":"^[abc]$"},"not":{"additionalProperties":{"enum":["x"]}}})"), options);
  EXPECT_TRUE(Accepts(three, R"({"a":"x","b":"x","c":1})"));
  Matcher last(three);
  ASSERT_TRUE(last.AcceptBytes(R"({"a":"x","c":"x","b":)").ok());
  EXPECT_FALSE(last.CanAcceptBytes("\"x\""));
  EXPECT_TRUE(last.CanAcceptBytes("1}"));
}

TEST_F(GrammarTest, ElementsThatMustDiffer) {
  EXPECT_TRUE(Accepts(Must(Constraint::JsonSchema(R"({"uniqueItems":true,"const":["a",true,1]})")), R"(["a",true,1])"));
  EXPECT_NE(Refusal(Constraint::JsonSchema(R"({"uniqueItems":true,"const":["a",1,"a"]})")).find("unsatisfiable"), std::string::npos);
  const std::string one = R"({"type":"array","uniqueItems":true,"minItems":2,"items":{"enum":[1]},"contains":true})";
  EXPECT_NE(Refusal(Constraint::JsonSchema(one)).find("unsatisfiable"), std::string::npos);
  const CompiledGrammar two = Must(Constraint::JsonSchema(
      R"({"type":"array","uniqueItems":true,"minItems":2,"items":{"enum":[1,2]},"contains":{"const":1}})"));
  EXPECT_TRUE(Accepts(two, "[2,1]"));
  EXPECT_FALSE(Accepts(two, "[2,2]"));
}

TEST_F(GrammarTest, RegexAndGrammarWalks) {
  for (const char* pattern : {"(ab|cd)+", "[^<]*<x>", "a{2,5}b?", "\\p{L}{1,3}"}) {
    for (uint32_t seed = 0; seed < 4; ++seed) RandomWalk(Must(Constraint::Regex(pattern)), seed, 20);
  }
  const char* gbnf = "root ::= e\ne ::= e \"+\" t | t\nt ::= \"1\" | \"(\" e \")\" | [a-c]{2}\n";
  for (uint32_t seed = 0; seed < 6; ++seed) RandomWalk(Must(Constraint::Grammar(gbnf)), seed, 20);
}

TEST_F(GrammarTest, GbnfAcceptsItsLanguage) {
  const CompiledGrammar grammar = Must(Constraint::Grammar(
      "# sums\r\nroot ::= e\r\ne ::= e \"+\" t | t\nt ::= num |\n  \"(\" e \")\"\nnum ::= [0-9]+ (\".\" [0-9]{1,2})?\n"));
  for (const char* text : {"1", "1+2", "(1+2)+3.14", "((7))"}) EXPECT_TRUE(Accepts(grammar, text)) << text;
  for (const char* text : {"", "+", "1+", "(1", "1.234", "1)"}) EXPECT_FALSE(Accepts(grammar, text)) << text;
}

TEST_F(GrammarTest, LarkAcceptsItsLanguage) {
  const CompiledGrammar grammar = Must(Constraint::Lark(
      "start: greeting \" \" NAME (\",\" \" \" NAME)* [\"!\"]\n"
      "greeting: \"hello\"i -> hi\n  | \"bye\"\nNAME: /[A-Z][a-z]*/ ~ 1..2\nDIGIT: \"0\"..\"9\"\n// comment\n"));
  for (const char* text : {"hello Bob", "HeLLo Bob, Ann!", "bye BobBy"}) EXPECT_TRUE(Accepts(grammar, text)) << text;
  for (const char* text : {"hello", "hello bob", "BYE Bob", "hello Bob,Ann"}) EXPECT_FALSE(Accepts(grammar, text)) << text;
  const CompiledGrammar json = Must(Constraint::Lark("start: \"<\" value \">\"\nvalue: %json {\"type\":\"array\",\"items\":{\"type\":\"integer\"}}\n"));
  EXPECT_TRUE(Accepts(json, "<[1, 2]>"));
  EXPECT_FALSE(Accepts(json, "<[true]>"));
}

TEST_F(GrammarTest, StructuralTags) {
  const CompiledGrammar grammar = Must(Constraint::StructuralTag(
      R"({"type":"structural_tag","structures":[{"begin":"<f=a>","schema":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"],"additionalProperties":false},"end":"</f>"}],"triggers":["<f="]})"));
  EXPECT_TRUE(Accepts(grammar, "just text with < and <g"));
  EXPECT_TRUE(Accepts(grammar, "call <f=a>{\"x\":1}</f> and <f=a>{\"x\": 2}</f>"));
  EXPECT_FALSE(Accepts(grammar, "call <f=a>{\"x\":true}</f>"));
  EXPECT_FALSE(Accepts(grammar, "call <f=b>"));
  EXPECT_FALSE(Accepts(grammar, "call <f="));
}

class DsmlTest : public GrammarTest {
 protected:
  // "@" stands for the special marker token.
  bool Run(const CompiledGrammar& grammar, std::string_view text) {
    Matcher matcher(grammar);
    for (char c : text) {
      const uint32_t token = c == '@' ? kSpecial : static_cast<uint8_t>(c);
      if (!matcher.Accept(token).ok()) return false;
    }
    return matcher.IsComplete();
  }
  std::vector<ToolConstraint> tools_{
      {"get_weather", R"({"type":"object","properties":{"location":{"type":"string"},"days":{"type":"integer"}},"required":["location"],"additionalProperties":false})", true},
      {"now", "", true}};
  DsmlOptions options_{.dsml_token = kSpecial};
};

TEST_F(DsmlTest, CallsFollowTheirSchemas) {
  const CompiledGrammar grammar = Must(Constraint::Dsml(tools_, options_));
  EXPECT_TRUE(Run(grammar, "no call at all < > </think>"));
  const std::string open = "text\n\n<@ calls>\n<@ invoke name=\"get_weather\">\n";
  const std::string location = "<@ parameter name=\"location\" string=\"true\">Paris </b></@ parameter>\n";
  const std::string close = "</@ invoke>\n</@ calls>";
  EXPECT_TRUE(Run(grammar, open + location + close));
  EXPECT_TRUE(Run(grammar, open + location + "<@ parameter name=\"days\" string=\"false\">3</@ parameter>\n" + close));
  EXPECT_FALSE(Run(grammar, open + location + "<@ parameter name=\"days\" string=\"false\">3.5</@ parameter>\n" + close));
  EXPECT_FALSE(Run(grammar, open + location + "<@ parameter name=\"days\" string=\"true\">3</@ parameter>\n" + close));
  EXPECT_FALSE(Run(grammar, open + "\n" + close)) << "location is required";
  EXPECT_FALSE(Run(grammar, open + location + location + close));
  EXPECT_FALSE(Run(grammar, "<@ calls>\n<@ invoke name=\"other\">\n"));
  EXPECT_FALSE(Run(grammar, "stray marker @"));
  EXPECT_FALSE(Run(grammar, open + "<@ parameter name=\"location\" string=\"true\">a</\xEF\xBD\x9C" "DSML\xEF\xBD\x9C"));
  EXPECT_TRUE(Run(grammar, "<@ calls>\n<@ invoke name=\"now\">\n\n</@ invoke>\n<@ invoke name=\"now\">\n\n</@ invoke>\n</@ calls>"));
  for (uint32_t seed = 0; seed < 3; ++seed) RandomWalk(grammar, seed, 12);
}

// Nested names are interned while the parameters of the top are built.
TEST_F(DsmlTest, ManyNestedNames) {
  for (int width = 1; width <= 12; ++width) {
    std::string schema = R"({"type":"object","properties":{)", text = "<@ calls>\n<@ invoke name=\"f\">\n";
    for (int i = 0; i < width; ++i) {
      const std::string name = "a rather long name of a parameter " + std::to_string(i);
      schema += (i == 0 ? "\"" : ",\"") + name + R"(":{"type":"object","properties":{"inner )" + std::to_string(i) + R"(":{"type":"integer"}}})";
      text += "<@ parameter name=\"" + name + "\" string=\"false\">{}</@ parameter>\n";
    }
    const CompiledGrammar grammar = Must(Constraint::Dsml({{"f", schema + "}}", true}}, options_));
    EXPECT_TRUE(Run(grammar, text + "</@ invoke>\n</@ calls>")) << width;
  }
}

TEST_F(DsmlTest, RequiredAndSingle) {
  options_.required = true;
  options_.parallel = false;
  const CompiledGrammar grammar = Must(Constraint::Dsml({{"now", R"({"type":"object","properties":{}, "additionalProperties":false})", true}}, options_));
  Matcher matcher(grammar);
  EXPECT_FALSE(matcher.IsComplete());
  EXPECT_TRUE(Run(grammar, "\n\n<@ calls>\n<@ invoke name=\"now\">\n\n</@ invoke>\n</@ calls>"));
  EXPECT_FALSE(Run(grammar, "text"));
  // Two ways to spell the line feeds; from the marker on there is one.
  ASSERT_TRUE(matcher.AcceptBytes("\n\n<").ok());
  const std::vector<uint32_t> forced = matcher.ForcedTokens(1);
  EXPECT_EQ(forced, std::vector<uint32_t>{kSpecial});
}

TEST_F(GrammarTest, ForcedTokensAreThoseWithoutAChoice) {
  Matcher matcher(Must(Constraint::Regex("zq[xy]")));
  EXPECT_EQ(matcher.ForcedTokens(10), (std::vector<uint32_t>{'z', 'q'}));
}

TEST_F(GrammarTest, CompileIsCancellable) {
  std::atomic<bool> cancel{true};
  CompileOptions options;
  options.cancel = &cancel;
  std::string schema = "{\"allOf\":[";
  for (int i = 0; i < 3000; ++i) schema += fmt::format("{{\"properties\":{{\"k{}\":{{\"pattern\":\"^a{{{}}}b$\"}}}}}},", i, i);
  auto compiled = Compile(Constraint::JsonSchema(schema + "true]}"), vocabulary_, options);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.status().code(), Code::kCancelled);
}

TEST_F(GrammarTest, CacheGivesTheSameGrammar) {
  CompileCache cache(2);
  auto a = cache.Get(Constraint::Regex("a+"), vocabulary_, {});
  auto b = cache.Get(Constraint::Regex("a+"), vocabulary_, {});
  auto c = cache.Get(Constraint::Choice({"a+"}), vocabulary_, {});
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(a->impl(), b->impl());
  EXPECT_NE(a->impl(), c->impl());
}

TEST_F(GrammarTest, EscapesSpellEveryCharacter) {
  const CompiledGrammar grammar = Must(Constraint::JsonSchema(R"({"enum":["\u00e9","\u6c49","\ud83d\ude00","e\u0301"]})"));
  for (const char* text : {"\"\u00e9\"", "\"\\u00E9\"", "\"\\uD83D\\ude00\"", "\"\U0001F600\"", "\"e\\u0301\""}) EXPECT_TRUE(Accepts(grammar, text)) << text;
  for (const char* text : {"\"\\ud83d\"", "\"\\u00e8\"", "\"e\"", "\"\\ud83d\\ude01\""}) EXPECT_FALSE(Accepts(grammar, text)) << text;
}

// Any spelling of numbers may come with Spelling::kAny, and bounds hold for values that no double has.
TEST_F(GrammarTest, NumbersBeyondDoubles) {
  const std::string zeros(400, '0');
  const CompiledGrammar any = Must(Constraint::JsonSchema(R"({"type":"array","items":{"type":"number"}})"));
  for (const std::string& text : {std::string("[ 1e400 ,\n\t-1E-999 ]"), "[1" + zeros + " , 0." + zeros + "1]"}) EXPECT_TRUE(Accepts(any, text)) << text;
  const CompiledGrammar usual = Must(Constraint::JsonSchema(R"({"type":"number"})"), {.spelling = Spelling::kUsual});
  for (const std::string& text : {std::string("1e400"), "1" + zeros, "0." + zeros + "1"}) EXPECT_FALSE(Accepts(usual, text)) << text;
  EXPECT_TRUE(Accepts(usual, "1e99"));
  const CompiledGrammar positive = Must(Constraint::JsonSchema(R"({"exclusiveMinimum":0,"type":"number"})"));
  EXPECT_TRUE(Accepts(positive, "1" + zeros));
  EXPECT_TRUE(Accepts(positive, "0." + zeros + "1"));
  EXPECT_FALSE(Accepts(positive, "0." + zeros));
  EXPECT_FALSE(Accepts(positive, "-1" + zeros));
  const CompiledGrammar small = Must(Constraint::JsonSchema(R"({"exclusiveMaximum":1e-300,"minimum":1e-301,"type":"number"})"));
  EXPECT_TRUE(Accepts(small, "0." + std::string(300, '0') + "1"));
  EXPECT_FALSE(Accepts(small, "0." + std::string(299, '0') + "1"));
  EXPECT_FALSE(Accepts(small, "0." + std::string(301, '0') + "1"));
  const CompiledGrammar sevens = Must(Constraint::JsonSchema(R"({"multipleOf":7,"type":"integer"})"));
  EXPECT_TRUE(Accepts(sevens, "7" + zeros));
  EXPECT_FALSE(Accepts(sevens, "7" + zeros + "1"));
}

}  // namespace
}  // namespace deepinfer::grammar
