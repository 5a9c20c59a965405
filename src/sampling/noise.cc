// SPDX-License-Identifier: Apache-2.0
#include "sampling/noise.h"

#include "sampling/noise-inl.h"

namespace deepinfer::sampling {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  Philox(c[0], c[1], c[2], c[3], key[0], key[1]);
  return c;
}

float UniformFromBits(uint32_t bits) { return Uniform(bits); }
float GumbelBoundFromBits(uint32_t bits) { return GumbelBound(bits); }
float GumbelFromBits(uint32_t bits) { return GumbelOf(bits); }

namespace {
std::array<uint32_t, 4> Words(const NoiseKey& key, uint32_t token) {
  return Philox4x32({key.position, token / 4, key.choice, key.stream_word()},
                    {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}
}  // namespace

float Uniform(const NoiseKey& key) { return Uniform(Words(key, 0)[0]); }

float Gumbel(const NoiseKey& key, uint32_t token) { return GumbelOf(Words(key, token)[token % 4]); }

}  // namespace deepinfer::sampling
