// SPDX-License-Identifier: Apache-2.0
// Exact sets of JSON numbers as byte expressions: ranges, single values, multiples, in decimal arithmetic of any size.
// Canonical form: where a number's value is constrained in any way, its spelling has no exponent (sets of values with
// exponents are not regular); 1.0 and -0 count as 1 and 0.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"
#include "grammar/expr.h"

namespace deepinfer::grammar {

// A decimal number in normal form: no leading zeros, no trailing zeros in the fraction, zero is not negative.
struct Decimal {
  bool negative = false;
  std::string integer = "0";
  std::string fraction;

  bool IsZero() const { return integer == "0" && fraction.empty(); }
  bool IsInteger() const { return fraction.empty(); }
  bool operator==(const Decimal&) const = default;
};

// A JSON number literal. Exponents beyond +-400 are refused.
Result<Decimal> ParseDecimal(std::string_view literal);
// <0, 0, >0
int CompareDecimals(const Decimal& a, const Decimal& b);
std::string PlainSpelling(const Decimal& value);

ExprId AnyNumber(ExprPool* pool);    // every JSON spelling, exponents too
ExprId PlainNumber(ExprPool* pool);  // every spelling without exponent
ExprId NumberEquals(ExprPool* pool, const Decimal& value);
// Plain spellings with a value >= bound (> bound where strict), and <= bound.
ExprId NumberAtLeast(ExprPool* pool, const Decimal& bound, bool strict);
ExprId NumberAtMost(ExprPool* pool, const Decimal& bound, bool strict);
// Plain spellings of whole multiples of `divisor`. Errors: divisor <= 0, or too many digits.
Result<ExprId> NumberMultipleOf(ExprPool* pool, const Decimal& divisor);

}  // namespace deepinfer::grammar
