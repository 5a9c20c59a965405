// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 words and Gumbel noise (sampling/noise.h) as inline functions, for loops over many tokens and for kernels.
#pragma once

#include <bit>
#include <cstdint>

#include "core/host_device.h"
#include "numeric/fixed_math.h"

namespace deepinfer::numeric {

// One round key pair and multiplier pair of Philox4x32.
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;
inline constexpr uint64_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr int kPhiloxRounds = 10;

DI_HOST_DEVICE inline void Philox(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = kPhiloxMultiplier0 * c0, p1 = kPhiloxMultiplier1 * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
}

DI_HOST_DEVICE inline float Uniform(uint32_t bits) {
  // Exact in fp64, then rounded once.
  const auto w = static_cast<float>((static_cast<double>(bits) + 0.5) * 0x1p-32);
  return w > 1.0f - 0x1p-24f ? 1.0f - 0x1p-24f : w;
}

DI_HOST_DEVICE inline float GumbelOf(uint32_t bits) { return -FixedLog(-FixedLog1m(Uniform(bits))); }

// At least GumbelOf(bits): -log(-log1p(-w)) <= -log(w), and log2(w) of a float is at least its bits read as a number
// with 23 binary places, less the exponent's bias. The last summand is more than all rounding.
DI_HOST_DEVICE inline float GumbelBound(uint32_t bits) {
  const float log2_w = static_cast<float>(std::bit_cast<int32_t>(Uniform(bits))) * 0x1p-23f - 127.0f;
  return log2_w * -0.693148f + 1e-4f;
}

}  // namespace deepinfer::numeric
