// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/json_escape.h"

#include <array>

namespace deepinfer::recipe {
namespace {

// 0: as it is; 'u': \u00XX; else the letter after the backslash.
constexpr std::array<char, 256> MakeEscapes() {
  std::array<char, 256> escapes{};
  for (size_t byte = 0; byte < 0x20; ++byte) escapes[byte] = 'u';
  escapes['\b'] = 'b';
  escapes['\t'] = 't';
  escapes['\n'] = 'n';
  escapes['\f'] = 'f';
  escapes['\r'] = 'r';
  escapes['"'] = '"';
  escapes['\\'] = '\\';
  return escapes;
}
constexpr std::array<char, 256> kEscapes = MakeEscapes();

}  // namespace

void AppendJsonEscaped(std::string_view text, std::string* out) {
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const char escape = kEscapes[byte];
    if (escape == 0) continue;
    out->append(text.substr(begin, i - begin));
    begin = i + 1;
    *out += '\\';
    *out += escape;
    if (escape == 'u') {
      static constexpr std::string_view kHex = "0123456789abcdef";
      *out += "00";
      *out += kHex[byte >> 4];
      *out += kHex[byte & 15];
    }
  }
  out->append(text.substr(begin));
}

}  // namespace deepinfer::recipe
