// SPDX-License-Identifier: Apache-2.0
// The table-driven splitter gives the pieces of the patterns as PCRE2 runs them: for every code point, every string of
// up to 4 characters over representatives of all classes, and random strings. Where SafeCut() allows a cut, the parts
// split on their own into the same pieces; and it allows one for every pair of characters that never failed.
#include "tokenizer/deepseek_splitter.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/utf8.h"
#include "tokenizer/regex_splitter.h"

namespace deepinfer {
namespace {

// As the bundled tokenizer spells them.
const std::vector<std::string> kPatterns = {
    R"(\p{N}{1,3})",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    R"([!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

// One or more of each class, and characters that are near a border of one.
constexpr uint32_t kAwkward[] = {
    'a',    'Z',    'z',    '@',    '[',    '`',    '{',    '1',    '0',    ' ',     '\t',    '\n',    '\r',
    '!',    '+',    0x00,   0x1C,   0x7F,   0x85,   0xA0,   0xAD,   0xE9,   0xBD,    0x300,   0x301,   0x661,
    0x968,  0x93F,  0x200B, 0x200D, 0x2028, 0x2003, 0x2019, 0x20AC, 0xFEFF, 0x3000,  0x3002,  0x3040,  0x3042,
    0x3097, 0x3099, 0x309B, 0x30A0, 0x30A2, 0x30FB, 0x30FC, 0x4E2D, 0x9FA5, 0x9FA6,  0xFF01,  0xFF11,  0x1F600,
    0x20E3, 0xFE0F, 0x180E, 0x10FFFF, 0xE000, 0x378,
};
// One of each class.
constexpr uint32_t kRepresentatives[] = {'a', 0xE9, '1', ' ', '\t', '\n', '!', 0x2019, 0x00, 0x301, 0x4E2D, 0x30FB, 0x3097};

std::string Utf8(const std::vector<uint32_t>& characters) {
  std::string text;
  for (const uint32_t c : characters) AppendUtf8(c, &text);
  return text;
}

std::vector<uint32_t> Ends(const PreTokenizer& splitter, std::string_view text) {
  std::vector<uint32_t> ends;
  size_t position = 0;
  while (position < text.size()) {
    const Status status = splitter.Split(text, &position, &ends);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return ends;
}

std::string Shown(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(i));
    out += fmt::format("U+{:04X} ", c.code_point);
    i += c.size;
  }
  return out;
}

class DeepSeekSplitterTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<PreTokenizer>> regex = MakeRegexSplitter(kPatterns);
    ASSERT_TRUE(regex.ok()) << regex.status().message();
    regex_ = *std::move(regex);
  }
  void Compare(const std::string& text) const {
    ASSERT_EQ(Ends(*table_, text), Ends(*regex_, text)) << Shown(text);
  }
  std::unique_ptr<PreTokenizer> table_ = MakeDeepSeekSplitter();
  std::unique_ptr<PreTokenizer> regex_;
};

TEST_F(DeepSeekSplitterTest, RecognisesThePublishedPatternsOnly) {
  EXPECT_TRUE(IsDeepSeekPattern(kPatterns));
  std::vector<std::string> changed = kPatterns;
  changed[0] = R"(\p{N}{1,2})";
  EXPECT_FALSE(IsDeepSeekPattern(changed));
  changed = kPatterns;
  std::swap(changed[0], changed[1]);
  EXPECT_FALSE(IsDeepSeekPattern(changed));
  EXPECT_FALSE(IsDeepSeekPattern({}));
}

TEST_F(DeepSeekSplitterTest, EveryCodePoint) {
  std::string text;
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    // Beside a letter, a blank and itself: enough to tell every two classes apart.
    text += 'a';
    AppendUtf8(c, &text);
    text += ' ';
    AppendUtf8(c, &text);
    AppendUtf8(c, &text);
    if (c % 4096 != 4095) continue;
    Compare(text);
    text.clear();
  }
}

TEST_F(DeepSeekSplitterTest, EveryShortString) {
  for (size_t length = 1; length <= 4; ++length) {
    size_t count = 1;
    for (size_t i = 0; i < length; ++i) count *= std::size(kRepresentatives);
    for (size_t n = 0; n < count; ++n) {
      std::vector<uint32_t> characters;
      for (size_t i = 0, rest = n; i < length; ++i, rest /= std::size(kRepresentatives)) {
        characters.push_back(kRepresentatives[rest % std::size(kRepresentatives)]);
      }
      Compare(Utf8(characters));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DeepSeekSplitterTest, RandomStrings) {
  std::mt19937 random(1);
  for (int i = 0; i < 30'000; ++i) {
    std::vector<uint32_t> characters;
    const size_t length = 1 + random() % 40;
    // Few kinds in one string, so that runs are long.
    const size_t kinds = 1 + random() % 6;
    std::vector<uint32_t> alphabet;
    for (size_t k = 0; k < kinds; ++k) alphabet.push_back(kAwkward[random() % std::size(kAwkward)]);
    for (size_t k = 0; k < length; ++k) characters.push_back(alphabet[random() % kinds]);
    Compare(Utf8(characters));
    if (HasFatalFailure()) return;
  }
}

TEST_F(DeepSeekSplitterTest, SafeCutsAreExactAndComplete) {
  std::mt19937 random(2);
  std::set<std::pair<uint32_t, uint32_t>> refused;
  std::set<std::pair<uint32_t, uint32_t>> failed;
  size_t num_safe = 0;
  for (int i = 0; i < 60'000; ++i) {
    const bool representative = i % 2 == 0;
    std::vector<uint32_t> characters;
    for (size_t k = 2 + random() % 9; k > 0; --k) {
      characters.push_back(representative ? kRepresentatives[random() % std::size(kRepresentatives)]
                                          : kAwkward[random() % std::size(kAwkward)]);
    }
    const size_t at = 1 + random() % (characters.size() - 1);
    const std::string left = Utf8({characters.begin(), characters.begin() + at});
    const std::string right = Utf8({characters.begin() + at, characters.end()});
    std::vector<uint32_t> joined = Ends(*table_, left);
    for (const uint32_t end : Ends(*table_, right)) joined.push_back(static_cast<uint32_t>(left.size() + end));
    const bool equal = joined == Ends(*table_, left + right);
    if (table_->SafeCut(left + right, left.size())) {
      ++num_safe;
      ASSERT_TRUE(equal) << Shown(left) << "| " << Shown(right);
    } else if (representative) {
      refused.emplace(characters[at - 1], characters[at]);
      if (!equal) failed.emplace(characters[at - 1], characters[at]);
    }
  }
  EXPECT_GT(num_safe, 10'000u);
  for (const auto& [before, after] : refused) {
    EXPECT_TRUE(failed.contains({before, after})) << fmt::format("U+{:04X} U+{:04X} never failed", before, after);
  }
}

}  // namespace
}  // namespace deepinfer
