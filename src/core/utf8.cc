// SPDX-License-Identifier: Apache-2.0
#include "core/utf8.h"

#include <cstring>

#include "core/check.h"

namespace deepinfer {

Utf8Char DecodeUtf8(std::string_view text) {
  DI_CHECK(!text.empty());
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {.code_point = lead, .size = 1, .valid = true};
  if (lead < 0xC2 || lead > 0xF4) return {.size = 1};
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t code_point = lead & (0xFF >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if (i >= text.size()) return {.size = i, .truncated = true};
    // The second byte's range excludes overlong forms, surrogates and values above U+10FFFF (Unicode table 3-7).
    unsigned char low = 0x80, high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (byte(i) < low || byte(i) > high) return {.size = i};
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  return {.code_point = code_point, .size = size, .valid = true};
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  const auto put = [&](uint32_t byte) { *out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

size_t FindInvalidUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    uint64_t word = 0;
    if (i + 8 <= text.size() && (std::memcpy(&word, text.data() + i, 8), (word & 0x8080808080808080u) == 0)) {
      i += 8;
      continue;
    }
    const Utf8Char c = DecodeUtf8(text.substr(i));
    if (!c.valid) return i;
    i += c.size;
  }
  return std::string_view::npos;
}

}  // namespace deepinfer
