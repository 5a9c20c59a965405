// SPDX-License-Identifier: Apache-2.0
// UTF-8 as RFC 3629 and Unicode section 3.9 define it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

struct Utf8Char {
  uint32_t code_point = 0;
  // Bytes that it takes; for an invalid sequence its maximal subpart, which is what one U+FFFD stands for.
  size_t size = 0;
  bool valid = false;
  // Invalid only because the text ends too early: more bytes could complete it.
  bool truncated = false;
};

// The first character of `text`. REQUIRES: text is not empty.
Utf8Char DecodeUtf8(std::string_view text);

// REQUIRES: code_point <= 0x10FFFF and no surrogate.
void AppendUtf8(uint32_t code_point, std::string* out);

// Offset of the first byte that is not valid UTF-8, or npos.
size_t FindInvalidUtf8(std::string_view text);

}  // namespace deepinfer
