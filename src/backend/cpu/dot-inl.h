// SPDX-License-Identifier: Apache-2.0
// Products of activations with weight rows. Two kernels per format, with equal bits (the contract is in kernels.h):
// - a few rows: four weight rows at a time are decoded in registers and multiplied at once, so each packed byte is read
//   once and nothing is written: the decode step, bound by memory;
// - many rows: four weight rows are decoded to a panel [cols / 16][4][16] of floats that stays in the nearest cache, and
//   tiles of kRowTile x kOutTile sums run over it: prefill, bound by multiplications.
// Included after one of simd_*.h.
#pragma once

namespace deepinfer::backend::cpu {
namespace {

// A decoder hands out 32 columns of four neighbouring weight rows at a time, as two Vec in the order of the format. Rows past the last are read as
// the last one, and their sums thrown away. kRagged: cols need not be a multiple of 32, Part gives the rest with zeros.
template <int kBytes>
struct PlainDecoder {
  static constexpr bool kRagged = true;
  const uint8_t* row[4];
  PlainDecoder(const Matrix& w, int64_t out, int64_t out_end) {
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t o = out + i < out_end ? out + i : out_end - 1;
      row[i] = static_cast<const uint8_t*>(w.data) + o * w.cols * kBytes;
    }
  }
  static DI_SIMD Vec Read(const uint8_t* p) {
    if constexpr (kBytes == 4) {
      return Load(reinterpret_cast<const float*>(p));
    } else {
      return LoadBf16(p);
    }
  }
  DI_SIMD void Block(int i, int64_t block, Vec* a, Vec* b) const {
    const uint8_t* p = row[i] + block * 32 * kBytes;
    *a = Read(p);
    *b = Read(p + 16 * kBytes);
  }
  void Part(int i, int64_t block, int64_t n, Vec* a, Vec* b) const {
    uint8_t copy[32 * kBytes] = {};
    __builtin_memcpy(copy, row[i] + block * 32 * kBytes, static_cast<size_t>(n * kBytes));
    *a = Read(copy);
    *b = Read(copy + 16 * kBytes);
  }
};

// The e8m0 codes as floats; a table, since 0 and 255 are special.
struct E8m0Table {
  float value[256];
  float times256[256];
  E8m0Table() {
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t bits = i == 255 ? 0x7FC00000u : i == 0 ? 0x00400000u : i << 23;
      __builtin_memcpy(&value[i], &bits, 4);
      times256[i] = value[i] * 256.0f;
    }
  }
};
const E8m0Table kE8m0;

// e4m3 values as LoadE4m3 gives them, times 2^8, times the scale.
DI_SIMD Vec ScaleE4m3(Vec v, uint8_t scale) {
  if (__builtin_expect(scale < 247, 1)) return v * Set(kE8m0.times256[scale]);
  return v * Set(256.0f) * Set(kE8m0.value[scale]);  // 256 * 2^120 is not a float
}

struct Fp8Decoder {
  static constexpr bool kRagged = false;
  const uint8_t* row[4];
  const uint8_t* scale[4];
  Fp8Decoder(const Matrix& w, int64_t out, int64_t out_end) {
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t o = out + i < out_end ? out + i : out_end - 1;
      row[i] = static_cast<const uint8_t*>(w.data) + o * w.cols;
      scale[i] = w.scale + (w.format == WeightFormat::kFp8Tile32 ? o / 32 : o) * (w.cols / 32);
    }
  }
  DI_SIMD void Block(int i, int64_t block, Vec* a, Vec* b) const {
    const uint8_t* p = row[i] + block * 32;
    const uint8_t s = scale[i][block];
    *a = ScaleE4m3(LoadE4m3(p), s);
    *b = ScaleE4m3(LoadE4m3(p + 16), s);
  }
};

struct Fp4Decoder {
  static constexpr bool kRagged = false;
  const uint8_t* row[4];
  const uint8_t* scale[4];
  Fp4Decoder(const Matrix& w, int64_t out, int64_t out_end) {
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t o = out + i < out_end ? out + i : out_end - 1;
      row[i] = static_cast<const uint8_t*>(w.data) + o * (w.cols / 2);
      scale[i] = w.scale + o * (w.cols / 32);
    }
  }
  DI_SIMD void Block(int i, int64_t block, Vec* a, Vec* b) const {
    LoadFp4Split(row[i] + block * 16, ScaledFp4Table(kE8m0.value[scale[i][block]]), a, b);
  }
};

// sums[r][o] of kOutTile outputs from `first` on: reduced and stored.
template <int R>
DI_SIMD void StoreTile(const Vec (&sum)[R][kOutTile], float* const* y, int64_t out, int64_t out_end) {
  const int64_t n = out_end - out < kOutTile ? out_end - out : kOutTile;
  for (int r = 0; r < R; ++r) ReduceTile(sum[r], y[r] + out, n);
}

template <typename Decoder, int R>
void DirectTile(const Decoder& w, int first, int64_t cols, const float* const* x, float* const* y, int64_t out,
                int64_t out_end) {
  Vec sum[R][kOutTile];
  for (int r = 0; r < R; ++r) {
    for (int o = 0; o < kOutTile; ++o) sum[r][o] = Set(0.0f);
  }
  const int64_t blocks = cols / 32;
  for (int64_t block = 0; block < blocks; ++block) {
#pragma GCC unroll 4
    for (int o = 0; o < kOutTile; ++o) {
      Vec a, b;
      w.Block(first + o, block, &a, &b);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        sum[r][o] = MulAdd(a, Load(x[r] + block * 32), sum[r][o]);
        sum[r][o] = MulAdd(b, Load(x[r] + block * 32 + 16), sum[r][o]);
      }
    }
  }
  if constexpr (Decoder::kRagged) {
    if (const int64_t rest = cols - blocks * 32; rest > 0) {
      for (int o = 0; o < kOutTile; ++o) {
        Vec a, b;
        w.Part(first + o, blocks, rest, &a, &b);
        for (int r = 0; r < R; ++r) {
          sum[r][o] = MulAdd(a, LoadPart(x[r] + blocks * 32, rest < 16 ? rest : 16), sum[r][o]);
          if (rest > 16) sum[r][o] = MulAdd(b, LoadPart(x[r] + blocks * 32 + 16, rest - 16), sum[r][o]);
        }
      }
    }
  }
  StoreTile<R>(sum, y, out, out_end);
}

// One tile of sums over a panel of four weight rows, of which those from `first` on are used.
template <int R>
void PanelTile(const float* panel, int first, int64_t cols, const float* const* x, float* const* y, int64_t out,
               int64_t out_end) {
  Vec sum[R][kOutTile];
  for (int r = 0; r < R; ++r) {
    for (int o = 0; o < kOutTile; ++o) sum[r][o] = Set(0.0f);
  }
  const float* w = panel + first * 16;
  const int64_t whole = cols / 16 * 16;
  for (int64_t k = 0; k < whole; k += 16, w += 64) {
    Vec part[kOutTile];
    for (int o = 0; o < kOutTile; ++o) part[o] = Load(w + o * 16);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec value = Load(x[r] + k);
#pragma GCC unroll 4
      for (int o = 0; o < kOutTile; ++o) sum[r][o] = MulAdd(part[o], value, sum[r][o]);
    }
  }
  if (whole < cols) {
    for (int r = 0; r < R; ++r) {
      const Vec value = LoadPart(x[r] + whole, cols - whole);
      for (int o = 0; o < kOutTile; ++o) sum[r][o] = MulAdd(Load(w + o * 16), value, sum[r][o]);
    }
  }
  StoreTile<R>(sum, y, out, out_end);
}

template <int R>
void PanelRows(int64_t rows, const float* panel, int64_t cols, const float* const* x, float* const* y, int64_t out,
               int64_t out_end) {
  if (rows == R) {
    for (int first = 0; first < 4 && out + first < out_end; first += kOutTile) {
      PanelTile<R>(panel, first, cols, x, y, out + first, out_end);
    }
  } else if constexpr (R > 1) {
    PanelRows<R - 1>(rows, panel, cols, x, y, out, out_end);
  }
}

// Outputs out .. min(out + 4, out_end) of all rows from a panel.
void MultiplyPanel(const float* panel, int64_t cols, int64_t rows, const float* const* x, float* const* y, int64_t out,
                   int64_t out_end) {
  for (int64_t r = 0; r < rows; r += kRowTile) {
    PanelRows<kRowTile>(rows - r < kRowTile ? rows - r : kRowTile, panel, cols, x + r, y + r, out, out_end);
  }
}

template <typename Decoder>
void FillPanel(const Decoder& w, int64_t cols, float* panel) {
  const int64_t blocks = cols / 32;
  for (int64_t block = 0; block < blocks; ++block) {
    float* to = panel + block * 128;
#pragma GCC unroll 4
    for (int o = 0; o < 4; ++o) {
      Vec a, b;
      w.Block(o, block, &a, &b);
      Store(to + o * 16, a);
      Store(to + 64 + o * 16, b);
    }
  }
  if constexpr (Decoder::kRagged) {
    for (int o = 0; blocks * 32 < cols && o < 4; ++o) {
      Vec a, b;
      w.Part(o, blocks, cols - blocks * 32, &a, &b);
      Store(panel + blocks * 128 + o * 16, a);
      Store(panel + blocks * 128 + 64 + o * 16, b);
    }
  }
}

template <typename Decoder, int R>
void DirectRows(const Decoder& w, const DotArgs& args, int64_t out) {
  if (args.rows == R) {
    for (int first = 0; first < 4 && out + first < args.out_end; first += kOutTile) {
      DirectTile<Decoder, R>(w, first, args.w->cols, args.x, args.y, out + first - args.y_begin,
                             args.out_end - args.y_begin);
    }
  } else if constexpr (R > 1) {
    DirectRows<Decoder, R - 1>(w, args, out);
  }
}

template <typename Decoder>
void DotRows(const DotArgs& args) {
  for (int64_t out = args.out_begin; out < args.out_end; out += 4) {
    const Decoder w(*args.w, out, args.out_end);
    if (args.rows <= kDirectRows) {
      DirectRows<Decoder, kDirectRows>(w, args, out);
    } else {
      FillPanel(w, args.w->cols, args.panel);
      MultiplyPanel(args.panel, args.w->cols, args.rows, args.x, args.y, out - args.y_begin,
                    args.out_end - args.y_begin);
    }
  }
}

void Dot(const DotArgs& args) {
  if (args.rows == 0) return;
  switch (args.w->format) {
    case WeightFormat::kF32:
      return DotRows<PlainDecoder<4>>(args);
    case WeightFormat::kBf16:
      return DotRows<PlainDecoder<2>>(args);
    case WeightFormat::kFp8Tile32:
    case WeightFormat::kFp8Row32:
      return DotRows<Fp8Decoder>(args);
    case WeightFormat::kFp4Row32:
      return DotRows<Fp4Decoder>(args);
  }
}

template <typename Decoder>
void DecodeRowWith(const Matrix& w, int64_t row, float* out) {
  const Decoder decoder(w, row, row + 1);
  const int64_t blocks = w.cols / 32;
  for (int64_t block = 0; block < blocks; ++block) {
    Vec a, b;
    decoder.Block(0, block, &a, &b);
    Store(out + block * 32, a);
    Store(out + block * 32 + 16, b);
  }
  if constexpr (Decoder::kRagged) {
    const int64_t rest = w.cols - blocks * 32;
    if (rest == 0) return;
    Vec a, b;
    decoder.Part(0, blocks, rest, &a, &b);
    StorePart(out + blocks * 32, a, rest < 16 ? rest : 16);
    if (rest > 16) StorePart(out + blocks * 32 + 16, b, rest - 16);
  }
}

void DecodeRow(const Matrix& w, int64_t row, float* out) {
  switch (w.format) {
    case WeightFormat::kF32:
      return DecodeRowWith<PlainDecoder<4>>(w, row, out);
    case WeightFormat::kBf16:
      return DecodeRowWith<PlainDecoder<2>>(w, row, out);
    case WeightFormat::kFp8Tile32:
    case WeightFormat::kFp8Row32:
      return DecodeRowWith<Fp8Decoder>(w, row, out);
    case WeightFormat::kFp4Row32: {
      const Fp4Decoder decoder(w, row, row + 1);
      for (int64_t block = 0; block < w.cols / 32; ++block) {
        const Fp4Table table = ScaledFp4Table(kE8m0.value[decoder.scale[0][block]]);
        Store(out + block * 32, LoadFp4(decoder.row[0] + block * 16, table));
        Store(out + block * 32 + 16, LoadFp4(decoder.row[0] + block * 16 + 8, table));
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::backend::cpu
