// SPDX-License-Identifier: Apache-2.0
// Attention of one row and index scores. Keys are decoded once into panels [keys / 4][dim / 16][4][16], the form that
// the products of dot-inl.h want; the same panels are the values of the weighted sum.
// Included after one of simd_*.h, math-inl.h, dot-inl.h and rows-inl.h.
#pragma once

namespace deepinfer::backend::cpu {
namespace {

// The e4m3 codes as floats.
struct E4m3Table {
  float value[256];
  E4m3Table() {
    uint8_t codes[256];
    for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(i);
    for (int i = 0; i < 256; i += 16) Store(value + i, LoadE4m3(codes + i) * Set(256.0f));
  }
};
const E4m3Table kE4m3;

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

// From an index key: e2m1 pairs, an e8m0 scale per 32.
void IndexKeyToPanel(const uint8_t* codes, const uint8_t* scales, int64_t dim, float* slot) {
  for (int64_t i = 0; i < dim; i += 32) {
    const Fp4Table table = ScaledFp4Table(kE8m0.value[scales[i / 32]]);
    Store(slot + i * 4, LoadFp4(codes + i / 2, table));
    Store(slot + i * 4 + 64, LoadFp4(codes + i / 2 + 8, table));
  }
}

void ClearSlot(int64_t dim, float* slot) {
  for (int64_t i = 0; i < dim; i += 16) Store(slot + i * 4, Set(0.0f));
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

// out[h][c .. c + 32) = sum over keys, ascending, of weight[h][j] * value[j][c].
template <int H>
DI_SIMD void WeightedSum(const float* panels, int64_t keys, int64_t dim, int64_t c, const float* const* weights,
                         const float* sums, float* const* out) {
  Vec sum[H][2];
  for (int h = 0; h < H; ++h) sum[h][0] = sum[h][1] = Set(0.0f);
  for (int64_t j = 0; j < keys; ++j) {
    const float* value = panels + j / 4 * 4 * dim + c * 4 + (j & 3) * 16;
    const Vec a = Load(value), b = Load(value + 64);
    for (int h = 0; h < H; ++h) {
      const Vec w = Set(weights[h][j]);
      sum[h][0] = MulAdd(w, a, sum[h][0]);
      sum[h][1] = MulAdd(w, b, sum[h][1]);
    }
  }
  for (int h = 0; h < H; ++h) {
    Store(out[h] + c, sum[h][0] / Set(sums[h]));
    Store(out[h] + c + 16, sum[h][1] / Set(sums[h]));
  }
}

void Attend(const AttendArgs& a) {
  for (int64_t j = 0; j < (a.keys + 3) / 4 * 4; ++j) {
    float* slot = a.panels + j / 4 * 4 * a.dim + (j & 3) * 16;
    if (j < a.window_keys) {
      WindowToPanel(a.codes[j], a.scales[j], a.dim, slot);
    } else if (j < a.keys) {
      LatentToPanel(a.codes[j], a.scales[j], a.dim, slot);
    } else {
      ClearSlot(a.dim, slot);
    }
  }
  for (int64_t j = 0; j < a.keys; j += 4) {
    MultiplyPanel(a.panels + j * a.dim, a.dim, a.heads, a.q, a.scores, j, a.keys);
  }
  for (int64_t h = 0; h < a.heads; h += kValueHeads) {
    const int64_t n = a.heads - h < kValueHeads ? a.heads - h : kValueHeads;
    float sums[kValueHeads];
    for (int64_t i = 0; i < n; ++i) sums[i] = Softmax(a.scores[h + i], a.keys, a.scale, a.sink[h + i]);
    for (int64_t c = 0; c < a.dim; c += 32) {
      if (n == kValueHeads) {
        WeightedSum<kValueHeads>(a.panels, a.keys, a.dim, c, a.scores + h, sums, a.out + h);
      } else {
        for (int64_t i = 0; i < n; ++i) {
          WeightedSum<1>(a.panels, a.keys, a.dim, c, a.scores + h + i, sums + i, a.out + h + i);
        }
      }
    }
    for (int64_t i = 0; i < n; ++i) RopeBack(a.out[h + i], a.dim, a.rope_dim, a.table);
  }
}

void IndexScores(const IndexScoreArgs& a) {
  for (int64_t j = 0; j < a.keys; j += 4) {
    const int64_t n = a.keys - j < 4 ? a.keys - j : 4;
    for (int64_t i = 0; i < 4; ++i) {
      if (i < n) {
        IndexKeyToPanel(a.codes[j + i], a.scales[j + i], a.dim, a.panel + i * 16);
      } else {
        ClearSlot(a.dim, a.panel + i * 16);
      }
    }
    MultiplyPanel(a.panel, a.dim, a.heads, a.q, a.dots, 0, n);
    Vec sum = Set(0.0f);
    for (int64_t h = 0; h < a.heads; ++h) {
      sum = MulAdd(Set(a.weights[h]), Max(Set(0.0f), LoadPart(a.dots[h], n)), sum);
    }
    StorePart(a.scores + j, sum * Set(a.score_scale), n);
  }
}

}  // namespace
}  // namespace deepinfer::backend::cpu
