// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/utf8_repair.h"

#include <cstdint>
#include <cstring>

namespace deepinfer::recipe {

size_t ValidUtf8Prefix(std::string_view text) {
  size_t i = 0;
  const size_t size = text.size();
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  while (i < size) {
    if (byte(i) < 0x80) {
      uint64_t word = 0;
      if (i + 8 <= size && (std::memcpy(&word, text.data() + i, 8), (word & 0x8080808080808080u) == 0)) {
        i += 8;
      } else {
        ++i;
      }
      continue;
    }
    // Three-byte characters without the two leads that restrict the second byte: most of what is not ASCII.
    const unsigned char lead = byte(i);
    if (lead > 0xE0 && lead < 0xF0 && lead != 0xED && i + 3 <= size) {
      if ((byte(i + 1) & 0xC0) != 0x80 || (byte(i + 2) & 0xC0) != 0x80) return i;
      i += 3;
      continue;
    }
    const Utf8Char c = DecodeUtf8(text.substr(i));
    if (!c.valid) return i;
    i += c.size;
  }
  return i;
}

}  // namespace deepinfer::recipe
