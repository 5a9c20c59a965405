// SPDX-License-Identifier: Apache-2.0
// Vec, sixteen floats, over AVX-512 (F, BW, VL, DQ, VBMI). The three simd_*.h define the same names with the same results, so
// that the kernels (*-inl.h) are written once; each is included by one source file alone, which is compiled for that
// instruction set. Everything has internal linkage: no code compiled for AVX may be merged into the portable program.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace deepinfer::backend::cpu {
namespace {

#define DI_SIMD inline __attribute__((always_inline))
#define DI_E4M3_PAIRS   // FP8 rows are decoded two at a time
#define DI_FP4_COLUMNS  // FP4 keys are turned to columns before they are decoded

constexpr int kRowTile = 6;     // rows x outputs of a product that are kept in registers
constexpr int kOutTile = 4;
constexpr int kKeyTile = 2;     // runs of sixteen index keys whose scores are summed together
constexpr int kDirectRows = 4;  // up to so many rows are multiplied straight from the packed weights

struct Vec {
  __m512 v;
};

DI_SIMD Vec Set(float x) { return {_mm512_set1_ps(x)}; }
DI_SIMD Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
DI_SIMD void Store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
DI_SIMD __mmask16 FirstLanes(int64_t n) { return static_cast<__mmask16>(n >= 16 ? 0xFFFF : n <= 0 ? 0 : (1u << n) - 1); }
// The first n (0..16) values, zeros behind them; nothing else is touched.
DI_SIMD Vec LoadPart(const float* p, int64_t n) { return {_mm512_maskz_loadu_ps(FirstLanes(n), p)}; }
DI_SIMD void StorePart(float* p, Vec a, int64_t n) { _mm512_mask_storeu_ps(p, FirstLanes(n), a.v); }
// a in the first n lanes, b behind them.
DI_SIMD Vec BlendFirst(Vec a, Vec b, int64_t n) { return {_mm512_mask_mov_ps(b.v, FirstLanes(n), a.v)}; }

DI_SIMD Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
DI_SIMD Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
DI_SIMD Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
DI_SIMD Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
DI_SIMD Vec MulAdd(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }     // a b + c
DI_SIMD Vec NegMulAdd(Vec a, Vec b, Vec c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a b
DI_SIMD Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }  // b where either is a NaN
DI_SIMD Vec Min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
// Whether any lane of a is not <= b; NaNs are not.
DI_SIMD bool AnyNotAtMost(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_NLE_UQ) != 0; }
DI_SIMD Vec Sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
DI_SIMD Vec Abs(Vec a) { return {_mm512_abs_ps(a.v)}; }
DI_SIMD Vec Round(Vec a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// a 2^n for integral n in [-252, 254], rounded once.
DI_SIMD Vec ScaleByPowerOfTwo(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }

// Lanes are joined (l, l + 8), (l, l + 4), (l, l + 2), (l, l + 1): the tree of every sum over a row.
DI_SIMD __m128 JoinToFour(Vec a) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
DI_SIMD float ReduceAdd(Vec a) {
  const __m128 four = JoinToFour(a);
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
DI_SIMD float ReduceMax(Vec a) { return _mm512_reduce_max_ps(a.v); }
// out[i] = ReduceAdd(a[i]) for the first n of kOutTile.
DI_SIMD void ReduceTile(const Vec* a, float* out, int64_t n) {
  // Halves, then quarters, of two rows at a time; after that a run of four lanes is a row.
  const auto halves = [](__m512 x, __m512 y) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xEE));
  };
  const __m512 ab = halves(a[0].v, a[1].v), cd = halves(a[2].v, a[3].v);
  __m512 sum = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
  sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0x4E));
  sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0xB1));
  const __m512 first = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), sum);
  _mm_mask_storeu_ps(out, FirstLanes(n) & 0xF, _mm512_castps512_ps128(first));
}

// Of each run of four lanes, in all its lanes: the sum ((0 + 2) + (1 + 3), which adds in the same pairs from any lane) and
// the maximum. Across the four runs, lane by lane: the sum (0 + 2) + (1 + 3).
DI_SIMD Vec SumOfRuns(Vec a) {
  const __m512 two = _mm512_add_ps(a.v, _mm512_permute_ps(a.v, 0x4E));
  return {_mm512_add_ps(two, _mm512_permute_ps(two, 0xB1))};
}
DI_SIMD Vec MaxOfRuns(Vec a) {
  const __m512 two = _mm512_max_ps(a.v, _mm512_permute_ps(a.v, 0x4E));
  return {_mm512_max_ps(two, _mm512_permute_ps(two, 0xB1))};
}
DI_SIMD Vec SumAcrossRuns(Vec a) {
  const __m512 two = _mm512_add_ps(a.v, _mm512_shuffle_f32x4(a.v, a.v, 0x4E));
  return {_mm512_add_ps(two, _mm512_shuffle_f32x4(two, two, 0xB1))};
}

// (x0, x1) -> (x0 c - x1 s, x1 c + x0 s) for eight pairs; t = c, s per pair.
DI_SIMD Vec RotatePairs(Vec x, Vec t) {
  const __m512 c = _mm512_moveldup_ps(t.v), s = _mm512_movehdup_ps(t.v);
  return {_mm512_fmaddsub_ps(x.v, c, _mm512_mul_ps(_mm512_permute_ps(x.v, 0xB1), s))};
}
// The other way: (x0 c + x1 s, x1 c - x0 s).
DI_SIMD Vec RotatePairsBack(Vec x, Vec t) {
  const __m512 c = _mm512_moveldup_ps(t.v), s = _mm512_movehdup_ps(t.v);
  return {_mm512_fmsubadd_ps(x.v, c, _mm512_mul_ps(_mm512_permute_ps(x.v, 0xB1), s))};
}

DI_SIMD Vec LoadBf16(const uint8_t* p) {
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), 16))};
}
// 32 bf16 values: the even columns and the odd ones, which need nothing but a mask.
DI_SIMD void LoadBf16Split(const uint8_t* p, Vec* even, Vec* odd) {
  const __m512i codes = _mm512_loadu_si512(p);
  even->v = _mm512_castsi512_ps(_mm512_slli_epi32(codes, 16));
  odd->v = _mm512_castsi512_ps(_mm512_and_si512(codes, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
}

// e4m3 codes become bf16, in which they are exact, by two look-ups of a byte each: tables of 128 magnitudes, sign aside.
struct E4m3Tables {
  alignas(64) uint8_t high[128];
  alignas(64) uint8_t low[128];
};
constexpr E4m3Tables MakeE4m3Tables() {
  E4m3Tables t = {};
  for (int code = 0; code < 128; ++code) {
    int bits = 0x7FC0;  // the code of NaN
    if (code >= 8 && code < 127) bits = (code << 4) + (120 << 7);
    if (code == 0) bits = 0;
    // Subnormals, code * 2^-9: normal in bf16.
    if (code == 1) bits = 118 << 7;
    if (code == 2 || code == 3) bits = (119 << 7) + ((code - 2) << 6);
    if (code >= 4 && code < 8) bits = (120 << 7) + ((code - 4) << 5);
    t.high[code] = static_cast<uint8_t>(bits >> 8);
    t.low[code] = static_cast<uint8_t>(bits & 0xFF);
  }
  return t;
}
constexpr E4m3Tables kE4m3Tables = MakeE4m3Tables();

// 32 codes of each of two rows. Lanes 0..7 belong to row 0, lanes 8..15 to row 1; the columns of a row's eight lanes are
// kE4m3Columns[8 i .. 8 i + 7] in even[i], those plus 1 in odd[i].
struct E4m3Pair {
  Vec even[2], odd[2];
};
constexpr int32_t kE4m3Columns[16] = {0, 2, 4, 6, 16, 18, 20, 22, 8, 10, 12, 14, 24, 26, 28, 30};
DI_SIMD E4m3Pair LoadE4m3Pair(const uint8_t* row0, const uint8_t* row1, float scale0, float scale1) {
  const __m512i codes = _mm512_inserti64x4(
      _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row0))),
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row1)), 1);
  const auto table = [](const uint8_t* from) { return _mm512_load_si512(from); };
  const __m512i low = _mm512_permutex2var_epi8(table(kE4m3Tables.low), codes, table(kE4m3Tables.low + 64));
  __m512i high = _mm512_permutex2var_epi8(table(kE4m3Tables.high), codes, table(kE4m3Tables.high + 64));
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  high = _mm512_ternarylogic_epi32(high, codes, sign, 0xF8);  // high | (codes & sign)
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
  const __m512 scale = _mm512_mask_blend_ps(0xFF00, _mm512_set1_ps(scale0), _mm512_set1_ps(scale1));
  E4m3Pair out;
  for (int i = 0; i < 2; ++i) {
    const __m512i words = i == 0 ? _mm512_unpacklo_epi8(low, high) : _mm512_unpackhi_epi8(low, high);
    out.even[i].v = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(words, 16)), scale);
    out.odd[i].v = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(words, upper)), scale);
  }
  return out;
}
// Eight values in both halves.
DI_SIMD Vec LoadHalfTwice(const float* p) { return {_mm512_broadcast_f32x8(_mm256_loadu_ps(p))}; }
// (a of row 0, b of row 0) and (a of row 1, b of row 1) from two Vec whose halves are rows.
DI_SIMD Vec JoinRow0(Vec a, Vec b) { return {_mm512_shuffle_f32x4(a.v, b.v, 0x44)}; }
DI_SIMD Vec JoinRow1(Vec a, Vec b) { return {_mm512_shuffle_f32x4(a.v, b.v, 0xEE)}; }

// Sixteen e4m3 codes times 2^-8, in order: the bits, moved to where a half-precision number has them. Subnormals come out
// right, the conversion knows those of half precision; the code of NaN, which would read 480, is made a NaN.
DI_SIMD Vec LoadE4m3(const uint8_t* p) {
  const __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  __m256i half = _mm256_and_si256(_mm256_slli_epi16(codes, 7), _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
  const __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_slli_epi16(half, 1), _mm256_set1_epi16(0x7F00));
  half = _mm256_mask_mov_epi16(half, nan, _mm256_set1_epi16(0x7E00));
  return {_mm512_cvtph_ps(half)};
}

// The values of the sixteen e2m1 codes times `scale`.
struct Fp4Table {
  __m512 v;
};
DI_SIMD Fp4Table ScaledFp4Table(float scale) {
  const __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f,
                                       -2.0f, -3.0f, -4.0f, -6.0f);
  return {_mm512_mul_ps(values, _mm512_set1_ps(scale))};
}
// Sixteen bytes of e2m1 pairs: the low nibbles (even columns) and the high ones (odd columns).
DI_SIMD void LoadFp4Split(const uint8_t* p, Fp4Table table, Vec* even, Vec* odd) {
  const __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  even->v = _mm512_permutexvar_ps(codes, table.v);  // looks at the low four bits only
  odd->v = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4), table.v);
}
// Eight bytes of e2m1 pairs, in order.
DI_SIMD Vec LoadFp4(const uint8_t* p, Fp4Table table) {
  const __m512i codes = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return {_mm512_permutexvar_ps(_mm512_or_si512(codes, _mm512_slli_epi64(codes, 28)), table.v)};
}
// out[i] = of the 32 values in a and b, the one at columns[i].
DI_SIMD Vec Gather32(Vec a, Vec b, const int32_t columns[16]) {
  return {_mm512_permutex2var_ps(a.v, _mm512_loadu_si512(columns), b.v)};
}

// Sixteen bytes of e2m1 pairs of each of sixteen keys -> columns [32][16], each key times its scale. Bytes are transposed
// first, which takes a quarter of what the decoded values would.
DI_SIMD void LoadFp4Columns(const uint8_t* const keys[16], Vec scale, float* columns) {
  const auto row = [&](int j) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(keys[j])); };
  __m512i four[4];  // four keys each: dword c = byte c of the four
  const __m512i gather = _mm512_setr_epi32(0x30201000, 0x31211101, 0x32221202, 0x33231303, 0x34241404, 0x35251505, 0x36261606,
                                           0x37271707, 0x38281808, 0x39291909, 0x3A2A1A0A, 0x3B2B1B0B, 0x3C2C1C0C, 0x3D2D1D0D,
                                           0x3E2E1E0E, 0x3F2F1F0F);
  for (int i = 0; i < 4; ++i) {
    __m512i rows = _mm512_castsi128_si512(row(4 * i));
    rows = _mm512_inserti32x4(rows, row(4 * i + 1), 1);
    rows = _mm512_inserti32x4(rows, row(4 * i + 2), 2);
    rows = _mm512_inserti32x4(rows, row(4 * i + 3), 3);
    four[i] = _mm512_permutexvar_epi8(gather, rows);
  }
  const __m512i lo01 = _mm512_unpacklo_epi32(four[0], four[1]), hi01 = _mm512_unpackhi_epi32(four[0], four[1]);
  const __m512i lo23 = _mm512_unpacklo_epi32(four[2], four[3]), hi23 = _mm512_unpackhi_epi32(four[2], four[3]);
  // Lane l of bytes[i]: byte 4 l + i of all sixteen keys.
  alignas(64) uint8_t bytes[4][64];
  _mm512_store_si512(bytes[0], _mm512_unpacklo_epi64(lo01, lo23));
  _mm512_store_si512(bytes[1], _mm512_unpackhi_epi64(lo01, lo23));
  _mm512_store_si512(bytes[2], _mm512_unpacklo_epi64(hi01, hi23));
  _mm512_store_si512(bytes[3], _mm512_unpackhi_epi64(hi01, hi23));
  const Fp4Table table = ScaledFp4Table(1.0f);
  for (int c = 0; c < 16; ++c) {
    Vec even, odd;
    LoadFp4Split(bytes[c % 4] + c / 4 * 16, table, &even, &odd);
    Store(columns + c * 32, even * scale);
    Store(columns + c * 32 + 16, odd * scale);
  }
}

// Rounds to bf16, ties to even; NaNs stay NaNs.
DI_SIMD Vec RoundToBf16(Vec a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __m512i rounded = _mm512_and_si512(sum, _mm512_set1_epi32(static_cast<int>(0xFFFF0000)));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  return {_mm512_mask_mov_ps(_mm512_castsi512_ps(rounded), nan, _mm512_set1_ps(__builtin_nanf("")))};
}

}  // namespace
}  // namespace deepinfer::backend::cpu
