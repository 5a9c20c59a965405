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

// sums[r][o] of kOutTile outputs from `first` on: reduced and stored.
template <int R>
DI_SIMD void StoreTile(const Vec (&sum)[R][kOutTile], float* const* y, int64_t out, int64_t out_end) {
  const int64_t n = out_end - out < kOutTile ? out_end - out : kOutTile;
  for (int r = 0; r < R; ++r) ReduceTile(sum[r], y[r] + out, n);
}

// sum[r][o] += x[r] . row first + o, decoded in registers.
template <int R, typename Decoder>
DI_SIMD void Accumulate(const Decoder& w, int first, int64_t cols, const float* const* x, Vec (&sum)[R][kOutTile]) {
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
    for (int o = 0; blocks * 32 < cols && o < kOutTile; ++o) {
      Vec a, b;
      w.Part(first + o, blocks, cols - blocks * 32, &a, &b);
      for (int r = 0; r < R; ++r) {
        sum[r][o] = MulAdd(a, Load(x[r] + blocks * 32), sum[r][o]);
        sum[r][o] = MulAdd(b, Load(x[r] + blocks * 32 + 16), sum[r][o]);
      }
    }
  }
}

#ifdef DI_E4M3_PAIRS
// The sums of two rows share registers: half[p][i] has, in its halves, lanes 8 i .. 8 i + 7 of rows 2 p and 2 p + 1.
template <int R>
DI_SIMD void Accumulate(const Fp8Decoder& w, int, int64_t cols, const float* const* x, Vec (&sum)[R][kOutTile]) {
  static_assert(kOutTile == 4);
  Vec half[R][2][2];
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < 2; ++p) half[r][p][0] = half[r][p][1] = Set(0.0f);
  }
  for (int64_t block = 0; block < cols / 32; ++block) {
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const E4m3Pair pair = w.Pair(p, block);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const float* in = x[r] + block * 32;
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          half[r][p][i] = MulAdd(pair.even[i], LoadHalfTwice(in + 8 * i), half[r][p][i]);
          half[r][p][i] = MulAdd(pair.odd[i], LoadHalfTwice(in + 16 + 8 * i), half[r][p][i]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < 2; ++p) {
      sum[r][2 * p] = JoinRow0(half[r][p][0], half[r][p][1]);
      sum[r][2 * p + 1] = JoinRow1(half[r][p][0], half[r][p][1]);
    }
  }
}
#endif

template <typename Decoder, int R>
void DirectTile(const Decoder& w, int first, int64_t cols, const float* const* x, float* const* y, int64_t out,
                int64_t out_end) {
  Vec sum[R][kOutTile];
  for (int r = 0; r < R; ++r) {
    for (int o = 0; o < kOutTile; ++o) sum[r][o] = Set(0.0f);
  }
  Accumulate<R>(w, first, cols, x, sum);
  StoreTile<R>(sum, y, out, out_end);
}

// One tile of sums over a panel of four weight rows, of which those from `first` on are used; cols a multiple of 16.
template <int R>
void PanelTile(const float* panel, int first, int64_t cols, const float* const* x, float* const* y, int64_t out,
               int64_t out_end) {
  Vec sum[R][kOutTile];
  for (int r = 0; r < R; ++r) {
    for (int o = 0; o < kOutTile; ++o) sum[r][o] = Set(0.0f);
  }
  const float* w = panel + first * 16;
  for (int64_t k = 0; k < cols; k += 16, w += 64) {
    Vec part[kOutTile];
    for (int o = 0; o < kOutTile; ++o) part[o] = Load(w + o * 16);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec value = Load(x[r] + k);
#pragma GCC unroll 4
      for (int o = 0; o < kOutTile; ++o) sum[r][o] = MulAdd(part[o], value, sum[r][o]);
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

#ifdef DI_E4M3_PAIRS
void FillPanel(const Fp8Decoder& w, int64_t cols, float* panel) {
  for (int64_t block = 0; block < cols / 32; ++block) {
    float* to = panel + block * 128;
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const E4m3Pair pair = w.Pair(p, block);
      Store(to + p * 32, JoinRow0(pair.even[0], pair.even[1]));
      Store(to + p * 32 + 16, JoinRow1(pair.even[0], pair.even[1]));
      Store(to + p * 32 + 64, JoinRow0(pair.odd[0], pair.odd[1]));
      Store(to + p * 32 + 80, JoinRow1(pair.odd[0], pair.odd[1]));
    }
  }
}
#endif

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
      MultiplyPanel(args.panel, (args.w->cols + 31) / 32 * 32, args.rows, args.x, args.y, out - args.y_begin,
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
    case WeightFormat::kFp8Aligned:
    case WeightFormat::kFp4Aligned:
      return;  // of another backend
  }
}

}  // namespace
}  // namespace deepinfer::backend::cpu
