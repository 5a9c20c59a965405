// SPDX-License-Identifier: Apache-2.0
// exp, softplus and sigmoid on Vec: fixed sequences, so every kernel of a variant gives the same bits. Errors against
// float64 over their whole range are held by math_test.cc. Included after one of simd_*.h.
#pragma once

namespace deepinfer::backend::cpu {
namespace {

// e^x within 1.1 units in the last place; 0 below -104, inf above 88.72, NaN for NaN.
DI_SIMD Vec Exp(Vec x) {
  x = Min(Set(129.0f * 0.6931472f), Max(Set(-105.0f), x));
  const Vec n = Round(x * Set(1.44269504f));
  // ln 2 in two parts; the first has 15 bits, so n times it is exact.
  const Vec r = NegMulAdd(n, Set(-2.12194440e-4f), NegMulAdd(n, Set(0.693359375f), x));
  Vec p = Set(1.9875691500e-4f);
  p = MulAdd(p, r, Set(1.3981999507e-3f));
  p = MulAdd(p, r, Set(8.3334519073e-3f));
  p = MulAdd(p, r, Set(4.1665795894e-2f));
  p = MulAdd(p, r, Set(1.6666665459e-1f));
  p = MulAdd(p, r, Set(5.0000001201e-1f));
  p = MulAdd(p, r * r, r) + Set(1.0f);
  return ScaleByPowerOfTwo(p, n);
}

DI_SIMD Vec Sigmoid(Vec x) { return Set(1.0f) / (Set(1.0f) + Exp(Set(0.0f) - x)); }

// log(1 + y) for y in [0, 1]: 2 atanh(y / (2 + y)).
DI_SIMD Vec Log1p(Vec y) {
  const Vec s = y / (Set(2.0f) + y);
  const Vec z = s * s;
  Vec p = Set(1.0f / 17);
  p = MulAdd(p, z, Set(1.0f / 15));
  p = MulAdd(p, z, Set(1.0f / 13));
  p = MulAdd(p, z, Set(1.0f / 11));
  p = MulAdd(p, z, Set(1.0f / 9));
  p = MulAdd(p, z, Set(1.0f / 7));
  p = MulAdd(p, z, Set(1.0f / 5));
  p = MulAdd(p, z, Set(1.0f / 3));
  const Vec twice = s + s;
  return MulAdd(twice * z, p, twice);
}

DI_SIMD Vec Softplus(Vec x) { return Max(Set(0.0f), x) + Log1p(Exp(Set(0.0f) - Abs(x))); }

}  // namespace
}  // namespace deepinfer::backend::cpu
