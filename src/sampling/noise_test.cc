// SPDX-License-Identifier: Apache-2.0
// Property: noise is the stated function of (seed, position, choice, stream, token), finite for every word, close to the
// true logarithms, and never above its cheap bound.
#include "sampling/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "sampling/math.h"

namespace deepinfer::sampling {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

double Ulps(float actual, double expected) {
  const float nearest = static_cast<float>(expected);
  const double ulp = std::nextafter(std::fabs(nearest), INFINITY) - std::fabs(nearest);
  return std::fabs(actual - expected) / ulp;
}

TEST(Math, WithinTwoUlps) {
  double worst_log = 0, worst_log1m = 0, worst_exp = 0;
  for (uint32_t i = 0; i < 2'000'000; ++i) {
    const float x = std::bit_cast<float>(0x2F000000u + i * 600u);  // about 1e-10 to 60
    if (std::fabs(x - 1) > 1e-6f) worst_log = std::max(worst_log, Ulps(FixedLog(x), std::log(double{x})));
    const float w = UniformFromBits(i * 2147u);
    worst_log1m = std::max(worst_log1m, Ulps(FixedLog1m(w), std::log1p(-double{w})));
    const float y = -87.0f * static_cast<float>(i) / 2e6f;
    worst_exp = std::max(worst_exp, Ulps(FixedExp(y), std::exp(double{y})));
  }
  EXPECT_LE(worst_log, 2.0);
  EXPECT_LE(worst_log1m, 3.0);
  EXPECT_LE(worst_exp, 2.0);
  EXPECT_EQ(FixedExp(0), 1.0f);
  EXPECT_EQ(FixedExp(-100), 0.0f);
  EXPECT_EQ(FixedExp(-INFINITY), 0.0f);
}

// The golden table: whatever computes noise (other processors, other devices) must give these bits. Their values are
// checked against fp64 logarithms beside it.
TEST(Gumbel, GoldenTable) {
  const std::pair<uint32_t, uint32_t> table[] = {
      {0x00000000u, 0x41B6FDA9u},
      {0x00000001u, 0x41AE33B3u},
      {0x00000002u, 0x41AA1D88u},
      {0x00003039u, 0x414C2793u},
      {0x00FFFFFFu, 0x40B16211u},
      {0x01000001u, 0x40B16211u},
      {0x0BADF00Du, 0x40441A0Cu},
      {0x13579BDFu, 0x4022CEA7u},
      {0x3FFFFFFFu, 0x3F9F79A2u},
      {0x40000000u, 0x3F9F79A2u},
      {0x7FFFFFFFu, 0x3EBBA795u},
      {0x80000000u, 0x3EBBA795u},
      {0x80000001u, 0x3EBBA795u},
      {0xA1B2C3D4u, 0x3AAD5B56u},
      {0xA1D2F2E4u, 0xB74DFFADu},
      {0xDEADBEEFu, 0xBF36631Eu},
      {0xF0000000u, 0xBF828833u},
      {0xFFFF0000u, 0xC019FD25u},
      {0xFFFFFF00u, 0xC033F049u},
      {0xFFFFFFFEu, 0xC033F049u},
      {0xFFFFFFFFu, 0xC033F049u},
  };
  for (const auto& [bits, expected] : table) {
    const float noise = GumbelFromBits(bits);
    EXPECT_EQ(std::bit_cast<uint32_t>(noise), expected) << bits;
    EXPECT_NEAR(noise, -std::log(-std::log1p(-double{UniformFromBits(bits)})), 2e-6) << bits;
  }
}

// Exhaustive: words from 2^k to 2^(k+1) give numbers w with a spacing of 2^(k-23) words, so that steps of 2^(k-24) meet
// every w that any of the 2^32 words gives.
TEST(Gumbel, EveryWordIsFiniteAndTheFunctionFalls) {
  float previous = INFINITY;
  uint64_t step = 1;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += step) {
    if (bits >= (uint64_t{1} << 24)) step = uint64_t{1} << (63 - __builtin_clzll(bits) - 24);
    const float noise = GumbelFromBits(static_cast<uint32_t>(bits));
    ASSERT_TRUE(std::isfinite(noise)) << bits;
    ASSERT_LE(noise, previous + 4e-6f) << bits;
    previous = noise;
  }
  EXPECT_TRUE(std::isfinite(GumbelFromBits(0xFFFFFFFF)));
}

TEST(Gumbel, TheBoundHolds) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 1 + bits / 4096) {  // every small word, then ever fewer
    ASSERT_LE(GumbelFromBits(static_cast<uint32_t>(bits)), GumbelBoundFromBits(static_cast<uint32_t>(bits))) << bits;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 1000000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    ASSERT_LE(GumbelFromBits(bits), GumbelBoundFromBits(bits)) << bits;
    if (bits < 1u << 30) {
      ASSERT_LE(GumbelBoundFromBits(bits), GumbelFromBits(bits) + 0.21f) << bits;
    }
  }
  ASSERT_LE(GumbelFromBits(~0u), GumbelBoundFromBits(~0u));
  ASSERT_LE(GumbelFromBits(0), kGumbelMax);
}

TEST(Gumbel, EveryPartOfTheKeyCounts) {
  const NoiseKey base{.seed = 5, .position = 9};
  const auto differs = [&](const NoiseKey& other) { return Gumbel(base, 12) != Gumbel(other, 12); };
  EXPECT_TRUE(differs({.seed = 6, .position = 9}));
  EXPECT_TRUE(differs({.seed = 5 | uint64_t{1} << 40, .position = 9}));
  EXPECT_TRUE(differs({.seed = 5, .position = 10}));
  EXPECT_TRUE(differs({.seed = 5, .position = 9, .choice = 1}));
  EXPECT_TRUE(differs({.seed = 5, .position = 9, .stream = NoiseStream::kDraft}));
  EXPECT_NE(Gumbel(base, 12), Gumbel(base, 13));
}

}  // namespace
}  // namespace deepinfer::sampling
