// SPDX-License-Identifier: Apache-2.0
// Reading weights: decoders that hand out blocks of 32 columns to the products of dot-inl.h, whole rows in their order,
// and the column order that each format wants of its input. Included after one of simd_*.h.
#pragma once

#include "backend/cpu/code_values.h"

namespace deepinfer::backend::cpu {
namespace {

// Even columns first: the order of bf16 and FP4.
constexpr int32_t kSplitColumns[16] = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};

// Weights stream by once: what the next four rows hold at the same columns is asked for in advance, into the second-level
// cache. The processor's own prefetchers follow four rows at once badly. Addresses past the end do no harm.
DI_SIMD void Prefetch(const uint8_t* p) { __builtin_prefetch(p, 0, 2); }

// A decoder hands out 32 columns of one of four neighbouring weight rows at a time, as two Vec in the column order of the
// format. Rows past the last are read as the last one, and their sums thrown away. Part gives the last block of a matrix
// whose columns are not a multiple of 32, filled up with zeros.
template <int kBytes>
struct PlainDecoder {
  static constexpr bool kRagged = true;
  const uint8_t* row[4];
  int64_t four_rows;  // bytes
  PlainDecoder(const Matrix& w, int64_t out, int64_t out_end) {
    four_rows = w.cols * kBytes * 4;
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t o = out + i < out_end ? out + i : out_end - 1;
      row[i] = static_cast<const uint8_t*>(w.data) + o * w.cols * kBytes;
    }
  }
  static DI_SIMD void Read(const uint8_t* p, Vec* a, Vec* b) {
    if constexpr (kBytes == 4) {
      *a = Load(reinterpret_cast<const float*>(p));
      *b = Load(reinterpret_cast<const float*>(p) + 16);
    } else {
      LoadBf16Split(p, a, b);
    }
  }
  DI_SIMD void Block(int i, int64_t block, Vec* a, Vec* b) const {
    const uint8_t* p = row[i] + block * 32 * kBytes;
    Prefetch(p + four_rows);
    if constexpr (kBytes == 4) Prefetch(p + four_rows + 64);
    Read(p, a, b);
  }
  void Part(int i, int64_t block, int64_t n, Vec* a, Vec* b) const {
    uint8_t copy[32 * kBytes] = {};
    __builtin_memcpy(copy, row[i] + block * 32 * kBytes, static_cast<size_t>(n * kBytes));
    Read(copy, a, b);
  }
};

// The e8m0 codes as floats; a table, since 0 and 255 are special.
struct E8m0Table {
  float value[256];
  float times256[256];  // not a float from code 247 on
  constexpr E8m0Table() : value(), times256() {
    for (int i = 0; i < 256; ++i) {
      value[i] = E8m0Value(i);
      times256[i] = i < 247 ? value[i] * 256.0f : 0.0f;
    }
  }
};
constexpr E8m0Table kE8m0;

// e4m3 values as LoadE4m3 gives them, times 2^8, times the scale.
DI_SIMD Vec ScaleE4m3(Vec v, uint8_t scale) {
  if (__builtin_expect(scale < 247, 1)) return v * Set(kE8m0.times256[scale]);
  return v * Set(256.0f) * Set(kE8m0.value[scale]);  // 256 * 2^120 is not a float
}

struct Fp8Decoder {
  static constexpr bool kRagged = false;
  const uint8_t* row[4];
  const uint8_t* scale[4];
  int64_t four_rows;  // bytes
  Fp8Decoder(const Matrix& w, int64_t out, int64_t out_end) {
    four_rows = w.cols * 4;
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t o = out + i < out_end ? out + i : out_end - 1;
      row[i] = static_cast<const uint8_t*>(w.data) + o * w.cols;
      scale[i] = w.scale + (w.format == WeightFormat::kFp8Tile32 ? o / 32 : o) * (w.cols / 32);
    }
  }
#ifdef DI_E4M3_PAIRS
  DI_SIMD E4m3Pair Pair(int pair, int64_t block) const {
    const int i = 2 * pair;
    Prefetch(row[i] + block * 32 + four_rows);
    Prefetch(row[i + 1] + block * 32 + four_rows);
    return LoadE4m3Pair(row[i] + block * 32, row[i + 1] + block * 32, kE8m0.value[scale[i][block]],
                        kE8m0.value[scale[i + 1][block]]);
  }
#else
  DI_SIMD void Block(int i, int64_t block, Vec* a, Vec* b) const {
    const uint8_t* p = row[i] + block * 32;
    Prefetch(p + four_rows);
    const uint8_t s = scale[i][block];
    *a = ScaleE4m3(LoadE4m3(p), s);
    *b = ScaleE4m3(LoadE4m3(p + 16), s);
  }
#endif
};

struct Fp4Decoder {
  static constexpr bool kRagged = false;
  const uint8_t* row[4];
  const uint8_t* scale[4];
  int64_t four_rows;  // bytes
  Fp4Decoder(const Matrix& w, int64_t out, int64_t out_end) {
    four_rows = w.cols * 2;
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t o = out + i < out_end ? out + i : out_end - 1;
      row[i] = static_cast<const uint8_t*>(w.data) + o * (w.cols / 2);
      scale[i] = w.scale + o * (w.cols / 32);
    }
  }
  DI_SIMD void Block(int i, int64_t block, Vec* a, Vec* b) const {
    if ((block & 3) == 0) Prefetch(row[i] + block * 16 + four_rows);
    LoadFp4Split(row[i] + block * 16, ScaledFp4Table(kE8m0.value[scale[i][block]]), a, b);
  }
};

// 32 values at a time in their order.
template <typename Read>
void DecodeBlocks(int64_t cols, float* out, const Read& read) {
  for (int64_t i = 0; i < cols; i += 32) {
    Vec a, b;
    read(i, &a, &b);
    Store(out + i, a);
    Store(out + i + 16, b);
  }
}

void DecodeRow(const Matrix& w, int64_t row, float* out) {
  const auto* data = static_cast<const uint8_t*>(w.data);
  switch (w.format) {
    case WeightFormat::kF32:
      __builtin_memcpy(out, data + row * w.cols * 4, static_cast<size_t>(w.cols) * 4);
      return;
    case WeightFormat::kBf16:
      data += row * w.cols * 2;
      for (int64_t i = 0; i + 16 <= w.cols; i += 16) Store(out + i, LoadBf16(data + i * 2));
      if (const int64_t rest = w.cols % 16; rest != 0) {
        uint8_t copy[32] = {};
        __builtin_memcpy(copy, data + (w.cols - rest) * 2, static_cast<size_t>(rest * 2));
        StorePart(out + w.cols - rest, LoadBf16(copy), rest);
      }
      return;
    case WeightFormat::kFp8Tile32:
    case WeightFormat::kFp8Row32: {
      const uint8_t* scale = w.scale + (w.format == WeightFormat::kFp8Tile32 ? row / 32 : row) * (w.cols / 32);
      data += row * w.cols;
      return DecodeBlocks(w.cols, out, [&](int64_t i, Vec* a, Vec* b) {
        *a = ScaleE4m3(LoadE4m3(data + i), scale[i / 32]);
        *b = ScaleE4m3(LoadE4m3(data + i + 16), scale[i / 32]);
      });
    }
    case WeightFormat::kFp4Row32: {
      const uint8_t* scale = w.scale + row * (w.cols / 32);
      data += row * (w.cols / 2);
      return DecodeBlocks(w.cols, out, [&](int64_t i, Vec* a, Vec* b) {
        const Fp4Table table = ScaledFp4Table(kE8m0.value[scale[i / 32]]);
        *a = LoadFp4(data + i / 2, table);
        *b = LoadFp4(data + i / 2 + 8, table);
      });
    }
    case WeightFormat::kFp8Aligned:
    case WeightFormat::kFp4Aligned:
      return;  // of another backend
  }
}

// x in the column order of products with w, filled up with zeros to a multiple of 32; out may be x.
void OrderColumns(const Matrix& w, const float* x, int64_t n, float* out) {
  const int32_t* columns = w.format == WeightFormat::kBf16 || w.format == WeightFormat::kFp4Row32 ? kSplitColumns
                           : w.format == WeightFormat::kF32 ? nullptr : kE4m3Columns;
  for (int64_t i = 0; i < n; i += 32) {
    Vec a = LoadPart(x + i, n - i), b = LoadPart(x + i + 16, n - i - 16);
    if (columns != nullptr) {
      int32_t next[16];
      for (int l = 0; l < 16; ++l) next[l] = columns[l] + 1;
      const Vec first = Gather32(a, b, columns);
      b = Gather32(a, b, next);
      a = first;
    }
    Store(out + i, a);
    Store(out + i + 16, b);
  }
}

}  // namespace
}  // namespace deepinfer::backend::cpu
