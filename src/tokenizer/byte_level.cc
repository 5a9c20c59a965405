// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_level.h"

#include <array>

#include "core/utf8.h"

namespace deepinfer {
namespace {

constexpr uint32_t kCharsEnd = 0x100 + 68;

constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Maps {
  std::array<uint16_t, 256> to_char{};
  std::array<int16_t, kCharsEnd> to_byte{};
};

constexpr Maps MakeMaps() {
  Maps maps;
  maps.to_byte.fill(-1);
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t character = StandsForItself(byte) ? byte : next++;
    maps.to_char[byte] = static_cast<uint16_t>(character);
    maps.to_byte[character] = static_cast<int16_t>(byte);
  }
  return maps;
}

constexpr Maps kMaps = MakeMaps();

}  // namespace

uint32_t ByteLevelChar(uint8_t byte) { return kMaps.to_char[byte]; }

std::optional<std::string> ByteLevelBytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  while (!token.empty()) {
    const Utf8Char c = DecodeUtf8(token);
    if (!c.valid || c.code_point >= kCharsEnd || kMaps.to_byte[c.code_point] < 0) return std::nullopt;
    bytes += static_cast<char>(kMaps.to_byte[c.code_point]);
    token.remove_prefix(c.size);
  }
  return bytes;
}

}  // namespace deepinfer
