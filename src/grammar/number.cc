// SPDX-License-Identifier: Apache-2.0
#include "grammar/number.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace deepinfer::grammar {
namespace {

ExprId Digit(ExprPool* pool, char first, char last) {
  ByteSet set;
  for (int c = first; c <= last; ++c) set.set(static_cast<size_t>(c));
  return pool->Bytes(set);
}

struct Parts {
  explicit Parts(ExprPool* p) : pool(p) {
    digit = Digit(p, '0', '9');
    nonzero = Digit(p, '1', '9');
    digits = p->Star(digit);
    integer = p->Or(p->Byte('0'), p->Concat(nonzero, digits));
    fraction = p->Optional(p->Concat({p->Byte('.'), digit, digits}));
    zeros = p->Star(p->Byte('0'));
  }
  ExprPool* pool;
  ExprId digit, nonzero, digits, integer, fraction, zeros;
};

// Fraction digit strings whose value is > 0.F (or equal, unless strict). REQUIRES: F is not empty.
ExprId FractionAbove(const Parts& p, std::string_view f, bool strict) {
  std::vector<ExprId> options;
  for (size_t i = 0; i < f.size(); ++i) {
    if (f[i] == '9') continue;
    options.push_back(p.pool->Concat({p.pool->Literal(f.substr(0, i)), Digit(p.pool, static_cast<char>(f[i] + 1), '9'), p.digits}));
  }
  options.push_back(strict ? p.pool->Concat({p.pool->Literal(f), p.zeros, p.nonzero, p.digits})
                           : p.pool->Concat(p.pool->Literal(f), p.digits));
  return p.pool->Or(std::move(options));
}

// Spellings without a sign whose value is > magnitude (or equal, unless strict).
ExprId MagnitudeAbove(const Parts& p, const Decimal& bound, bool strict) {
  ExprPool* pool = p.pool;
  const std::string& n = bound.integer;
  std::vector<ExprId> greater;  // integer parts that decide alone
  greater.push_back(pool->Concat(p.nonzero, pool->Repeat(p.digit, n.size(), kNoMax)));
  for (size_t i = 0; i < n.size(); ++i) {
    if (n[i] == '9') continue;
    greater.push_back(pool->Concat({pool->Literal(n.substr(0, i)), Digit(pool, static_cast<char>(n[i] + 1), '9'),
                                    pool->Repeat(p.digit, n.size() - i - 1, n.size() - i - 1)}));
  }
  ExprId fraction;
  if (!bound.fraction.empty()) {
    fraction = pool->Concat(pool->Byte('.'), FractionAbove(p, bound.fraction, strict));
  } else if (strict) {
    fraction = pool->Concat({pool->Byte('.'), p.zeros, p.nonzero, p.digits});
  } else {
    fraction = p.fraction;
  }
  return pool->Or(pool->Concat(pool->Or(std::move(greater)), p.fraction), pool->Concat(pool->Literal(n), fraction));
}

ExprId MagnitudeBelow(const Parts& p, const Decimal& bound, bool strict) {
  const ExprId all = p.pool->Concat(p.integer, p.fraction);
  return p.pool->And(all, p.pool->Not(MagnitudeAbove(p, bound, !strict)));
}

ExprId MagnitudeEquals(const Parts& p, const Decimal& value) {
  ExprPool* pool = p.pool;
  const ExprId tail = value.fraction.empty()
                          ? pool->Optional(pool->Concat({pool->Byte('.'), pool->Byte('0'), p.zeros}))
                          : pool->Concat(pool->Literal("." + value.fraction), p.zeros);
  return pool->Concat(pool->Literal(value.integer), tail);
}

}  // namespace

Result<Decimal> ParseDecimal(std::string_view literal) {
  const auto bad = [&] { return Error(Code::kInvalidArgument, "number \"{}\": out of range", literal.substr(0, 60)); };
  Decimal value;
  std::string_view text = literal;
  if (text.substr(0, 1) == "-") {
    value.negative = true;
    text.remove_prefix(1);
  }
  long exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    if (digits.substr(0, 1) == "+") digits.remove_prefix(1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (error != std::errc() || exponent < -400 || exponent > 400) return bad();
    text = text.substr(0, e);
  }
  const size_t point = text.find('.');
  std::string integer(text.substr(0, point));
  std::string fraction(point == std::string_view::npos ? "" : text.substr(point + 1));
  if (integer.size() + fraction.size() > 2000) return bad();
  for (; exponent > 0; --exponent) {
    integer.push_back(fraction.empty() ? '0' : fraction[0]);
    if (!fraction.empty()) fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    fraction.insert(fraction.begin(), integer.empty() ? '0' : integer.back());
    if (!integer.empty()) integer.pop_back();
  }
  integer.erase(0, std::min(integer.find_first_not_of('0'), integer.size()));
  while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
  value.integer = integer.empty() ? "0" : integer;
  value.fraction = fraction;
  if (value.IsZero()) value.negative = false;
  return value;
}

int CompareDecimals(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int order = 0;
  if (a.integer.size() != b.integer.size()) {
    order = a.integer.size() < b.integer.size() ? -1 : 1;
  } else {
    order = a.integer.compare(b.integer);
    if (order == 0) order = a.fraction.compare(b.fraction);
  }
  return a.negative ? -order : order;
}

std::string PlainSpelling(const Decimal& value) {
  return (value.negative ? "-" : "") + value.integer + (value.fraction.empty() ? "" : "." + value.fraction);
}

ExprId PlainNumber(ExprPool* pool) {
  const Parts p(pool);
  return pool->Concat({pool->Optional(pool->Byte('-')), p.integer, p.fraction});
}

ExprId AnyNumber(ExprPool* pool) {
  const Parts p(pool);
  const ExprId sign = pool->Optional(pool->Or(pool->Byte('+'), pool->Byte('-')));
  const ExprId exponent = pool->Concat({pool->Or(pool->Byte('e'), pool->Byte('E')), sign, p.digit, p.digits});
  return pool->Concat({pool->Optional(pool->Byte('-')), p.integer, p.fraction, pool->Optional(exponent)});
}

ExprId NumberEquals(ExprPool* pool, const Decimal& value) {
  const Parts p(pool);
  const ExprId magnitude = MagnitudeEquals(p, value);
  if (value.IsZero()) return pool->Concat(pool->Optional(pool->Byte('-')), magnitude);
  return value.negative ? pool->Concat(pool->Byte('-'), magnitude) : magnitude;
}

ExprId NumberAtLeast(ExprPool* pool, const Decimal& bound, bool strict) {
  const Parts p(pool);
  const ExprId minus = pool->Byte('-');
  if (bound.negative) {
    const ExprId positive = pool->Concat(p.integer, p.fraction);
    return pool->Or(positive, pool->Concat(minus, MagnitudeBelow(p, bound, strict)));
  }
  const ExprId positive = MagnitudeAbove(p, bound, strict);
  if (!bound.IsZero() || strict) return positive;
  return pool->Or(positive, pool->Concat(minus, MagnitudeEquals(p, Decimal{})));
}

ExprId NumberAtMost(ExprPool* pool, const Decimal& bound, bool strict) {
  return pool->And(PlainNumber(pool), pool->Not(NumberAtLeast(pool, bound, !strict)));
}

Result<ExprId> NumberMultipleOf(ExprPool* pool, const Decimal& divisor) {
  if (divisor.negative || divisor.IsZero()) return Error(Code::kInvalidArgument, "must be above 0");
  const std::string digits = (divisor.integer == "0" ? "" : divisor.integer) + divisor.fraction;
  uint64_t modulus = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), modulus);
  if (error != std::errc() || modulus >= (uint64_t{1} << 60) || divisor.fraction.size() > 18) {
    return Error(Code::kUnimplemented, "more digits than can be enforced");
  }
  const ExprId multiple = pool->Multiple(modulus, static_cast<uint32_t>(divisor.fraction.size()));
  const ExprId signed_multiple = pool->Concat(pool->Optional(pool->Byte('-')), multiple);
  return pool->And(PlainNumber(pool), signed_multiple);
}

}  // namespace deepinfer::grammar
