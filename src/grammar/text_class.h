// SPDX-License-Identifier: Apache-2.0
// Kinds of text that many constraints treat alike. The vocabulary knows beforehand which tokens are wholly of a kind, the
// lexer finds out of which kinds any text may follow; those tokens are then not walked. Stateless.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "grammar/unicode.h"

namespace deepinfer::grammar {

// Characters that no construct of interest treats specially: no control characters, quotes, backslashes, "<", and no
// U+2028 or U+2029 (which "." in a regex does not match).
CodePointSet PlainCharacters();

// Parts of the plain characters, as bits. A set of classes is the OR of their bits.
enum TextClass : uint8_t {
  kLower = 1,          // a to z
  kLetters = 2,        // a to z, A to Z
  kAlphanumeric = 4,   // and digits
  kWords = 8,          // and the space
  kAsciiText = 16,     // plain ASCII
  kNoBlanks = 32,      // plain without blanks (ECMA-262 \s)
  kNoPunctuation = 64, // plain without ASCII punctuation
  kBareText = 128,     // plain without either
};
inline constexpr uint8_t kAllTextClasses = 255;
// Longest run of characters that counts as of a class.
inline constexpr uint32_t kRunCharsMax = 16;

struct TextClassInfo {
  TextClass bit;
  uint8_t contains;  // the classes that are parts of it
  CodePointSet characters;
};
// Each after those that are parts of it.
const std::array<TextClassInfo, 8>& TextClasses();

// The classes that a character is in.
uint8_t TextClassesOf(uint32_t code_point);

}  // namespace deepinfer::grammar
