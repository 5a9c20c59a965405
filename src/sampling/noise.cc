// SPDX-License-Identifier: Apache-2.0
#include "sampling/noise.h"

#include <algorithm>

#include "sampling/math.h"

namespace deepinfer::sampling {
namespace {

// One round key pair and multiplier pair of Philox4x32.
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr int kRounds = 10;

inline void Philox(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = kMultiplier0 * c0, p1 = kMultiplier1 * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
}

inline float Uniform(uint32_t bits) {
  // Exact in fp64, then rounded once.
  const auto w = static_cast<float>((static_cast<double>(bits) + 0.5) * 0x1p-32);
  return w > 1.0f - 0x1p-24f ? 1.0f - 0x1p-24f : w;
}

inline float GumbelOf(uint32_t bits) { return -FixedLog(-FixedLog1m(Uniform(bits))); }

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  Philox(c[0], c[1], c[2], c[3], key[0], key[1]);
  return c;
}

float UniformFromBits(uint32_t bits) { return Uniform(bits); }
float GumbelFromBits(uint32_t bits) { return GumbelOf(bits); }

namespace {
std::array<uint32_t, 4> Words(const NoiseKey& key, uint32_t token) {
  return Philox4x32({key.position, token / 4, key.choice, key.stream_word()},
                    {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}
}  // namespace

float Uniform(const NoiseKey& key) { return Uniform(Words(key, 0)[0]); }

float Gumbel(const NoiseKey& key, uint32_t token) { return GumbelOf(Words(key, token)[token % 4]); }

// Plain loops over arrays that the compiler turns into vectors; no operation is fused or reordered, so the bits are
// those of Gumbel on every instruction set.
#if defined(__x86_64__)
__attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#endif
void GumbelAll(const NoiseKey& key, std::span<float> out) {
  constexpr size_t kLanes = 16;
  const auto k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (size_t begin = 0; begin < out.size(); begin += 4 * kLanes) {
    uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    float noise[4 * kLanes];
    for (size_t i = 0; i < kLanes; ++i) {
      c0[i] = key.position;
      c1[i] = static_cast<uint32_t>(begin / 4 + i);
      c2[i] = key.choice;
      c3[i] = key.stream_word();
      Philox(c0[i], c1[i], c2[i], c3[i], k0, k1);
    }
    for (size_t i = 0; i < kLanes; ++i) {
      noise[4 * i] = GumbelOf(c0[i]);
      noise[4 * i + 1] = GumbelOf(c1[i]);
      noise[4 * i + 2] = GumbelOf(c2[i]);
      noise[4 * i + 3] = GumbelOf(c3[i]);
    }
    std::copy_n(noise, std::min(4 * kLanes, out.size() - begin), out.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

}  // namespace deepinfer::sampling
