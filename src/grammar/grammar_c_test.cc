// SPDX-License-Identifier: Apache-2.0
// Property: the C interface gives what the C++ one does, and reports errors by code and message.
#include "deepinfer/grammar_c.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

TEST(GrammarC, CompilesMatchesAndRefuses) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
  tokens.emplace_back("");
  std::vector<const char*> bytes;
  std::vector<size_t> sizes;
  for (const std::string& token : tokens) {
    bytes.push_back(token.data());
    sizes.push_back(token.size());
  }
  const uint32_t stop = 256;
  di_grammar_vocabulary* vocabulary = di_grammar_vocabulary_new(bytes.data(), sizes.data(), tokens.size(), nullptr, 0, &stop, 1);
  di_grammar_compiled* compiled = nullptr;
  char error[64];
  const std::string bad = "a(";
  EXPECT_EQ(di_grammar_compile(vocabulary, DI_GRAMMAR_REGEX, bad.data(), bad.size(), nullptr, &compiled, error, sizeof(error)), DI_GRAMMAR_INVALID);
  EXPECT_NE(std::string(error).find("offset 1"), std::string::npos) << error;
  const std::string refused = R"({"pattern":"(?=a)b"})";
  EXPECT_EQ(di_grammar_compile(vocabulary, DI_GRAMMAR_JSON_SCHEMA, refused.data(), refused.size(), nullptr, &compiled, error, 8), DI_GRAMMAR_UNSUPPORTED);
  EXPECT_EQ(std::string(error).size(), 7u);
  const std::string schema = R"({"type":"object","properties":{"a":{"const":1}},"required":["a"],"additionalProperties":false})";
  di_grammar_options options = di_grammar_default_options();
  options.whitespace_max = 0;
  ASSERT_EQ(di_grammar_compile(vocabulary, DI_GRAMMAR_JSON_SCHEMA, schema.data(), schema.size(), &options, &compiled, error, sizeof(error)), DI_GRAMMAR_OK);
  di_grammar_matcher* matcher = di_grammar_matcher_new(compiled);
  di_grammar_compiled_free(compiled);
  uint32_t forced[16];
  ASSERT_EQ(di_grammar_forced_tokens(matcher, forced, 16), 2u);  // then "a" may be spelled as an escape
  EXPECT_EQ(forced[0], static_cast<uint32_t>('{'));
  std::vector<uint32_t> mask(di_grammar_mask_words(vocabulary));
  for (char c : std::string("{\"a\":1}")) {
    ASSERT_EQ(di_grammar_fill_mask(matcher, mask.data()), DI_GRAMMAR_OK);
    EXPECT_TRUE(mask[static_cast<size_t>(c) / 32] >> (c % 32) & 1);
    ASSERT_EQ(di_grammar_accept(matcher, static_cast<uint32_t>(c)), DI_GRAMMAR_OK);
  }
  EXPECT_EQ(di_grammar_is_complete(matcher), 1);
  EXPECT_EQ(di_grammar_is_finished(matcher), 1);
  EXPECT_EQ(di_grammar_accept(matcher, 'x'), DI_GRAMMAR_INVALID);
  EXPECT_EQ(di_grammar_rollback(matcher, 99), DI_GRAMMAR_INVALID);
  EXPECT_EQ(di_grammar_rollback(matcher, 1), DI_GRAMMAR_OK);
  di_grammar_matcher* fork = di_grammar_matcher_fork(matcher);
  EXPECT_EQ(di_grammar_is_complete(fork), 0);
  EXPECT_EQ(di_grammar_accept(fork, '}'), DI_GRAMMAR_OK);
  EXPECT_EQ(di_grammar_is_complete(matcher), 0);
  di_grammar_matcher_free(fork);
  di_grammar_matcher_free(matcher);
  options.usual_spelling = 1;
  ASSERT_EQ(di_grammar_compile(vocabulary, DI_GRAMMAR_JSON_SCHEMA, schema.data(), schema.size(), &options, &compiled, error, sizeof(error)), DI_GRAMMAR_OK);
  matcher = di_grammar_matcher_new(compiled);
  di_grammar_compiled_free(compiled);
  EXPECT_GE(di_grammar_forced_tokens(matcher, forced, 16), 4u);
  EXPECT_EQ(forced[2], static_cast<uint32_t>('a'));
  di_grammar_matcher_free(matcher);
  di_grammar_vocabulary_free(vocabulary);
}

}  // namespace
