// SPDX-License-Identifier: Apache-2.0
// The small number formats of the checkpoint and of the caches, one value at a time: bf16, FP8 e4m3, FP4 e2m1 and
// the power-of-two scale e8m0. Encoding rounds to nearest even; e4m3 and e2m1 clamp to their range first.
// Pure functions, also the definition that every vectorised kernel is tested against (spec/checkpoint.md 3.1, 3.4).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/host_device.h"

namespace deepinfer::numeric {

DI_HOST_DEVICE inline float Bf16ToFloat(uint16_t code) { return std::bit_cast<float>(static_cast<uint32_t>(code) << 16); }

DI_HOST_DEVICE inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);  // stays a NaN, made quiet
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// e4m3fn: bias 7, largest value 448, no infinity, 0x7F and 0xFF are NaN, subnormals in steps of 2^-9.
inline constexpr float kE4m3Max = 448.0f;

DI_HOST_DEVICE inline float E4m3ToFloat(uint8_t code) {
  const uint32_t magnitude = code & 0x7F;
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
  if (magnitude == 0x7F) return std::numeric_limits<float>::quiet_NaN();
  // Normal: the exponent moves from bias 7 to bias 127. Subnormal: magnitude * 2^-9.
  const float value = magnitude >= 8 ? std::bit_cast<float>((magnitude << 20) + (120u << 23))
                                     : static_cast<float>(magnitude) * 0x1p-9f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

DI_HOST_DEVICE inline uint8_t FloatToE4m3(float value) {
  const uint32_t sign = std::bit_cast<uint32_t>(value) >> 24 & 0x80;
  float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7F);
  if (magnitude > kE4m3Max) magnitude = kE4m3Max;
  if (magnitude < 0x1p-6f) {
    // The last place of a float near 2^14 is 2^-9, so the addition itself rounds to a multiple of the subnormal step.
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(magnitude + 0x1p14f) & 0xF));
  }
  uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  bits += 0x7FFFF + (bits >> 20 & 1);
  return static_cast<uint8_t>(sign | ((bits >> 20) - (120u << 3)));
}

// e2m1: magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign; code 8 is -0.
inline constexpr float kE2m1Max = 6.0f;
inline constexpr float kE2m1Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                          -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

DI_HOST_DEVICE inline float E2m1ToFloat(uint8_t code) {
  const uint32_t magnitude = code & 7;
  const float value = magnitude >= 2 ? std::bit_cast<float>((magnitude << 22) + (126u << 23))
                                     : static_cast<float>(magnitude) * 0.5f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | static_cast<uint32_t>(code & 8) << 28);
}

DI_HOST_DEVICE inline uint8_t FloatToE2m1(float value) {
  const float a = std::fabs(value);
  // Ties go to the code with an even mantissa bit: down at 0.25, 1.25, 2.5 and 5, up at 0.75, 1.75 and 3.5.
  const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>((std::bit_cast<uint32_t>(value) >> 28 & 0x8) | static_cast<uint32_t>(code));
}

// e8m0: 2^(code - 127); 255 is NaN; code 0 is 2^-127, a subnormal float.
DI_HOST_DEVICE inline float E8m0ToFloat(uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}

}  // namespace deepinfer::numeric
