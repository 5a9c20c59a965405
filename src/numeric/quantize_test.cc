// SPDX-License-Identifier: Apache-2.0
// Property: scales are those of the published check values (spec/checkpoint.md 3.3, 3.4), and what comes back from a
// block is, element by element, the nearest representable value under that scale.
#include "numeric/quantize.h"

#include <gtest/gtest.h>

#include <random>

namespace deepinfer::numeric {
namespace {

TEST(Scales, PublishedCheckValues) {
  const auto fp8 = [](float amax) { return Fp8Scale(amax) - 127; };
  EXPECT_EQ(fp8(0), -22);
  EXPECT_EQ(fp8(1e-4f), -22);
  EXPECT_EQ(fp8(0.5f), -9);
  EXPECT_EQ(fp8(1.0f), -8);
  EXPECT_EQ(fp8(447.9f), 0);
  EXPECT_EQ(fp8(448.0f), 0);
  EXPECT_EQ(fp8(448.1f), 1);
  EXPECT_EQ(fp8(1000.0f), 2);
  // 448 * 2^k gives exactly k wherever the 1e-4 floor is out of reach.
  for (int k = -20; k < 60; ++k) EXPECT_EQ(fp8(std::ldexp(448.0f, k)), k) << k;
  const auto index = [](float amax) { return IndexScale(amax) - 127; };
  EXPECT_EQ(index(0), -126);
  EXPECT_EQ(index(0.1f), -5);
  EXPECT_EQ(index(5.9f), 0);
  EXPECT_EQ(index(6.0f), 0);
  EXPECT_EQ(index(6.1f), 1);
  EXPECT_EQ(index(12.0f), 1);
  const auto latent = [](float amax) { return E4m3ToFloat(LatentScale(amax)); };
  EXPECT_EQ(latent(0), 0x1p-9f);
  EXPECT_EQ(latent(0.01f), 0x1p-9f);
  EXPECT_EQ(latent(1.0f), 0.171875f);
  EXPECT_EQ(latent(3.7f), 0.625f);
  EXPECT_EQ(latent(22.6f), 3.75f);
  EXPECT_EQ(latent(1e6f), 448.0f);
}

TEST(RoundTrip, NearestUnderTheScale) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int repeat = 0; repeat < 2000; ++repeat) {
    const float size = std::ldexp(1.0f, repeat % 41 - 20);
    float x[32], y[32];
    for (float& v : x) v = normal(random) * size;
    std::copy(x, x + 32, y);
    RoundTripFp8(y, 32);
    const float s8 = E8m0ToFloat(Fp8Scale(MaxMagnitude(x, 32)));
    for (int i = 0; i < 32; ++i) EXPECT_EQ(y[i], E4m3ToFloat(FloatToE4m3(x[i] / s8)) * s8);
    std::copy(x, x + 32, y);
    RoundTripIndex(y, 32);
    const float s4 = E8m0ToFloat(IndexScale(MaxMagnitude(x, 32)));
    for (int i = 0; i < 32; ++i) {
      // No code of the format lies nearer than the one chosen.
      for (int code = 0; code < 16; ++code) {
        EXPECT_LE(std::fabs(y[i] - x[i]), std::fabs(E2m1ToFloat(static_cast<uint8_t>(code)) * s4 - x[i]));
      }
    }
  }
}

TEST(Latent, PacksTheEvenChannelLow) {
  float x[16] = {6, -1};
  uint8_t codes[8];
  EXPECT_EQ(E4m3ToFloat(QuantizeLatentBlock(x, codes)), 1.0f);
  EXPECT_EQ(codes[0], 0xA7);
}

}  // namespace
}  // namespace deepinfer::numeric
