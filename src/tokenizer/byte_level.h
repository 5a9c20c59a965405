// SPDX-License-Identifier: Apache-2.0
// The GPT-2 spelling of bytes as printable characters, in which byte-level vocabularies are written: printable
// Latin-1 stands for itself, the other 68 bytes for U+0100 and following. Stateless.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

// The character that stands for `byte`.
uint32_t ByteLevelChar(uint8_t byte);

// The bytes that `token` spells; nothing when a character of it stands for no byte or it is no UTF-8.
std::optional<std::string> ByteLevelBytes(std::string_view token);

}  // namespace deepinfer
