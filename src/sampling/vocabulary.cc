// SPDX-License-Identifier: Apache-2.0
#include "sampling/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "sampling/noise-inl.h"

// Plain loops over arrays that the compiler turns into vectors; no operation is fused or reordered, so the result is the
// same on every instruction set.
#if defined(__x86_64__)
#define DI_VECTOR_CLONES __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define DI_VECTOR_CLONES
#endif

namespace deepinfer::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kLanes = 16;
constexpr size_t kBlockTokens = 4 * kLanes;
// Tokens whose words are drawn at a time.
constexpr size_t kPart = 16 * kBlockTokens;

// Words of kBlockTokens tokens, from counter `first` on.
inline void DrawWords(const NoiseKey& key, uint32_t first, uint32_t* words) {
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) {
    c0[i] = key.position;
    c1[i] = first + i;
    c2[i] = key.choice;
    c3[i] = key.stream_word();
    Philox(c0[i], c1[i], c2[i], c3[i], static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32));
  }
  for (size_t i = 0; i < kLanes; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 warns about its own _mm512_undefined_epi32
// The compiler does not find the instruction for 32 x 32 -> 64 bits, which makes this seven times as fast.
__attribute__((target("avx512f"))) inline void DrawWordsAvx512(const NoiseKey& key, uint32_t first, uint32_t* words) {
  const __m512i multiplier0 = _mm512_set1_epi64(kMultiplier0), multiplier1 = _mm512_set1_epi64(kMultiplier1);
  const __m512i evens = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), odds = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  for (uint32_t half = 0; half < 2; ++half) {
    __m512i c0 = _mm512_set1_epi64(key.position), c2 = _mm512_set1_epi64(key.choice);
    __m512i c1 = _mm512_add_epi64(_mm512_set1_epi64(first + 8 * half), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    __m512i c3 = _mm512_set1_epi64(key.stream_word());
    auto k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < kRounds; ++round, k0 += kWeyl0, k1 += kWeyl1) {  // upper halves of lanes are not used
      const __m512i p0 = _mm512_mul_epu32(c0, multiplier0), p1 = _mm512_mul_epu32(c2, multiplier1);
      c0 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p1, 32), c1), _mm512_set1_epi64(k0));
      c2 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p0, 32), c3), _mm512_set1_epi64(k1));
      c1 = p1;
      c3 = p0;
    }
    const __m512i words01 = _mm512_mask_blend_epi32(0xAAAA, c0, _mm512_slli_epi64(c1, 32));
    const __m512i words23 = _mm512_mask_blend_epi32(0xAAAA, c2, _mm512_slli_epi64(c3, 32));
    _mm512_storeu_si512(words + 32 * half, _mm512_permutex2var_epi64(words01, evens, words23));
    _mm512_storeu_si512(words + 32 * half + 16, _mm512_permutex2var_epi64(words01, odds, words23));
  }
}
#pragma GCC diagnostic pop
#endif

// Words of `n` tokens, rounded up to whole blocks, from `begin` on, a multiple of four.
DI_VECTOR_CLONES void DrawManyPlain(const NoiseKey& key, size_t begin, size_t n, uint32_t* words) {
  for (size_t t = 0; t < n; t += kBlockTokens) DrawWords(key, static_cast<uint32_t>((begin + t) / 4), words + t);
}

void DrawMany(const NoiseKey& key, size_t begin, size_t n, uint32_t* words) {
#if defined(__x86_64__)
  static const bool has_avx512 = __builtin_cpu_supports("avx512f");
  if (has_avx512) {
    for (size_t t = 0; t < n; t += kBlockTokens) DrawWordsAvx512(key, static_cast<uint32_t>((begin + t) / 4), words + t);
    return;
  }
#endif
  DrawManyPlain(key, begin, n, words);
}

// Whether one of scores[i] + the noise of words[i], of kBlockTokens, could reach `best`.
inline bool MayReach(const float* scores, const uint32_t* words, float best) {
  uint32_t any = 0;
  for (size_t t = 0; t < kBlockTokens; ++t) any |= static_cast<uint32_t>(scores[t] + GumbelBound(words[t]) >= best);
  return any != 0;
}

struct Best {
  int32_t token;
  float sum;
};

// Goes through tokens [begin, begin + n) with these words.
DI_VECTOR_CLONES void Improve(std::span<const float> scores, size_t begin, size_t n, const uint32_t* words, Best* best) {
  for (size_t t = 0; t < n; ++t) {
    const bool whole = t % kBlockTokens == 0 && n - t >= kBlockTokens;
    if (whole && !MayReach(scores.data() + begin + t, words + t, best->sum)) {
      t += kBlockTokens - 1;
      continue;
    }
    const float score = scores[begin + t];
    if (!(score + GumbelBound(words[t]) >= best->sum)) continue;
    const float sum = score + GumbelOf(words[t]);
    const auto token = static_cast<int32_t>(begin + t);
    if (sum > best->sum || (sum == best->sum && token < best->token)) *best = {token, sum};
  }
}

DI_VECTOR_CLONES void ToNoise(const uint32_t* words, size_t n, float* out) {
  for (size_t t = 0; t < n; ++t) out[t] = GumbelOf(words[t]);
}

}  // namespace

DI_VECTOR_CLONES int32_t ArgMax(std::span<const float> scores) {
  constexpr size_t kRun = 64;
  float top[kRun];
  std::fill_n(top, kRun, -kInfinity);
  const size_t whole = scores.size() / kRun * kRun;
  for (size_t begin = 0; begin < whole; begin += kRun) {
    for (size_t i = 0; i < kRun; ++i) top[i] = scores[begin + i] > top[i] ? scores[begin + i] : top[i];
  }
  for (size_t i = whole; i < scores.size(); ++i) top[0] = scores[i] > top[0] ? scores[i] : top[0];
  for (size_t i = 1; i < kRun; ++i) top[0] = top[i] > top[0] ? top[i] : top[0];
  const auto best = std::find(scores.begin(), scores.end(), top[0]);
  return static_cast<int32_t>(best == scores.end() ? 0 : best - scores.begin());  // the end: none is a number
}

int32_t NoisyArgMax(const NoiseKey& key, std::span<const float> scores) {
  uint32_t words[kPart];
  const int32_t first = ArgMax(scores);
  Best best{first, scores[static_cast<size_t>(first)] + Gumbel(key, static_cast<uint32_t>(first))};
  for (size_t begin = 0; begin < scores.size(); begin += kPart) {
    const size_t n = std::min(kPart, scores.size() - begin);
    DrawMany(key, begin, n, words);
    Improve(scores, begin, n, words, &best);
  }
  return best.token;
}

void GumbelAll(const NoiseKey& key, std::span<float> out) {
  uint32_t words[kPart];
  for (size_t begin = 0; begin < out.size(); begin += kPart) {
    const size_t n = std::min(kPart, out.size() - begin);
    DrawMany(key, begin, n, words);
    ToNoise(words, n, out.data() + begin);
  }
}

DI_VECTOR_CLONES double LogSumExp(std::span<const float> logits) {
  const float top = logits[static_cast<size_t>(ArgMax(logits))];
  double sums[kLanes] = {};
  const size_t whole = logits.size() / kLanes * kLanes;
  for (size_t begin = 0; begin < whole; begin += kLanes) {
    for (size_t i = 0; i < kLanes; ++i) sums[i] += static_cast<double>(FixedExp(logits[begin + i] - top));
  }
  for (size_t i = whole; i < logits.size(); ++i) sums[i - whole] += static_cast<double>(FixedExp(logits[i] - top));
  double sum = 0;
  for (const double part : sums) sum += part;
  return LogSumExp(top, sum);
}

double LogSumExp(float top, double sum) { return static_cast<double>(top) + std::log(sum); }

}  // namespace deepinfer::sampling
