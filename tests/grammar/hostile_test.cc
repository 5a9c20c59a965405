// SPDX-License-Identifier: Apache-2.0
// Constraints written to hurt: each must compile or end in an error, within the limits on steps and memory, and so must
// every step of a matcher. No clock is asked: the time limit is set far away, so that what ends here ends by the count
// of its steps. Memory is what operator new has given out.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "deepinfer/grammar.h"

namespace {

std::atomic<size_t> g_live{0}, g_peak{0};

void* Allocate(size_t size) {
  void* p = std::malloc(size);
  if (p == nullptr) throw std::bad_alloc();
  const size_t live = g_live += malloc_usable_size(p);
  if (live > g_peak) g_peak = live;
  return p;
}
void Free(void* p) {
  if (p != nullptr) g_live -= malloc_usable_size(p);
  std::free(p);
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* p) noexcept { Free(p); }
void operator delete[](void* p) noexcept { Free(p); }
void operator delete(void* p, size_t) noexcept { Free(p); }
void operator delete[](void* p, size_t) noexcept { Free(p); }

namespace deepinfer::grammar {
namespace {

constexpr size_t kMemory = size_t{64} << 20;
constexpr uint64_t kSteps = 300'000;

std::string Times(const std::string& text, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += text;
  return out;
}
std::string Nested(const std::string& open, const std::string& inner, const std::string& close, size_t n) {
  return Times(open, n) + inner + Times(close, n);
}

class HostileTest : public testing::Test {
 protected:
  // Compiles, then steps through `text` with a mask at each byte while that goes.
  void Survives(const Constraint& constraint, std::string_view text = "") {
    const std::string name = constraint.text.substr(0, 100);
    CompileOptions options;
    options.limits.time = std::chrono::hours(1);
    options.limits.steps = kSteps;
    options.limits.memory_bytes = kMemory;
    const size_t before = g_live;
    g_peak = before;
    auto compiled = Compile(constraint, vocabulary_, options);
    // On top come the source as it was parsed, and growing arrays while old and new are held.
    const size_t allowed = kMemory + kMemory / 2 + 40 * constraint.text.size();
    EXPECT_LT(g_peak - before, allowed) << "compiling " << name;
    if (!compiled.ok()) {
      EXPECT_FALSE(compiled.status().message().empty());
      EXPECT_LT(compiled.status().message().size(), 2000u) << name;
      return;
    }
    Matcher matcher(*compiled);
    std::vector<uint32_t> mask(vocabulary_->mask_words());
    for (char c : text) {
      const Status filled = matcher.FillMask(mask);
      EXPECT_TRUE(filled.ok() || filled.code() == Code::kResourceExhausted) << filled.message();
      if (!filled.ok()) break;
      const bool allowed_now = (mask[static_cast<uint8_t>(c) / 32] >> (static_cast<uint8_t>(c) % 32) & 1) != 0;
      const Status accepted = matcher.AcceptBytes(std::string(1, c));
      EXPECT_EQ(accepted.ok(), allowed_now && accepted.code() != Code::kResourceExhausted) << name;
      if (!accepted.ok()) break;
    }
    EXPECT_LT(g_peak - before, allowed) << "stepping " << name;
  }
  void Regex(const std::string& pattern, std::string_view text = "") {
    Survives(Constraint::Regex(pattern), text);
    std::string schema = R"({"type":"string","pattern":)";
    AppendJsonString(pattern, false, &schema);
    Survives(Constraint::JsonSchema(schema + "}"), "\"" + std::string(text));
  }
  void Schema(const std::string& schema, std::string_view text = "") { Survives(Constraint::JsonSchema(schema), text); }

  std::shared_ptr<const Vocabulary> vocabulary_ = [] {
    std::vector<std::string> tokens;
    for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
    tokens.emplace_back("");
    for (const char* text : {"aaaa", "aaab", "{\"a", "\":", "[[[[", "]]]]", "}}}}", "\\u00", "xxxxxxxx"}) tokens.emplace_back(text);
    return Vocabulary::Create(tokens, {}, std::vector<uint32_t>{256});
  }();
};

TEST_F(HostileTest, ExponentialRegexes) {
  const std::string as(24, 'a');
  Regex("(a+)+b", as);
  Regex("(a|a)*b", as);
  Regex("(a|aa)+$", as);
  Regex("(x+x+)+y", std::string(40, 'x'));
  Regex("(.*a){30}", as);
  Regex("(.*)(.*)(.*)(.*)(.*)(.*)b", as);
  Regex("[ab]*a[ab]{40}", as);            // 2^40 states when determinised
  Regex("([ab]*a[ab]{20}){20}", as);
  Regex(Times("a?", 400) + Times("a", 400), as);
  Regex("((((a{0,50}){0,50}){0,50}){0,50}){0,50}", as);
}

// What one mask may cost is counted: it ends that matcher alone, for good, and with a reason.
TEST_F(HostileTest, CallsAreBounded) {
  CompileOptions options;
  options.limits.call_steps = 300;
  const auto compiled = Compile(Constraint::Regex("([ab]*a[ab]{20}){20}"), vocabulary_, options);
  ASSERT_TRUE(compiled.ok());
  Matcher hostile(*compiled), fork = hostile.Fork();
  std::vector<uint32_t> mask(vocabulary_->mask_words());
  Status status;
  for (int i = 0; i < 400 && status.ok(); ++i) {
    status = hostile.FillMask(mask);
    if (status.ok()) status = hostile.AcceptBytes(i % 3 == 0 ? "a" : "b");
  }
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_NE(status.message().find("too complex"), std::string::npos) << status.message();
  EXPECT_EQ(hostile.FillMask(mask).code(), Code::kResourceExhausted);
  const auto ordinary = Compile(Constraint::Regex("[ab]+"), vocabulary_, options);
  Matcher other(*ordinary);
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(other.FillMask(mask).ok() && other.AcceptBytes("a").ok());
  // A new matcher of the same grammar starts afresh.
  Matcher again(*compiled);
  EXPECT_TRUE(again.FillMask(mask).ok());
}

TEST_F(HostileTest, LargeRepeats) {
  const std::string as(24, 'a');
  for (const char* pattern : {"a{1000000000}", "(ab?){1000000000}", "(a|ab){999999999,1000000000}", "((a{1000000000}){1000000000}){1000000000}",
                              "(.*a){1000000000}", "a{99999999999999999999}", "(a{0,1000000000}b{0,1000000000}){1000000000}"}) {
    Regex(pattern, as);
  }
  for (const char* keyword : {"minLength", "maxLength"}) Schema(fmt::format(R"({{"type":"string","{}":1000000000}})", keyword), "\"aaaa");
  for (const char* keyword : {"minItems", "maxItems", "minContains", "maxContains"}) {
    Schema(fmt::format(R"({{"type":"array","contains":{{"const":1}},"{}":1000000000}})", keyword), "[1,1,1");
  }
  for (const char* keyword : {"minProperties", "maxProperties"}) Schema(fmt::format(R"({{"type":"object","{}":1000000000}})", keyword), "{\"a\":1,\"b\"");
  Schema(R"({"type":"number","multipleOf":1e-300,"minimum":1e300})", "1000");
  Schema(R"({"type":"integer","multipleOf":999999999999999989,"minimum":-1e300,"maximum":1e300})", "10000000");
  Schema(R"({"type":"integer","allOf":[{"multipleOf":999983},{"multipleOf":999979},{"multipleOf":999961}]})", "12345");
  Survives(Constraint::Grammar("root ::= (\"a\" root){1000000000}"), as);
  Survives(Constraint::Grammar("root ::= [a-z]{1000000000} root?"), as);
}

TEST_F(HostileTest, DeepNesting) {
  constexpr size_t kDeep = 100'000;
  Regex(Nested("(", "a", ")", kDeep), "aa");
  Regex(Nested("(?:", "a", ")*", kDeep), "aa");
  Regex(Nested("(?:a|", "a", ")", 3000), "aa");
  for (const char* keyword : {"items", "not", "additionalProperties", "contains", "if", "unevaluatedItems"}) {
    Schema(Nested(fmt::format("{{\"{}\":", keyword), "{}", "}", kDeep));
    Schema(Nested(fmt::format("{{\"{}\":", keyword), "{}", "}", 200), "[[[[");
  }
  Schema(Nested("{\"allOf\":[", "{}", "]}", 200), "{\"a\":1}");
  Schema(Nested("{\"anyOf\":[true,", "{}", "]}", 200), "{\"a\":1}");
  Schema("{\"const\":" + Nested("[", "", "]", kDeep) + "}");
  Schema("true", Times("[", 5000));
  Schema("true", Times("{\"a\":", 3000));
  for (const Constraint& constraint : {Constraint::Grammar("root ::= " + Nested("(", "\"a\"", ")", kDeep)),
                                       Constraint::Lark("start: " + Nested("(", "\"a\"", ")", kDeep)),
                                       Constraint::StructuralTag(Nested("[", "", "]", kDeep))}) {
    Survives(constraint, "aa");
  }
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 5'000; ++i) chain += fmt::format("r{} ::= r{} | \"x\"\n", i, i + 1);
  Survives(Constraint::Grammar(chain + "r5000 ::= \"y\"\n"), "x");
}

TEST_F(HostileTest, ReferenceCycles) {
  Schema(R"({"$ref":"#"})");
  Schema(R"({"allOf":[{"$ref":"#"}]})");
  Schema(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "null");
  Schema(R"({"not":{"$ref":"#"}})");
  Schema(R"({"oneOf":[{"$ref":"#"},{"$ref":"#"}]})");
  Schema(R"({"if":{"$ref":"#"},"then":{"$ref":"#"},"else":{"$ref":"#"}})");
  Schema(R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/c"},"c":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})");
  Schema(R"({"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}},"required":["a","b"]})");
  Schema(R"({"items":{"not":{"$ref":"#"}}})", "[[[[");
  Schema(R"({"items":{"$ref":"#"},"uniqueItems":true})", "[[[],[[]]]");
  Schema(R"({"anyOf":[{"items":{"$ref":"#"}},{"contains":{"$ref":"#"}}],"minItems":1})", "[[[[");
  std::string graph = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 300; ++i) {
    graph += fmt::format(R"({}"d{}":{{"anyOf":[{{"items":{{"$ref":"#/$defs/d{}"}}}},{{"items":{{"$ref":"#/$defs/d{}"}}}}]}})", i == 0 ? "" : ",", i,
                         (i + 1) % 300, (2 * i + 1) % 300);
  }
  Schema(graph + "}}", "[[[[[[[[");
  Survives(Constraint::Grammar("root ::= root"));
  Survives(Constraint::Grammar("root ::= a\na ::= b\nb ::= a"));
  Survives(Constraint::Grammar("root ::= root root | \"a\" | \"\""), std::string(100, 'a'));
  Survives(Constraint::Grammar("root ::= \"a\" root root | \"a\" | \"\""), std::string(100, 'a'));
}

TEST_F(HostileTest, Alternatives) {
  std::string product = "{\"allOf\":[";
  for (int i = 0; i < 40; ++i) product += fmt::format(R"({}{{"anyOf":[{{"required":["a{}"]}},{{"required":["b{}"]}},{{"required":["c{}"]}}]}})", i == 0 ? "" : ",", i, i, i);
  Schema(product + "]}", "{\"a1\":");
  std::string one_of = "{\"oneOf\":[";
  for (int i = 0; i < 300; ++i) one_of += fmt::format(R"({}{{"properties":{{"k":{{"pattern":"^a{{{}}}"}}}}}})", i == 0 ? "" : ",", i);
  Schema(one_of + "]}", "{\"k\":\"aa");
  std::string negations = "{\"not\":{\"allOf\":[";
  for (int i = 0; i < 60; ++i) negations += fmt::format(R"({}{{"not":{{"properties":{{"k{}":{{"type":"string"}}}}}}}})", i == 0 ? "" : ",", i);
  Schema(negations + "]}}", "{\"k1\":");
  std::string patterns = "{\"patternProperties\":{";
  for (int i = 0; i < 60; ++i) patterns += fmt::format(R"({}"a.*b{}":{{"minimum":{}}})", i == 0 ? "" : ",", i, i);
  Schema(patterns + "}}", "{\"aaab");
  Schema(R"({"uniqueItems":true,"items":{"type":"object","properties":{"a":{"enum":[1,2,3]},"b":{"enum":[1,2,3]}}}})",
         R"([{"a":1},{"a":2},{"a":3},{"b":1},{"a":1,"b":1},{"a":2,"b":1},{"a":2,"b":2}])");
  std::string contains = "{\"allOf\":[";
  for (int i = 0; i < 30; ++i) contains += fmt::format(R"({}{{"contains":{{"minimum":{}}}}})", i == 0 ? "" : ",", i);
  Schema(contains + "]}", "[1,2,3,4");
}

TEST_F(HostileTest, LargeSources) {
  std::string properties = "{\"type\":\"object\",\"properties\":{";
  for (int i = 0; i < 14'000; ++i) properties += fmt::format(R"({}"property_number_{}":{{"type":"integer","description":"some text here"}})", i == 0 ? "" : ",", i);
  EXPECT_GT(properties.size(), 900'000u);
  Schema(properties + "}}", "{\"prop");
  std::string values = "{\"enum\":[0";
  for (int i = 1; i < 20'000; ++i) values += fmt::format(",\"value {}\"", i);
  Schema(values + "]}", "\"value 1");
  std::string objects = "{\"enum\":[0";
  for (int i = 1; i < 3'000; ++i) objects += fmt::format(",{{\"k\":[{}]}}", i);
  Schema(objects + "]}", "{\"k\":[1");
  std::string rules = "root ::= r0\n";
  for (int i = 0; i < 5'000; ++i) rules += fmt::format("r{} ::= \"a\" r{} | \"b\"\n", i, (i * 7 + 1) % 5'000);
  Survives(Constraint::Grammar(rules), "aaaaaa");
  Regex(Times("[a-z]+|", 5'000) + "x", "aaa");
  Regex(Times("\\p{L}", 500), "aaa");
  Survives(Constraint::Regex(std::string(5'000'000, 'a')));
  Survives(Constraint::Choice(std::vector<std::string>(100'000, "same")), "same");
  Survives(Constraint::Lark("start: %json {\"enum\":[" + Times("1,", 10'000) + "2]}"), "1");
}

}  // namespace
}  // namespace deepinfer::grammar
