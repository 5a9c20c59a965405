// SPDX-License-Identifier: Apache-2.0
// The classes of characters that the DeepSeek split patterns tell apart, by table. Immutable; threads share it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace deepinfer {

enum class CharClass : uint8_t {
  kOther,        // in no class below: controls, format characters, unassigned
  kAsciiLetter,  // A-Z a-z
  kLetter,       // other \p{L}, and \p{M}
  kAsciiPunct,   // the 32 of ASCII, all of which are \p{P} or \p{S}
  kPunct,        // other \p{P} and \p{S}
  kNewline,      // CR, LF
  kWhite,        // other \s
  kNumber,       // \p{N}
  // Inside [一-龥぀-ゟ゠-ヿ], the pattern's range of ideographs and kana:
  kCjkLetter,  // \p{L}, \p{M}
  kCjkPunct,   // \p{P}, \p{S}
  kCjkOther,   // unassigned
};

class CharClassTable {
 public:
  static const CharClassTable& Get();

  // REQUIRES: byte < 0x80.
  CharClass OfAscii(uint8_t byte) const { return ascii_[byte]; }
  // REQUIRES: code_point <= 0x10FFFF.
  CharClass Of(uint32_t code_point) const { return blocks_[block_of_[code_point >> 7] * 128u + (code_point & 127)]; }

 private:
  CharClassTable();

  std::array<CharClass, 128> ascii_{};
  std::array<uint16_t, (0x110000 >> 7)> block_of_{};
  std::vector<CharClass> blocks_;  // of 128; equal ones are there once
};

}  // namespace deepinfer
