// SPDX-License-Identifier: Apache-2.0
// log, log1p and exp as fixed sequences of fp32 additions, multiplications and divisions, without fused operations and
// without branches: the same bits on every processor, scalar or vectorised (design.md 6). Within 2 ulp of the true value
// on the ranges stated. Polynomials: minimax on [sqrt(1/2) - 1, sqrt(2) - 1] for log, on [-ln2/2, ln2/2] for exp.
#pragma once

#include <bit>
#include <cstdint>

#include "core/host_device.h"

namespace deepinfer::numeric {

// Natural logarithm of a positive normal float.
DI_HOST_DEVICE inline float FixedLog(float x) {
  // x = 2^e * m with m in [sqrt(1/2), sqrt(2)): adding the distance from sqrt(1/2) to 1 moves the exponent's border.
  const uint32_t bits = std::bit_cast<uint32_t>(x) + (0x3F800000u - 0x3F3504F3u);
  const float e = static_cast<float>(static_cast<int32_t>(bits >> 23) - 127);
  const float m = std::bit_cast<float>((bits & 0x007FFFFFu) + 0x3F3504F3u);
  const float f = m - 1.0f;
  const float f2 = f * f;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  // ln2 in two parts, the first exact in few bits, so that e * high is exact.
  float y = f * f2 * p;
  y = y + e * -2.12194440e-4f;
  y = y - 0.5f * f2;
  return (f + y) + e * 0.693359375f;
}

// log(1 - w) for w in (0, 1 - 2^-24], w normal. u = 1 - w is rounded; the quotient w / (1 - u) undoes what that costs.
DI_HOST_DEVICE inline float FixedLog1m(float w) {
  const float u = 1.0f - w;
  const float d = 1.0f - u;  // exact
  const float safe = d == 0.0f ? 1.0f : d;
  const float y = FixedLog(u) * (w / safe);
  return d == 0.0f ? -w : y;
}

// e^x for x <= 0; 0 below -87.
DI_HOST_DEVICE inline float FixedExp(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  // n = round(x / ln2), by the rounding of a float near 1.5 * 2^23.
  const float shifted = clamped * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  float r = clamped - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float y = p * (r * r) + r + 1.0f;
  const float scale = std::bit_cast<float>(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
  return x < -87.0f ? 0.0f : y * scale;
}

}  // namespace deepinfer::numeric
