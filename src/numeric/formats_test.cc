// SPDX-License-Identifier: Apache-2.0
// Property: every code of every format decodes to the value of its definition, encodes back to itself, and every float
// (all of bf16's neighbourhood, all boundaries) goes to the nearest code, ties to even.
#include "numeric/formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace deepinfer::numeric {
namespace {

// value = (-1)^s * 2^(e-7) * (1 + m/8), or 2^-6 * m/8 for e = 0.
double E4m3Definition(int code) {
  const int e = code >> 3 & 15, m = code & 7;
  const double magnitude = e == 0 ? std::ldexp(m / 8.0, -6) : std::ldexp(1 + m / 8.0, e - 7);
  return code & 0x80 ? -magnitude : magnitude;
}

TEST(E4m3, EveryCode) {
  for (int code = 0; code < 256; ++code) {
    const float value = E4m3ToFloat(static_cast<uint8_t>(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    EXPECT_EQ(value, E4m3Definition(code));
    EXPECT_EQ(std::signbit(value), (code & 0x80) != 0);
    EXPECT_EQ(FloatToE4m3(value), code);
  }
  EXPECT_EQ(FloatToE4m3(1e9f), 0x7E);
  EXPECT_EQ(FloatToE4m3(-INFINITY), 0xFE);
  EXPECT_EQ(FloatToE4m3(NAN) & 0x7F, 0x7F);
}

TEST(E4m3, RoundsToNearestEven) {
  for (int code = 0; code < 0x7E; ++code) {
    const double low = E4m3Definition(code), high = E4m3Definition(code + 1);
    const float middle = static_cast<float>((low + high) / 2);
    EXPECT_EQ(FloatToE4m3(middle), code % 2 == 0 ? code : code + 1) << code;
    EXPECT_EQ(FloatToE4m3(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(FloatToE4m3(std::nextafter(middle, 1e9f)), code + 1);
    EXPECT_EQ(FloatToE4m3(-std::nextafter(middle, 1e9f)), (code + 1) | 0x80);
  }
}

TEST(E2m1, EveryCodeAndBoundary) {
  for (int code = 0; code < 16; ++code) EXPECT_EQ(FloatToE2m1(E2m1ToFloat(static_cast<uint8_t>(code))), code);
  for (int code = 0; code < 7; ++code) {
    const float middle = (kE2m1Values[code] + kE2m1Values[code + 1]) / 2;
    EXPECT_EQ(FloatToE2m1(middle), code % 2 == 0 ? code : code + 1) << code;
    EXPECT_EQ(FloatToE2m1(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(FloatToE2m1(std::nextafter(middle, 9.0f)), code + 1);
    EXPECT_EQ(FloatToE2m1(-std::nextafter(middle, 9.0f)), (code + 1) | 8);
  }
  EXPECT_EQ(FloatToE2m1(100.0f), 7);
  EXPECT_EQ(FloatToE2m1(-0.0f), 8);
}

TEST(E8m0, EveryCode) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(static_cast<double>(E8m0ToFloat(static_cast<uint8_t>(code))), std::ldexp(1.0, code - 127));
  }
  EXPECT_TRUE(std::isnan(E8m0ToFloat(255)));
}

TEST(Bf16, EveryCodeAndNeighbours) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = Bf16ToFloat(static_cast<uint16_t>(code));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(value))));
      continue;
    }
    ASSERT_EQ(FloatToBf16(value), code);
    if (std::isinf(value)) continue;
    const uint32_t bits = code << 16;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(bits + 0x7FFF)), code);
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(bits + 0x8000)), code + (code & 1));
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(bits + 0x8001)), code + 1);
  }
}

}  // namespace
}  // namespace deepinfer::numeric
