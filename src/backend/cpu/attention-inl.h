// SPDX-License-Identifier: Apache-2.0
// Attention of one row and index scores. Keys are decoded once into panels [keys / 4][dim / 16][4][16], the form that
// the products of dot-inl.h want; the same panels are the values of the weighted sum.
// Included after one of simd_*.h, math-inl.h, dot-inl.h and rows-inl.h.
#pragma once

#include "backend/cpu/code_values.h"

namespace deepinfer::backend::cpu {
namespace {

// The e4m3 codes as floats.
struct E4m3Table {
  float value[256];
  constexpr E4m3Table() : value() {
    for (int i = 0; i < 256; ++i) value[i] = E4m3Value(i);
  }
};
constexpr E4m3Table kE4m3;

// Row `slot` of a panel from a window row: e4m3 codes, an e8m0 scale per 32.
void WindowToPanel(const uint8_t* codes, const uint8_t* scales, int64_t dim, float* slot) {
  for (int64_t i = 0; i < dim; i += 32) {
    Store(slot + i * 4, ScaleE4m3(LoadE4m3(codes + i), scales[i / 32]));
    Store(slot + i * 4 + 64, ScaleE4m3(LoadE4m3(codes + i + 16), scales[i / 32]));
  }
}

// From a latent: e2m1 pairs, an e4m3 scale per 16.
void LatentToPanel(const uint8_t* codes, const uint8_t* scales, int64_t dim, float* slot) {
  for (int64_t i = 0; i < dim; i += 16) {
    Store(slot + i * 4, LoadFp4(codes + i / 2, ScaledFp4Table(kE4m3.value[scales[i / 16]])));
  }
}

template <typename Decode>
DI_SIMD void FillKeyPanels(int64_t n, int64_t dim, float* panels, const Decode& decode) {
  for (int64_t j = 0; j < (n + 3) / 4 * 4; ++j) {
    float* slot = panels + j / 4 * 4 * dim + (j & 3) * 16;
    if (j < n) {
      decode(j, slot);
    } else {
      for (int64_t i = 0; i < dim; i += 16) Store(slot + i * 4, Set(0.0f));
    }
  }
}

void WindowPanels(const uint8_t* const* codes, const uint8_t* const* scales, int64_t n, int64_t dim, float* panels) {
  FillKeyPanels(n, dim, panels, [&](int64_t j, float* slot) { WindowToPanel(codes[j], scales[j], dim, slot); });
}

void LatentPanels(const uint8_t* const* codes, const uint8_t* const* scales, int64_t n, int64_t dim, float* panels) {
  FillKeyPanels(n, dim, panels, [&](int64_t j, float* slot) { LatentToPanel(codes[j], scales[j], dim, slot); });
}

// scores -> weights, in place; returns their sum, the sink's share included. Padding behind `keys` is left alone.
float Softmax(float* scores, int64_t keys, float scale, float sink) {
  Vec top = Set(sink);
  for (int64_t j = 0; j < keys; j += 16) {
    const Vec s = LoadPart(scores + j, keys - j) * Set(scale);
    StorePart(scores + j, s, keys - j);
    // Lanes behind the last key repeat the sink.
    top = Max(top, keys - j >= 16 ? s : BlendFirst(s, Set(sink), keys - j));
  }
  const float best = ReduceMax(top);
  Vec sum = Set(0.0f);
  for (int64_t j = 0; j < keys; j += 16) {
    const Vec weight = Exp(LoadPart(scores + j, keys - j) - Set(best));
    StorePart(scores + j, weight, keys - j);
    sum = sum + (keys - j >= 16 ? weight : BlendFirst(weight, Set(0.0f), keys - j));
  }
  // A sink of infinity takes everything; inf - inf must not be formed.
  float share[16];
  Store(share, Exp(Set(sink == best ? 0.0f : sink - best)));
  return ReduceAdd(sum) + share[0];
}

constexpr int kValueHeads = 4;

// sum[h] += weight[h][j] * values [c, c + 32) of keys [begin, end), ascending; weights count from the first key.
template <int H>
DI_SIMD void AddValues(KeyPanels keys, int64_t begin, int64_t end, int64_t dim, int64_t c, const float* const* weights,
                       Vec (&sum)[H][2]) {
  for (int64_t j = begin; j < end; ++j) {
    const float* value = keys.data + j / 4 * 4 * dim + c * 4 + (j & 3) * 16;
    const Vec a = Load(value), b = Load(value + 64);
    for (int h = 0; h < H; ++h) {
      const Vec w = Set(weights[h][j - begin]);
      sum[h][0] = MulAdd(w, a, sum[h][0]);
      sum[h][1] = MulAdd(w, b, sum[h][1]);
    }
  }
}

template <int H>
void WeightedSum(const AttendArgs& a, int64_t first, const float* const* weights, const float* sums) {
  const int64_t in_window = a.window_end - a.window_begin;
  const float* latent_weights[H];
  for (int h = 0; h < H; ++h) latent_weights[h] = weights[h] + in_window;
  for (int64_t c = 0; c < a.dim; c += 32) {
    Vec sum[H][2];
    for (int h = 0; h < H; ++h) sum[h][0] = sum[h][1] = Set(0.0f);
    AddValues<H>(a.window, a.window_begin, a.window_end, a.dim, c, weights, sum);
    AddValues<H>(a.latents, 0, a.latents.size, a.dim, c, latent_weights, sum);
    for (int h = 0; h < H; ++h) {
      Store(a.out[first + h] + c, sum[h][0] / Set(sums[h]));
      Store(a.out[first + h] + c + 16, sum[h][1] / Set(sums[h]));
    }
  }
}

void Attend(const AttendArgs& a) {
  // Scores lie at the keys' places in the window; what the last panel has behind window_end is overwritten by the latents.
  for (int64_t j = a.window_begin / 4 * 4; j < a.window_end; j += 4) {
    MultiplyPanel(a.window.data + j * a.dim, a.dim, a.heads, a.q, a.scores, j, a.window.size);
  }
  for (int64_t j = 0; j < a.latents.size; j += 4) {
    MultiplyPanel(a.latents.data + j * a.dim, a.dim, a.heads, a.q, a.scores, a.window_end + j,
                  a.window_end + a.latents.size);
  }
  const int64_t keys = a.window_end - a.window_begin + a.latents.size;
  for (int64_t h = 0; h < a.heads; h += kValueHeads) {
    const int64_t n = a.heads - h < kValueHeads ? a.heads - h : kValueHeads;
    float* weights[kValueHeads];
    float sums[kValueHeads];
    for (int64_t i = 0; i < n; ++i) {
      weights[i] = a.scores[h + i] + a.window_begin;
      sums[i] = Softmax(weights[i], keys, a.scale, a.sink[h + i]);
    }
    if (n == kValueHeads) {
      WeightedSum<kValueHeads>(a, h, weights, sums);
    } else {
      for (int64_t i = 0; i < n; ++i) WeightedSum<1>(a, h + i, weights + i, sums + i);
    }
    for (int64_t i = 0; i < n; ++i) RopeBack(a.out[h + i], a.dim, a.rope_dim, a.table);
  }
}

#ifndef DI_FP4_COLUMNS
void LoadFp4Columns(const uint8_t* const keys[16], Vec scale, float* columns) {
  float scales[16], values[32];
  Store(scales, scale);
  for (int j = 0; j < 16; ++j) {
    const Fp4Table table = ScaledFp4Table(scales[j]);
    Store(values, LoadFp4(keys[j], table));
    Store(values + 16, LoadFp4(keys[j] + 8, table));
    for (int i = 0; i < 32; ++i) columns[i * 16 + j] = values[i];
  }
}
#endif

// Up to sixteen index keys (e2m1 pairs, an e8m0 scale per 32) to columns [dim][16]; the last key stands in for absent ones.
void IndexKeysToColumns(const uint8_t* const* codes, const uint8_t* const* scales, int64_t n, int64_t dim, float* columns) {
  for (int64_t i = 0; i < dim; i += 32) {
    const uint8_t* block[16];
    float scale[16];
    for (int64_t j = 0; j < 16; ++j) {
      const int64_t key = j < n ? j : n - 1;
      block[j] = codes[key] + i / 2;
      scale[j] = kE8m0.value[scales[key][i / 32]];
    }
    LoadFp4Columns(block, Load(scale), columns + i * 16);
  }
}

// sum[g] += weights[h] * relu(q_h . k) over H heads, for G runs of sixteen keys in lanes.
template <int H, int G>
DI_SIMD void AddHeads(const float* columns, int64_t dim, const float* q, const float* weights, Vec (&sum)[G]) {
  Vec dot[H][G];
  for (int h = 0; h < H; ++h) {
    for (int g = 0; g < G; ++g) dot[h][g] = Set(0.0f);
  }
  for (int64_t i = 0; i < dim; ++i) {
    Vec key[G];
    for (int g = 0; g < G; ++g) key[g] = Load(columns + (g * dim + i) * 16);
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
      const Vec value = Set(q[h * dim + i]);
      for (int g = 0; g < G; ++g) dot[h][g] = MulAdd(value, key[g], dot[h][g]);
    }
  }
  for (int h = 0; h < H; ++h) {
    for (int g = 0; g < G; ++g) sum[g] = MulAdd(Set(weights[h]), Max(Set(0.0f), dot[h][g]), sum[g]);
  }
}

template <int G>
void ScoreRuns(const IndexScoreArgs& a, int64_t first) {
  const float* columns = a.columns + first * a.dim;
  Vec sum[G];
  for (int g = 0; g < G; ++g) sum[g] = Set(0.0f);
  int64_t h = 0;
  for (; h + 8 <= a.heads; h += 8) AddHeads<8, G>(columns, a.dim, a.q + h * a.dim, a.weights + h, sum);
  for (; h + 4 <= a.heads; h += 4) AddHeads<4, G>(columns, a.dim, a.q + h * a.dim, a.weights + h, sum);
  for (; h < a.heads; ++h) AddHeads<1, G>(columns, a.dim, a.q + h * a.dim, a.weights + h, sum);
  for (int g = 0; g < G; ++g) StorePart(a.scores + first + g * 16, sum[g] * Set(a.score_scale), a.keys - first - g * 16);
}

void IndexScores(const IndexScoreArgs& a) {
  int64_t j = 0;
  for (; j + (kKeyTile - 1) * 16 < a.keys; j += kKeyTile * 16) ScoreRuns<kKeyTile>(a, j);
  for (; j < a.keys; j += 16) ScoreRuns<1>(a, j);
}

}  // namespace
}  // namespace deepinfer::backend::cpu
