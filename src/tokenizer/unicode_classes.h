// SPDX-License-Identifier: Apache-2.0
// Character classes of Unicode 16.0, the version by which the published tokenizers classify; the machine's ICU and
// PCRE2 know older ones. Stateless.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer {

enum class Category : uint8_t {
  kCn, kLu, kLl, kLt, kLm, kLo, kMn, kMc, kMe, kNd, kNl, kNo, kPc, kPd, kPs, kPe, kPi, kPf, kPo,
  kSm, kSc, kSk, kSo, kZs, kZl, kZp, kCc, kCf, kCs, kCo,
};

inline constexpr uint32_t kCodePointMax = 0x10FFFF;

struct CategoryRange {
  uint32_t first;
  uint32_t last;
  Category category;
};

// Every code point but the unassigned ones, ascending.
std::span<const CategoryRange> CategoryRanges();

// Set of code points as ascending ranges [first, last] that neither overlap nor touch.
using CodePointSet = std::vector<std::pair<uint32_t, uint32_t>>;

// The set of a general category ("Lu") or a group of them ("L"); nothing for any other name.
std::optional<CodePointSet> CategorySet(std::string_view name);
// White_Space: what \s means.
const CodePointSet& WhiteSpaceSet();
// All other code points, surrogates excluded on both sides.
CodePointSet Complement(const CodePointSet& set);

}  // namespace deepinfer
