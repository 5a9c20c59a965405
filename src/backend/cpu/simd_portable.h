// SPDX-License-Identifier: Apache-2.0
// Vec, sixteen floats, in plain C++ for any processor; the compiler finds the vectors. See simd_avx512.h. The one
// difference in results: MulAdd rounds twice, since a fused one would be a library call.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "backend/cpu/code_values.h"
#include "numeric/formats.h"

namespace deepinfer::backend::cpu {
namespace {

#define DI_SIMD inline __attribute__((always_inline))

constexpr const int32_t* kE4m3Columns = nullptr;  // FP8 is read in order

constexpr int kRowTile = 1;
constexpr int kOutTile = 2;
constexpr int kKeyTile = 1;
constexpr int kDirectRows = 1;

struct Vec {
  float v[16];
};

template <typename F>
DI_SIMD Vec Map(const F& f) {
  Vec out;
  for (int i = 0; i < 16; ++i) out.v[i] = f(i);
  return out;
}

DI_SIMD Vec Set(float x) {
  return Map([&](int) { return x; });
}
DI_SIMD Vec Load(const float* p) {
  Vec out;
  std::memcpy(out.v, p, sizeof out.v);
  return out;
}
DI_SIMD void Store(float* p, const Vec& a) { std::memcpy(p, a.v, sizeof a.v); }
DI_SIMD int64_t ClampLanes(int64_t n) { return n > 16 ? 16 : n < 0 ? 0 : n; }
DI_SIMD Vec LoadPart(const float* p, int64_t n) {
  Vec out = {};
  for (int64_t i = 0; i < ClampLanes(n); ++i) out.v[i] = p[i];
  return out;
}
DI_SIMD void StorePart(float* p, const Vec& a, int64_t n) {
  for (int64_t i = 0; i < ClampLanes(n); ++i) p[i] = a.v[i];
}
DI_SIMD Vec BlendFirst(const Vec& a, const Vec& b, int64_t n) {
  return Map([&](int i) { return i < n ? a.v[i] : b.v[i]; });
}

DI_SIMD Vec operator+(const Vec& a, const Vec& b) {
  return Map([&](int i) { return a.v[i] + b.v[i]; });
}
DI_SIMD Vec operator-(const Vec& a, const Vec& b) {
  return Map([&](int i) { return a.v[i] - b.v[i]; });
}
DI_SIMD Vec operator*(const Vec& a, const Vec& b) {
  return Map([&](int i) { return a.v[i] * b.v[i]; });
}
DI_SIMD Vec operator/(const Vec& a, const Vec& b) {
  return Map([&](int i) { return a.v[i] / b.v[i]; });
}
DI_SIMD Vec MulAdd(const Vec& a, const Vec& b, const Vec& c) {
  return Map([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
DI_SIMD Vec NegMulAdd(const Vec& a, const Vec& b, const Vec& c) {
  return Map([&](int i) { return c.v[i] - a.v[i] * b.v[i]; });
}
DI_SIMD Vec Max(const Vec& a, const Vec& b) {
  return Map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
DI_SIMD Vec Min(const Vec& a, const Vec& b) {
  return Map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
DI_SIMD bool AnyNotAtMost(const Vec& a, const Vec& b) {
  int any = 0;
  for (int i = 0; i < 16; ++i) any |= !(a.v[i] <= b.v[i]);
  return any != 0;
}
DI_SIMD Vec Sqrt(const Vec& a) {
  return Map([&](int i) { return std::sqrt(a.v[i]); });
}
DI_SIMD Vec Abs(const Vec& a) {
  return Map([&](int i) { return std::fabs(a.v[i]); });
}
// To the nearest integer, ties to even: the last place of 1.5 * 2^23 is 1.
DI_SIMD Vec Round(const Vec& a) {
  return Map([&](int i) { return (a.v[i] + 0x1.8p23f) - 0x1.8p23f; });
}
DI_SIMD float PowerOfTwo(int32_t n) {
  const int32_t bits = (n + 127) << 23;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}
// In two steps of half the exponent each, so that results below the normal range are rounded once.
DI_SIMD Vec ScaleByPowerOfTwo(const Vec& a, const Vec& n) {
  return Map([&](int i) {
    // A NaN has no exponent; it comes through a.
    const int32_t whole = n.v[i] == n.v[i] ? static_cast<int32_t>(n.v[i]) : 0;
    return a.v[i] * PowerOfTwo(whole >> 1) * PowerOfTwo(whole - (whole >> 1));
  });
}

DI_SIMD float ReduceAdd(const Vec& a) {
  float s[16];
  std::memcpy(s, a.v, sizeof s);
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) s[i] += s[i + step];
  }
  return s[0];
}
DI_SIMD float ReduceMax(const Vec& a) {
  float top = a.v[0];
  for (int i = 1; i < 16; ++i) top = a.v[i] > top ? a.v[i] : top;
  return top;
}
DI_SIMD void ReduceTile(const Vec* a, float* out, int64_t n) {
  for (int64_t i = 0; i < kOutTile; ++i) {
    if (i < n) out[i] = ReduceAdd(a[i]);
  }
}

DI_SIMD Vec SumOfRuns(const Vec& a) {
  return Map([&](int i) {
    const float* run = a.v + i / 4 * 4;
    return (run[0] + run[2]) + (run[1] + run[3]);
  });
}
DI_SIMD Vec MaxOfRuns(const Vec& a) {
  return Map([&](int i) {
    const float* run = a.v + i / 4 * 4;
    const float x = run[0] > run[2] ? run[0] : run[2], y = run[1] > run[3] ? run[1] : run[3];
    return x > y ? x : y;
  });
}
DI_SIMD Vec SumAcrossRuns(const Vec& a) {
  return Map([&](int i) { return (a.v[i % 4] + a.v[i % 4 + 8]) + (a.v[i % 4 + 4] + a.v[i % 4 + 12]); });
}

DI_SIMD Vec RotatePairs(const Vec& x, const Vec& t) {
  Vec out;
  for (int i = 0; i < 16; i += 2) {
    out.v[i] = x.v[i] * t.v[i] - x.v[i + 1] * t.v[i + 1];
    out.v[i + 1] = x.v[i + 1] * t.v[i] + x.v[i] * t.v[i + 1];
  }
  return out;
}
DI_SIMD Vec RotatePairsBack(const Vec& x, const Vec& t) {
  Vec out;
  for (int i = 0; i < 16; i += 2) {
    out.v[i] = x.v[i] * t.v[i] + x.v[i + 1] * t.v[i + 1];
    out.v[i + 1] = x.v[i + 1] * t.v[i] - x.v[i] * t.v[i + 1];
  }
  return out;
}

DI_SIMD Vec LoadBf16(const uint8_t* p) {
  uint16_t codes[16];
  std::memcpy(codes, p, sizeof codes);
  return Map([&](int i) { return numeric::Bf16ToFloat(codes[i]); });
}

DI_SIMD void LoadBf16Split(const uint8_t* p, Vec* even, Vec* odd) {
  uint16_t codes[32];
  std::memcpy(codes, p, sizeof codes);
  for (int i = 0; i < 16; ++i) {
    even->v[i] = numeric::Bf16ToFloat(codes[2 * i]);
    odd->v[i] = numeric::Bf16ToFloat(codes[2 * i + 1]);
  }
}

// Times 2^-8, as the half-precision route of the other variants gives them.
struct ScaledE4m3Table {
  float value[256];
  constexpr ScaledE4m3Table() : value() {
    for (int i = 0; i < 256; ++i) value[i] = E4m3Value(i) * 0x1p-8f;
  }
};
constexpr ScaledE4m3Table kScaledE4m3;
DI_SIMD Vec LoadE4m3(const uint8_t* p) {
  return Map([&](int i) { return kScaledE4m3.value[p[i]]; });
}

struct Fp4Table {
  float v[16];
};
DI_SIMD Fp4Table ScaledFp4Table(float scale) {
  Fp4Table out;
  for (int i = 0; i < 16; ++i) out.v[i] = numeric::kE2m1Values[i] * scale;
  return out;
}
DI_SIMD void LoadFp4Split(const uint8_t* p, const Fp4Table& table, Vec* even, Vec* odd) {
  for (int i = 0; i < 16; ++i) {
    even->v[i] = table.v[p[i] & 0xF];
    odd->v[i] = table.v[p[i] >> 4];
  }
}
DI_SIMD Vec LoadFp4(const uint8_t* p, const Fp4Table& table) {
  return Map([&](int i) { return table.v[p[i / 2] >> (4 * (i & 1)) & 0xF]; });
}
DI_SIMD Vec Gather32(const Vec& a, const Vec& b, const int32_t columns[16]) {
  return Map([&](int i) { return columns[i] < 16 ? a.v[columns[i]] : b.v[columns[i] - 16]; });
}
DI_SIMD Vec RoundToBf16(const Vec& a) {
  return Map([&](int i) { return numeric::Bf16ToFloat(numeric::FloatToBf16(a.v[i])); });
}

}  // namespace
}  // namespace deepinfer::backend::cpu
