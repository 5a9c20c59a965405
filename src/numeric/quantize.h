// SPDX-License-Identifier: Apache-2.0
// Block quantisation as the model defines it (spec/model.md 7, spec/checkpoint.md 3.3 and 3.4): one function chooses the
// scale of a block from its largest magnitude, the element functions are those of formats.h. These round trips are part
// of the forward pass: every backend must give the same codes for the same values.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "numeric/formats.h"

namespace deepinfer::numeric {

inline constexpr int kFp8Block = 32;      // channels per scale: activations, window KV
inline constexpr int kLatentBlock = 16;   // channels per scale: compressed KV
inline constexpr int kIndexBlock = 32;    // channels per scale: index keys and queries

// The e8m0 code of 2^ceil(log2(x)), read off the bits of a positive normal float.
DI_HOST_DEVICE inline uint8_t CeilPowerOfTwo(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7FFFFF) != 0));
}

// Scale of an FP8 block: 2^ceil(log2(max(amax, 1e-4) / 448)), on the product rounded to fp32.
DI_HOST_DEVICE inline uint8_t Fp8Scale(float amax) { return CeilPowerOfTwo(std::max(amax, 1e-4f) * (1.0f / 448.0f)); }

// Scale of an index block: 2^ceil(log2(max(amax, 6 * 2^-126) / 6)), likewise.
DI_HOST_DEVICE inline uint8_t IndexScale(float amax) { return CeilPowerOfTwo(std::max(amax, 6.0f * 0x1p-126f) * (1.0f / 6.0f)); }

// Scale of a compressed-KV block as an e4m3 code: max(amax, 6 * 2^-9) / 6, at most 448. It can lie below amax / 6, so
// the clamp of the elements is live.
DI_HOST_DEVICE inline uint8_t LatentScale(float amax) { return FloatToE4m3(std::max(amax, 6.0f * 0x1p-9f) / 6.0f); }

inline float MaxMagnitude(const float* x, int n) {
  float amax = 0.0f;
  for (int i = 0; i < n; ++i) amax = std::max(amax, std::fabs(x[i]));
  return amax;
}

// codes[0..31] and the returned e8m0 scale of one FP8 block.
inline uint8_t QuantizeFp8Block(const float* x, uint8_t* codes) {
  const uint8_t scale = Fp8Scale(MaxMagnitude(x, kFp8Block));
  const float s = E8m0ToFloat(scale);
  for (int i = 0; i < kFp8Block; ++i) codes[i] = FloatToE4m3(x[i] / s);
  return scale;
}

// codes[0..7] (two values a byte, the even channel in the low nibble) and the e4m3 scale of one compressed-KV block.
inline uint8_t QuantizeLatentBlock(const float* x, uint8_t* codes) {
  const uint8_t scale = LatentScale(MaxMagnitude(x, kLatentBlock));
  const float s = E4m3ToFloat(scale);
  for (int i = 0; i < kLatentBlock / 2; ++i) {
    codes[i] = static_cast<uint8_t>(FloatToE2m1(x[2 * i] / s) | FloatToE2m1(x[2 * i + 1] / s) << 4);
  }
  return scale;
}

// codes[0..15] (two values a byte) and the e8m0 scale of one block of an index key or query.
inline uint8_t QuantizeIndexBlock(const float* x, uint8_t* codes) {
  const uint8_t scale = IndexScale(MaxMagnitude(x, kIndexBlock));
  const float s = E8m0ToFloat(scale);
  for (int i = 0; i < kIndexBlock / 2; ++i) {
    codes[i] = static_cast<uint8_t>(FloatToE2m1(x[2 * i] / s) | FloatToE2m1(x[2 * i + 1] / s) << 4);
  }
  return scale;
}

// In place: the values that survive FP8 in blocks of 32 (n a multiple of 32). Products of code and scale are exact.
inline void RoundTripFp8(float* x, int n) {
  for (int block = 0; block < n; block += kFp8Block) {
    uint8_t codes[kFp8Block];
    const float s = E8m0ToFloat(QuantizeFp8Block(x + block, codes));
    for (int i = 0; i < kFp8Block; ++i) x[block + i] = E4m3ToFloat(codes[i]) * s;
  }
}

// In place: the values that survive the index format (n a multiple of 32).
inline void RoundTripIndex(float* x, int n) {
  for (int block = 0; block < n; block += kIndexBlock) {
    uint8_t codes[kIndexBlock / 2];
    const float s = E8m0ToFloat(QuantizeIndexBlock(x + block, codes));
    for (int i = 0; i < kIndexBlock; ++i) {
      x[block + i] = E2m1ToFloat(static_cast<uint8_t>(codes[i / 2] >> (4 * (i & 1)))) * s;
    }
  }
}

}  // namespace deepinfer::numeric
