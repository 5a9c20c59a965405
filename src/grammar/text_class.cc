// SPDX-License-Identifier: Apache-2.0
#include "grammar/text_class.h"

#include <algorithm>

namespace deepinfer::grammar {
namespace {

CodePointSet Intersection(const CodePointSet& a, const CodePointSet& b) {
  return a.Complement().Add(b.Complement()).Complement();
}

CodePointSet Blanks() {
  return CodePointSet().Add(0x09, 0x0D).Add(' ').Add(0xA0).Add(0x1680).Add(0x2000, 0x200A).Add(0x2028, 0x2029).Add(0x202F)
      .Add(0x205F).Add(0x3000).Add(0xFEFF);
}

std::array<TextClassInfo, 8> MakeClasses() {
  const CodePointSet plain = PlainCharacters();
  const CodePointSet lower = CodePointSet().Add('a', 'z');
  const CodePointSet letters = CodePointSet(lower).Add('A', 'Z');
  const CodePointSet alphanumeric = CodePointSet(letters).Add('0', '9');
  const CodePointSet words = CodePointSet(alphanumeric).Add(' ');
  const CodePointSet punctuation = Intersection(CodePointSet().Add(0x21, 0x7E), alphanumeric.Complement());
  const CodePointSet no_blanks = Intersection(plain, Blanks().Complement());
  return {{{kLower, 0, lower},
           {kLetters, kLower, letters},
           {kAlphanumeric, kLower | kLetters, alphanumeric},
           {kWords, kLower | kLetters | kAlphanumeric, words},
           {kBareText, kLower | kLetters | kAlphanumeric, Intersection(no_blanks, punctuation.Complement())},
           {kAsciiText, kLower | kLetters | kAlphanumeric | kWords, Intersection(plain, CodePointSet().Add(0, 0x7F))},
           {kNoPunctuation, kLower | kLetters | kAlphanumeric | kWords | kBareText, Intersection(plain, punctuation.Complement())},
           {kNoBlanks, kLower | kLetters | kAlphanumeric | kBareText, no_blanks}}};
}

}  // namespace

CodePointSet PlainCharacters() {
  return CodePointSet().Add(0, 0x1F).Add('"').Add('\\').Add('<').Add(0x7F).Add(0x2028, 0x2029).Complement();
}

const std::array<TextClassInfo, 8>& TextClasses() {
  static const auto& classes = *new std::array<TextClassInfo, 8>(MakeClasses());
  return classes;
}

uint8_t TextClassesOf(uint32_t code_point) {
  static const auto& ascii = *new std::array<uint8_t, 128>([] {
    std::array<uint8_t, 128> bits{};
    for (const TextClassInfo& info : TextClasses()) {
      for (const auto& [first, last] : info.characters.Ranges()) {
        for (uint32_t c = first; c <= last && c < 128; ++c) bits[c] |= info.bit;
      }
    }
    return bits;
  }());
  if (code_point < 128) return ascii[code_point];
  static const auto& blanks = *new std::vector<CodePointSet::Range>(Blanks().Ranges());
  if (code_point == 0x2028 || code_point == 0x2029) return 0;
  const bool blank = std::any_of(blanks.begin(), blanks.end(), [&](const CodePointSet::Range& range) {
    return range.first <= code_point && code_point <= range.second;
  });
  return blank ? kNoPunctuation : kNoBlanks | kNoPunctuation | kBareText;
}

}  // namespace deepinfer::grammar
