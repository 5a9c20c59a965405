// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/unicode_classes.h"

#include <iterator>

namespace deepinfer {
namespace {

constexpr CategoryRange kRanges[] = {
#include "tokenizer/unicode_classes_data.inc"
};

// In the order of Category.
constexpr std::string_view kNames[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                       "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                       "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
static_assert(std::size(kNames) == static_cast<size_t>(Category::kCo) + 1);

void Append(uint32_t first, uint32_t last, CodePointSet* set) {
  if (!set->empty() && set->back().second + 1 == first) {
    set->back().second = last;
  } else {
    set->emplace_back(first, last);
  }
}

}  // namespace

std::span<const CategoryRange> CategoryRanges() { return kRanges; }

std::optional<CodePointSet> CategorySet(std::string_view name) {
  // "C" and its members would need the unassigned and the surrogates, which no split pattern asks for.
  if (name.empty() || name.size() > 2 || name[0] == 'C') return std::nullopt;
  CodePointSet set;
  for (const CategoryRange& range : kRanges) {
    if (kNames[static_cast<size_t>(range.category)].starts_with(name)) Append(range.first, range.last, &set);
  }
  if (set.empty()) return std::nullopt;
  return set;
}

const CodePointSet& WhiteSpaceSet() {
  static const CodePointSet set = {{0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                   {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                   {0x205F, 0x205F}, {0x3000, 0x3000}};
  return set;
}

CodePointSet Complement(const CodePointSet& set) {
  CodePointSet rest;
  uint32_t next = 0;
  const auto add = [&](uint32_t first, uint32_t end) {
    if (first < 0xD800 && end > 0xE000) {
      rest.emplace_back(first, 0xD7FF);
      rest.emplace_back(0xE000, end - 1);
    } else if (first < end) {
      rest.emplace_back(first, end - 1);
    }
  };
  for (const auto& [first, last] : set) {
    add(next, first);
    next = last + 1;
  }
  add(next, kCodePointMax + 1);
  return rest;
}

}  // namespace deepinfer
