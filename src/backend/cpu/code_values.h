// SPDX-License-Identifier: Apache-2.0
// Values of e4m3 and e8m0 codes for tables that are made at compile time. The kernel files are compiled for instruction
// sets that the machine may lack, so nothing of theirs may run before a variant is chosen: no constructor of a table.
#pragma once

#include <cstdint>

namespace deepinfer::backend::cpu {
namespace {

constexpr float E8m0Value(int code) {
  if (code == 255) return __builtin_nanf("");
  return __builtin_bit_cast(float, code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}

constexpr float E4m3Value(int code) {
  const int magnitude = code & 0x7F;
  if (magnitude == 0x7F) return __builtin_nanf("");
  const float value = magnitude < 8 ? static_cast<float>(magnitude) * 0x1p-9f
                                    : __builtin_bit_cast(float, (static_cast<uint32_t>(magnitude) << 20) + (120u << 23));
  return code & 0x80 ? -value : value;
}

}  // namespace
}  // namespace deepinfer::backend::cpu
