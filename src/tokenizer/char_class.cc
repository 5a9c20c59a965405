// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/char_class.h"

#include <algorithm>
#include <map>

#include "tokenizer/unicode_classes.h"

namespace deepinfer {
namespace {

CharClass OfCategory(Category category) {
  switch (category) {
    case Category::kLu: case Category::kLl: case Category::kLt: case Category::kLm: case Category::kLo:
    case Category::kMn: case Category::kMc: case Category::kMe:
      return CharClass::kLetter;
    case Category::kNd: case Category::kNl: case Category::kNo:
      return CharClass::kNumber;
    case Category::kPc: case Category::kPd: case Category::kPs: case Category::kPe: case Category::kPi:
    case Category::kPf: case Category::kPo: case Category::kSm: case Category::kSc: case Category::kSk:
    case Category::kSo:
      return CharClass::kPunct;
    default:
      return CharClass::kOther;
  }
}

CharClass InCjk(CharClass general) {
  if (general == CharClass::kLetter) return CharClass::kCjkLetter;
  return general == CharClass::kPunct ? CharClass::kCjkPunct : CharClass::kCjkOther;
}

std::vector<CharClass> ClassOfEveryCodePoint() {
  std::vector<CharClass> classes(kCodePointMax + 1, CharClass::kOther);
  for (const CategoryRange& range : CategoryRanges()) {
    std::fill(classes.begin() + range.first, classes.begin() + range.last + 1, OfCategory(range.category));
  }
  for (const auto& [first, last] : WhiteSpaceSet()) {
    std::fill(classes.begin() + first, classes.begin() + last + 1, CharClass::kWhite);
  }
  for (uint32_t c = 0; c < 0x80; ++c) {
    if (classes[c] == CharClass::kLetter) classes[c] = CharClass::kAsciiLetter;
    if (classes[c] == CharClass::kPunct) classes[c] = CharClass::kAsciiPunct;
  }
  classes['\r'] = classes['\n'] = CharClass::kNewline;
  for (const auto& [first, last] : CodePointSet{{0x3040, 0x30FF}, {0x4E00, 0x9FA5}}) {
    for (uint32_t c = first; c <= last; ++c) classes[c] = InCjk(classes[c]);
  }
  return classes;
}

}  // namespace

CharClassTable::CharClassTable() {
  const std::vector<CharClass> classes = ClassOfEveryCodePoint();
  std::copy_n(classes.begin(), ascii_.size(), ascii_.begin());
  std::map<std::vector<CharClass>, uint16_t> known;
  for (size_t i = 0; i < block_of_.size(); ++i) {
    std::vector<CharClass> block(classes.begin() + i * 128, classes.begin() + (i + 1) * 128);
    const auto [it, is_new] = known.emplace(std::move(block), static_cast<uint16_t>(known.size()));
    if (is_new) blocks_.insert(blocks_.end(), it->first.begin(), it->first.end());
    block_of_[i] = it->second;
  }
}

const CharClassTable& CharClassTable::Get() {
  static const CharClassTable table;
  return table;
}

}  // namespace deepinfer
