// SPDX-License-Identifier: Apache-2.0
// Split patterns: known pieces, classes of Unicode 16 whatever PCRE2 knows, every construct that the engines read
// differently refused, and no limit of PCRE2 taken for "no match".
#include "tokenizer/regex_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/utf8.h"
#include "tokenizer/regex_translate.h"
#include "tokenizer/unicode_classes.h"

namespace deepinfer {
namespace {

using testing::ElementsAre;

std::vector<std::string> Pieces(const std::vector<std::string>& patterns, const std::string& text) {
  const auto splitter = MakeRegexSplitter(patterns);
  EXPECT_TRUE(splitter.ok()) << splitter.status().message();
  std::vector<uint32_t> ends;
  size_t position = 0;
  const Status status = text.empty() ? Status() : (*splitter)->Split(text, &position, &ends);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<std::string> pieces;
  size_t start = 0;
  for (const uint32_t end : ends) {
    pieces.push_back(text.substr(start, end - start));
    start = end;
  }
  EXPECT_EQ(start, text.size());
  return pieces;
}

constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

TEST(RegexSplitter, KnownPieces) {
  EXPECT_THAT(Pieces({}, "a b"), ElementsAre("a b"));
  EXPECT_THAT(Pieces({kGpt2}, "I'm   here, 2 of us"), ElementsAre("I", "'m", "  ", " here", ",", " 2", " of", " us"));
  EXPECT_THAT(Pieces({R"(\p{N}{1,3})"}, "a12345b"), ElementsAre("a", "123", "45", "b"));
  // The second pattern sees the pieces of the first as texts of their own.
  EXPECT_THAT(Pieces({"b", "^a|c$"}, "aabcc"), ElementsAre("a", "a", "b", "c", "c"));
  EXPECT_THAT(Pieces({"x*"}, "axxb"), ElementsAre("a", "xx", "b"));
  EXPECT_THAT(Pieces({"(?=é)"}, "aéé"), ElementsAre("a", "é", "é"));
  EXPECT_THAT(Pieces({"^b"}, "a\nb"), ElementsAre("a\n", "b"));
  EXPECT_THAT(Pieces({"."}, "a\r\n"), ElementsAre("a", "\r", "\n"));
  EXPECT_THAT(Pieces({"(?i:ab)"}, "xAbx"), ElementsAre("x", "Ab", "x"));
  EXPECT_THAT(Pieces({R"([^\S\n]+)"}, "a \n b"), ElementsAre("a", " ", "\n", " ", "b"));
  EXPECT_THAT(Pieces({R"(\P{L}+)"}, "a12b"), ElementsAre("a", "12", "b"));
  EXPECT_THAT(Pieces({R"([\p{^L}]+)"}, "a12b"), ElementsAre("a", "12", "b"));
}

TEST(RegexSplitter, LongRunsMeetNoLimit) {
  // PCRE2's default match limit ends with an error here.
  EXPECT_EQ(Pieces({R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}, std::string(12'000'000, ' ')).size(), 1u);
  for (const char* character : {" ", "a", "!"}) {
    std::string text;
    while (text.size() < 300'000) text += character;
    EXPECT_EQ(Pieces({R"((?:\s|\p{L}|!)+)"}, text).size(), 1u);
  }
}

TEST(RegexTranslate, RefusesWhatTheEnginesReadDifferently) {
  for (const char* pattern : {R"(\w+)", R"(\b)", R"(\p{Han})", R"(\p{Cn})", R"(\pL)", R"(\h)", R"(\R)", R"(\1)", R"(\x41)",
                              R"([a[b]])", "[a&&b]", "[[:alpha:]]", "(?<n>a)", "(?m:a)", "(?i)a", "a{2}+", "[]a]",
                              R"([a-\s])", "\\", "(?#c)", R"(\p{L)"}) {
    EXPECT_EQ(TranslateRegex(pattern).status().code(), Code::kUnimplemented) << pattern;
  }
  EXPECT_EQ(TranslateRegex("[a").status().code(), Code::kDataLoss);
  EXPECT_EQ(TranslateRegex("\xff").status().code(), Code::kDataLoss);
  EXPECT_EQ(MakeRegexSplitter({"a("}).status().code(), Code::kDataLoss);
  EXPECT_EQ(MakeRegexSplitter({"a**b"}).status().code(), Code::kDataLoss);
}

// The generated table: sizes of the classes in Unicode 16.0 as the published tokenizers have them, and a checksum.
TEST(UnicodeClasses, AreThoseOfUnicode16) {
  const auto size = [](const CodePointSet& set) {
    size_t count = 0;
    for (const auto& [first, last] : set) count += last - first + 1;
    return count;
  };
  EXPECT_EQ(size(*CategorySet("L")), 141'028u);
  EXPECT_EQ(size(*CategorySet("M")), 2'501u);
  EXPECT_EQ(size(*CategorySet("N")), 1'911u);
  EXPECT_EQ(size(*CategorySet("P")), 855u);
  EXPECT_EQ(size(*CategorySet("S")), 8'514u);
  EXPECT_EQ(size(WhiteSpaceSet()), 25u);
  EXPECT_EQ(size(Complement(WhiteSpaceSet())), 0x110000u - 0x800 - 25);
  EXPECT_EQ(CategorySet("Xx"), std::nullopt);
  EXPECT_EQ(CategorySet(""), std::nullopt);
  uint64_t checksum = 0xCBF29CE484222325u;  // FNV-1a
  for (const CategoryRange& range : CategoryRanges()) {
    for (const uint32_t value : {range.first, range.last, static_cast<uint32_t>(range.category)}) {
      checksum = (checksum ^ value) * 0x100000001B3u;
    }
  }
  EXPECT_EQ(checksum, 12877011292514604402u);
}

}  // namespace
}  // namespace deepinfer
