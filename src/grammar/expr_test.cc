// SPDX-License-Identifier: Apache-2.0
// Property: an expression accepts exactly the words that its definition says; emptiness and counts are exact. Method:
// hand cases for every constructor, and numbers compared with plain arithmetic on dense grids.
#include "grammar/expr.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "grammar/format.h"
#include "grammar/number.h"
#include "grammar/regex.h"

namespace deepinfer::grammar {
namespace {

class ExprTest : public testing::Test {
 protected:
  ExprTest() : pool_(&budget_) {}
  bool Search(std::string_view pattern, std::string_view text) {
    auto expr = ParseRegex(&pool_, pattern, RegexMatch::kSearch);
    EXPECT_TRUE(expr.ok()) << pattern << ": " << expr.status().message();
    return expr.ok() && pool_.Matches(*expr, text);
  }
  Decimal Number(std::string_view text) { return *ParseDecimal(text); }
  Budget budget_;
  ExprPool pool_;
};

TEST_F(ExprTest, BooleanCombinations) {
  const ExprId text = AnyText(&pool_);
  const ExprId a = *ParseRegex(&pool_, "^a+$", RegexMatch::kSearch);
  EXPECT_TRUE(pool_.IsEmpty(pool_.And(a, pool_.Not(text))));
  EXPECT_FALSE(pool_.IsEmpty(pool_.And(a, pool_.Repeat(AnyChar(&pool_), 500, 500))));
  EXPECT_TRUE(pool_.IsEmpty(pool_.And(a, pool_.Literal("ab"))));
  EXPECT_EQ(pool_.Count(pool_.And(a, pool_.Repeat(AnyChar(&pool_), 0, 7)), 100), 7u);
  EXPECT_EQ(pool_.Count(a, 100), 100u);
}

TEST_F(ExprTest, AnchorsAndClasses) {
  EXPECT_TRUE(Search("b", "abc"));
  EXPECT_FALSE(Search("^b", "abc"));
  EXPECT_TRUE(Search("^$", ""));
  EXPECT_FALSE(Search("^$", "x"));
  EXPECT_TRUE(Search("^a|b$", "ax"));
  EXPECT_TRUE(Search("^a|b$", "xb"));
  EXPECT_FALSE(Search("^a|b$", "xax"));
  EXPECT_TRUE(Search("\\$5", "US$5"));
  EXPECT_FALSE(Search("^\\d+$", "\u0663"));
  EXPECT_FALSE(Search("^\\w+$", "\u00e9"));
  EXPECT_TRUE(Search("^\\S+$", "["));
  EXPECT_TRUE(Search("^[\\w.-]+$", "a-b.c"));
  EXPECT_TRUE(Search("^[\u0430-\u044f]+$", "\u0434\u0430"));
  EXPECT_FALSE(Search("^[\u0430-\u044f]+$", "\u0434a"));
  EXPECT_TRUE(Search("^[\\u{1F600}-\\u{1F63F}]$", "\U0001F600"));
  EXPECT_TRUE(Search("^\\p{L}{2}$", "\u00e9\u6c49"));
  EXPECT_TRUE(Search("^(?:a|b){2,3}$", "aba"));
  EXPECT_FALSE(Search("^(?:a|b){2,3}$", "abab"));
  EXPECT_TRUE(Search("(^a|b)c", "xbc"));
  EXPECT_FALSE(Search("(^a|b)c", "xac"));
}

TEST_F(ExprTest, RefusalsNameTheOffset) {
  for (const char* bad : {"[", "(?<=a)b", "(", "a{3,1}", "\\p{Nope}", "a)", "(?!x)y", "\\bword", "(a)\\1", "*"}) {
    auto expr = ParseRegex(&pool_, bad, RegexMatch::kSearch);
    ASSERT_FALSE(expr.ok()) << bad;
    EXPECT_NE(expr.status().message().find("offset"), std::string::npos) << expr.status().message();
  }
}

TEST_F(ExprTest, RangesAgreeWithArithmetic) {
  const char* bounds[] = {"-100", "-7.25", "-1", "-0.5", "0", "0.25", "1", "9", "10", "99.5", "100"};
  for (const char* bound : bounds) {
    for (bool strict : {false, true}) {
      const ExprId least = NumberAtLeast(&pool_, Number(bound), strict);
      const ExprId most = NumberAtMost(&pool_, Number(bound), strict);
      for (int i = -4100; i <= 4100; ++i) {
        const Decimal value = Number(fmt::format("{:.2f}", i / 40.0));
        const int order = CompareDecimals(value, Number(bound));
        for (const std::string& spelling : {PlainSpelling(value), PlainSpelling(value) + (value.IsInteger() ? ".00" : "0")}) {
          EXPECT_EQ(pool_.Matches(least, spelling), strict ? order > 0 : order >= 0) << spelling << " >= " << bound;
          EXPECT_EQ(pool_.Matches(most, spelling), strict ? order < 0 : order <= 0) << spelling << " <= " << bound;
        }
      }
    }
  }
}

TEST_F(ExprTest, MultiplesAgreeWithArithmetic) {
  for (int thousandths : {1, 10, 250, 700, 1000, 3000, 7500, 128000}) {
    auto expr = NumberMultipleOf(&pool_, Number(fmt::format("{:.3f}", thousandths / 1000.0)));
    ASSERT_TRUE(expr.ok());
    for (int i = -20000; i <= 20000; i += 7) {
      const std::string spelling = PlainSpelling(Number(fmt::format("{:.3f}", i / 1000.0)));
      EXPECT_EQ(pool_.Matches(*expr, spelling), i % thousandths == 0) << spelling << " % " << thousandths;
    }
  }
}

TEST_F(ExprTest, EmptyIntersectionsOfRangesAndMultiples) {
  const auto between = [&](const char* low, const char* high, const char* step) {
    return pool_.And({NumberAtLeast(&pool_, Number(low), false), NumberAtMost(&pool_, Number(high), false),
                      *NumberMultipleOf(&pool_, Number(step))});
  };
  EXPECT_TRUE(pool_.IsEmpty(between("1", "6", "7")));
  EXPECT_FALSE(pool_.IsEmpty(between("1", "7", "7")));
  EXPECT_TRUE(pool_.IsEmpty(between("0.1", "0.2", "0.25")));
  EXPECT_FALSE(pool_.IsEmpty(between("1000000", "1000100", "97")));
}

TEST_F(ExprTest, Formats) {
  const auto check = [&](const char* format, const char* text, bool want) {
    auto expr = FormatExpr(&pool_, format);
    ASSERT_TRUE(expr.ok()) << format << expr.status().message();
    EXPECT_EQ(pool_.Matches(*expr, text), want) << format << " " << text;
  };
  check("date", "2024-02-29", true);
  check("date", "2023-02-29", false);
  check("date", "1900-02-29", false);
  check("date", "2000-02-29", true);
  check("date-time", "1990-12-31T15:59:60-08:00", true);
  check("date-time", "2016-12-31T22:59:60Z", false);
  check("time", "24:00:00Z", false);
  check("hostname", std::string(63, 'a').c_str(), true);
  check("hostname", std::string(64, 'a').c_str(), false);
  check("ipv4", "256.1.1.1", false);
  check("ipv4", "01.1.1.1", false);
  check("ipv4", "127.0.0.1", true);
  check("ipv6", "1::2::3", false);
  check("ipv6", "::", true);
  check("ipv6", "1:2:3:4:5:6:7:8", true);
  check("ipv6", "::ffff:192.168.0.1", true);
  check("ipv6", "1:2:3:4:5:6:7::", true);
  check("ipv6", "12345::", false);
  check("email", "joe.bloggs@example.com", true);
  check("email", "2962", false);
  check("uuid", "2eb8aa08-aa98-11ea-b4aa-73b441d16380", true);
  check("uri", "http://foo.bar/?baz=qux#quux", true);
  check("uri", "//foo.bar/?baz=qux#quux", false);
  check("duration", "P4DT12H30M5S", true);
  check("duration", "PT1D", false);
  check("json-pointer", "/foo/b~0ar", true);
  check("json-pointer", "/foo/bar~", false);
}

TEST_F(ExprTest, HugeRepeatsCostNothingUntilWalked) {
  auto expr = ParseRegex(&pool_, "^[a-z]{200,}x[0-9]{1000000000}$", RegexMatch::kSearch);
  ASSERT_TRUE(expr.ok());
  EXPECT_LT(pool_.size(), 1000u);
  EXPECT_FALSE(pool_.IsEmpty(*expr));
}

TEST_F(ExprTest, OpenCountsAreOneState) {
  // Each letter may begin a turn or go on with one: after n letters 1 to n turns are over, which is one interval.
  const auto expr = ParseRegex(&pool_, "^(\\w+\\W*){1,1000}x{2}$", RegexMatch::kSearch);
  ASSERT_TRUE(expr.ok());
  ExprId state = *expr;
  for (int i = 0; i < 500; ++i) {
    state = pool_.Derivative(state, 'a');
    if (i % 7 == 0) state = pool_.Derivative(state, ' ');
    ASSERT_NE(state, ExprPool::kEmpty);
  }
  EXPECT_LT(pool_.size(), 20'000u);
  const auto merged = [&](uint64_t min1, uint64_t max1, uint64_t min2, uint64_t max2) {
    const ExprId a = pool_.Byte('a');
    return pool_.Or(pool_.Concat(a, pool_.Repeat(a, min1, max1)), pool_.Concat(a, pool_.Repeat(a, min2, max2)));
  };
  EXPECT_EQ(merged(2, 4, 3, 9), merged(2, 9, 2, 9));
  EXPECT_EQ(merged(2, 4, 5, 9), merged(2, 9, 2, 9));
  EXPECT_EQ(merged(2, 4, 5, kNoMax), merged(2, kNoMax, 2, kNoMax));
  EXPECT_NE(merged(2, 4, 6, 9), merged(2, 9, 2, 9));
  EXPECT_FALSE(pool_.Matches(merged(2, 4, 6, 9), "aaaaaa"));
  EXPECT_TRUE(pool_.Matches(merged(2, 4, 6, 9), "aaaaaaa"));
}

TEST_F(ExprTest, SearchStopsAtTheBudget) {
  budget_.Start(100'000, std::chrono::milliseconds(500), size_t{64} << 20, nullptr);
  const ExprId long_text = pool_.Repeat(AnyChar(&pool_), 1'000'000'000, kNoMax);
  auto a = ParseRegex(&pool_, "^a*$", RegexMatch::kSearch);
  EXPECT_TRUE(pool_.IsEmpty(pool_.And(long_text, *a)));
  EXPECT_EQ(budget_.failure().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace deepinfer::grammar
