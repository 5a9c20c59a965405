// SPDX-License-Identifier: Apache-2.0
// Vec, sixteen floats, over AVX2 with FMA and F16C: two registers. See simd_avx512.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace deepinfer::backend::cpu {
namespace {

#define DI_SIMD inline __attribute__((always_inline))

constexpr const int32_t* kE4m3Columns = nullptr;  // FP8 is read in order

constexpr int kRowTile = 2;
constexpr int kOutTile = 2;
constexpr int kKeyTile = 1;
constexpr int kDirectRows = 2;

struct Vec {
  __m256 lo, hi;
};

DI_SIMD Vec Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
DI_SIMD Vec Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
DI_SIMD void Store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
DI_SIMD __m256i FirstLanes(int64_t n) {
  const int count = n >= 8 ? 8 : n <= 0 ? 0 : static_cast<int>(n);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
DI_SIMD Vec LoadPart(const float* p, int64_t n) {
  return {_mm256_maskload_ps(p, FirstLanes(n)), _mm256_maskload_ps(p + 8, FirstLanes(n - 8))};
}
DI_SIMD void StorePart(float* p, Vec a, int64_t n) {
  _mm256_maskstore_ps(p, FirstLanes(n), a.lo);
  _mm256_maskstore_ps(p + 8, FirstLanes(n - 8), a.hi);
}
DI_SIMD Vec BlendFirst(Vec a, Vec b, int64_t n) {
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(FirstLanes(n))),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(FirstLanes(n - 8)))};
}

DI_SIMD Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
DI_SIMD Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
DI_SIMD Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
DI_SIMD Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
DI_SIMD Vec MulAdd(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
DI_SIMD Vec NegMulAdd(Vec a, Vec b, Vec c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
DI_SIMD Vec Max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
DI_SIMD Vec Min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
DI_SIMD bool AnyNotAtMost(Vec a, Vec b) {
  const __m256 any = _mm256_or_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_NLE_UQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_NLE_UQ));
  return _mm256_movemask_ps(any) != 0;
}
DI_SIMD Vec Sqrt(Vec a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
DI_SIMD Vec Abs(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
DI_SIMD Vec Round(Vec a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
}
DI_SIMD __m256 PowerOfTwo(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
// In two steps of half the exponent each, so that results below the normal range are rounded once.
DI_SIMD __m256 ScaleHalf(__m256 a, __m256 n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  return _mm256_mul_ps(_mm256_mul_ps(a, PowerOfTwo(half)), PowerOfTwo(_mm256_sub_epi32(whole, half)));
}
DI_SIMD Vec ScaleByPowerOfTwo(Vec a, Vec n) { return {ScaleHalf(a.lo, n.lo), ScaleHalf(a.hi, n.hi)}; }

DI_SIMD __m128 JoinToFour(Vec a) {
  const __m256 half = _mm256_add_ps(a.lo, a.hi);
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
DI_SIMD float ReduceAdd(Vec a) {
  const __m128 four = JoinToFour(a);
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
DI_SIMD float ReduceMax(Vec a) {
  const __m256 half = _mm256_max_ps(a.lo, a.hi);
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}
DI_SIMD void ReduceTile(const Vec* a, float* out, int64_t n) {
  for (int64_t i = 0; i < kOutTile; ++i) {
    if (i < n) out[i] = ReduceAdd(a[i]);
  }
}

DI_SIMD __m256 SumOfHalfRuns(__m256 a) {
  const __m256 two = _mm256_add_ps(a, _mm256_permute_ps(a, 0x4E));
  return _mm256_add_ps(two, _mm256_permute_ps(two, 0xB1));
}
DI_SIMD __m256 MaxOfHalfRuns(__m256 a) {
  const __m256 two = _mm256_max_ps(a, _mm256_permute_ps(a, 0x4E));
  return _mm256_max_ps(two, _mm256_permute_ps(two, 0xB1));
}
DI_SIMD Vec SumOfRuns(Vec a) { return {SumOfHalfRuns(a.lo), SumOfHalfRuns(a.hi)}; }
DI_SIMD Vec MaxOfRuns(Vec a) { return {MaxOfHalfRuns(a.lo), MaxOfHalfRuns(a.hi)}; }
DI_SIMD Vec SumAcrossRuns(Vec a) {
  const __m256 two = _mm256_add_ps(a.lo, a.hi);  // runs 0 + 2, 1 + 3
  const __m256 sum = _mm256_add_ps(two, _mm256_permute2f128_ps(two, two, 1));
  return {sum, sum};
}

DI_SIMD __m256 SwapPairs(__m256 a) { return _mm256_permute_ps(a, 0xB1); }
DI_SIMD __m256 RotateHalf(__m256 x, __m256 t) {
  return _mm256_fmaddsub_ps(x, _mm256_moveldup_ps(t), _mm256_mul_ps(SwapPairs(x), _mm256_movehdup_ps(t)));
}
DI_SIMD __m256 RotateHalfBack(__m256 x, __m256 t) {
  return _mm256_fmsubadd_ps(x, _mm256_moveldup_ps(t), _mm256_mul_ps(SwapPairs(x), _mm256_movehdup_ps(t)));
}
DI_SIMD Vec RotatePairs(Vec x, Vec t) { return {RotateHalf(x.lo, t.lo), RotateHalf(x.hi, t.hi)}; }
DI_SIMD Vec RotatePairsBack(Vec x, Vec t) { return {RotateHalfBack(x.lo, t.lo), RotateHalfBack(x.hi, t.hi)}; }

DI_SIMD __m128i LoadBytes16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

DI_SIMD Vec LoadBf16(const uint8_t* p) {
  const __m256i lo = _mm256_cvtepu16_epi32(LoadBytes16(p)), hi = _mm256_cvtepu16_epi32(LoadBytes16(p + 16));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}

DI_SIMD void SplitWords(__m256i words, __m256* even, __m256* odd) {
  *even = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  *odd = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xFFFF0000))));
}
DI_SIMD void LoadBf16Split(const uint8_t* p, Vec* even, Vec* odd) {
  SplitWords(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), &even->lo, &odd->lo);
  SplitWords(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32)), &even->hi, &odd->hi);
}

DI_SIMD Vec LoadE4m3(const uint8_t* p) {
  const __m256i codes = _mm256_cvtepi8_epi16(LoadBytes16(p));
  __m256i half = _mm256_and_si256(_mm256_slli_epi16(codes, 7), _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
  const __m256i nan = _mm256_cmpeq_epi16(_mm256_slli_epi16(half, 1), _mm256_set1_epi16(0x7F00));
  half = _mm256_blendv_epi8(half, _mm256_set1_epi16(0x7E00), nan);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)), _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
}

// The eight magnitudes; the sign is put on by hand.
struct Fp4Table {
  __m256 v;
};
DI_SIMD Fp4Table ScaledFp4Table(float scale) {
  return {_mm256_mul_ps(_mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f), _mm256_set1_ps(scale))};
}
// codes: four bits in each of eight integers; bits above them are ignored.
DI_SIMD __m256 LookUpFp4(__m256i codes, Fp4Table table) {
  const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(codes, 28), _mm256_set1_epi32(static_cast<int>(0x80000000)));
  return _mm256_xor_ps(_mm256_permutevar8x32_ps(table.v, codes), _mm256_castsi256_ps(sign));
}
DI_SIMD void LoadFp4Split(const uint8_t* p, Fp4Table table, Vec* even, Vec* odd) {
  const __m128i bytes = LoadBytes16(p);
  const __m256i lo = _mm256_cvtepu8_epi32(bytes), hi = _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8));
  *even = {LookUpFp4(lo, table), LookUpFp4(hi, table)};
  *odd = {LookUpFp4(_mm256_srli_epi32(lo, 4), table), LookUpFp4(_mm256_srli_epi32(hi, 4), table)};
}
DI_SIMD Vec LoadFp4(const uint8_t* p, Fp4Table table) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  __m256i lo = _mm256_cvtepu8_epi64(bytes), hi = _mm256_cvtepu8_epi64(_mm_srli_si128(bytes, 4));
  lo = _mm256_or_si256(lo, _mm256_slli_epi64(lo, 28));
  hi = _mm256_or_si256(hi, _mm256_slli_epi64(hi, 28));
  return {LookUpFp4(lo, table), LookUpFp4(hi, table)};
}

DI_SIMD Vec Gather32(Vec a, Vec b, const int32_t columns[16]) {
  alignas(32) float from[32], to[16];
  Store(from, a);
  Store(from + 16, b);
  for (int i = 0; i < 16; ++i) to[i] = from[columns[i]];
  return Load(to);
}

DI_SIMD __m256 RoundHalfToBf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i rounded = _mm256_and_si256(sum, _mm256_set1_epi32(static_cast<int>(0xFFFF0000)));
  return _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_set1_ps(__builtin_nanf("")),
                          _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
DI_SIMD Vec RoundToBf16(Vec a) { return {RoundHalfToBf16(a.lo), RoundHalfToBf16(a.hi)}; }

}  // namespace
}  // namespace deepinfer::backend::cpu
