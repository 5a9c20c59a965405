// SPDX-License-Identifier: Apache-2.0
// Property: every code point survives the round trip, and every invalid lead or continuation is refused with the
// length of its maximal subpart (Unicode 3.9, table 3-8).
#include "core/utf8.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(Utf8, RoundTripsEveryCodePoint) {
  for (uint32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point < 0xE000) continue;
    std::string text;
    AppendUtf8(code_point, &text);
    const Utf8Char c = DecodeUtf8(text);
    ASSERT_TRUE(c.valid);
    ASSERT_EQ(c.code_point, code_point);
    ASSERT_EQ(c.size, text.size());
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_TRUE(DecodeUtf8(std::string_view(text).substr(0, cut)).truncated);
    }
  }
}

TEST(Utf8, MaximalSubparts) {
  const auto size = [](std::string_view text) { return DecodeUtf8(text).valid ? 0 : DecodeUtf8(text).size; };
  EXPECT_EQ(size("\x80"), 1u);
  EXPECT_EQ(size("\xC0\xAF"), 1u);          // overlong
  EXPECT_EQ(size("\xE0\x80\x80"), 1u);      // overlong
  EXPECT_EQ(size("\xED\xA0\x80"), 1u);      // surrogate
  EXPECT_EQ(size("\xF0\x90\x80" "a"), 3u);  // three good bytes, then none
  EXPECT_EQ(size("\xF4\x90\x80\x80"), 1u);  // above U+10FFFF
  EXPECT_EQ(size("\xF5"), 1u);
}

TEST(Utf8, FindsTheFirstBadByte) {
  EXPECT_EQ(FindInvalidUtf8(""), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("plain ascii text, long enough for words"), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("0123456789\xC3\xA9\xFF"), 12u);
  EXPECT_EQ(FindInvalidUtf8("0123456789\xC3"), 10u);
}

}  // namespace
}  // namespace deepinfer
