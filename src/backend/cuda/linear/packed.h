// SPDX-License-Identifier: Apache-2.0
// The layout of a bound weight matrix as the tensor-core kernels read it; that of activations: input_place.h.
//
// A matrix is cut into tiles of 64 outputs, a tile into chunks of 64 inputs, or 128 of the aligned formats; both are padded with
// zeros. A chunk is one contiguous piece of memory that a bulk copy brings into shared memory, and all chunks of a tile follow each
// other: chunk (tile, k) begins at tile * TileBytes(format, cols) + k * ChunkBytes(format). Inside, every thread of the warpgroup that
// multiplies it finds its own operand registers as 8- or 16-byte words, neighbouring threads next to each other. In the
// register fragment of a 64x16 step, thread t = warp * 32 + g * 4 + c holds in register `reg` the rows
// warp * 16 + g + 8 * (reg & 1) and the inputs 2 * c + 8 * (reg >> 1) + {0, 1}. The rows of either parity of `reg` lie apart,
// so that a warpgroup can take 32 rows of gate and the same 32 of up as its 64 (gate and up of an output in one thread).
//
//   format       a chunk, bytes                                                in all
//   kBf16        [reg & 1][step / 2][thread 128][step % 2][reg >> 1][2 values]   8192
//   kFp8Tile32   [reg & 1][thread 128][step 4][4 bytes]                          4096 + 16: [row / 32][input / 32], padding
//   kFp4Row32    [reg & 1][thread 128][2 words]                                  2048 + 128: [warp][g][reg & 1][input / 32]
//
// Behind the codes lie the scales as exponents of bf16: e8m0 code + ScaleRepair(format) (decode_sm90.cuh). The codes' bits are
// spread so that few masks and shifts bring them to their places in a bf16; either half of a 32-bit word serves one of the
// two values of a register (`odd`), bit numbers below are those of a half:
//
//   kFp8Tile32: reg >> 1 = 0: magnitude at 4 .. 10, sign at 15: where bf16 has them. 1: magnitude at 0 .. 3, 12 .. 14, sign at 11.
//   kFp4Row32: register i = step * 2 + (reg >> 1) of eight has its bits where a turn to the right by 2 i of a word brings them
//   to 6, 7, 8 (magnitude) and 15 (sign): i = 0, 2, 5 in the first word; 1, 3, 6 in the second; 4, 7 in what the first holds at
//   kFp4FirstMask and the second elsewhere. (The turns of {6, 7, 8, 15} by four amounts never fill 16 bits; eight fill 32.)
//
// kF32 and kFp8Row32 (Engram tables) stay row-major.
//
// The aligned formats are for products of e4m3 codes. Codes are relative to the largest scale of their row (kFp4Aligned) or 32 rows
// (kFp8Aligned), so that a row's sum is multiplied once, by the row's scale: 64 floats behind a tile's chunks. What a smaller scale
// makes too small for e4m3 is rounded to it, to nearest even. A step has 32 inputs: register `reg` holds the inputs
// 4 * c + 16 * (reg >> 1) + {0 .. 3} of the rows above.
//
//   kFp8Aligned   [reg & 1][step / 2][thread 128][step % 2][reg >> 1][4 codes]   8192
//   kFp4Aligned   [reg & 1][thread 128][step 4][4 bytes]                         4096 + 256: [warp][g][reg & 1][step]
//
// A word of kFp4Aligned holds eight codes, 0 .. 3 for reg >> 1 = 0 and 4 .. 7 for 1: the magnitude of code i at 4 i, where `prmt`
// wants its selectors; the sign of code i < 4 at 8 i + 7, that of code 4 + i at 8 i + 3. The scale s of a block, in 0 .. 11, says which
// e4m3 codes stand for the magnitudes: e2m1 * 2^(s - 5) (Fp4AlignedTable).
#pragma once

#include "backend/api/types.h"
#include "backend/cuda/linear/input_place.h"

namespace deepinfer::backend::cuda {

inline constexpr int kTileRows = 64;
inline constexpr int kStepCols = 16;
inline constexpr int kAlignedStepCols = 32;
inline constexpr int kWarpgroup = 128;

constexpr bool IsAligned(WeightFormat format) {
  return format == WeightFormat::kFp8Aligned || format == WeightFormat::kFp4Aligned;
}
constexpr bool IsPacked(WeightFormat format) {
  return format == WeightFormat::kBf16 || format == WeightFormat::kFp8Tile32 || format == WeightFormat::kFp4Row32 || IsAligned(format);
}
constexpr int ChunkCols(WeightFormat format) { return IsAligned(format) ? kAlignedChunkCols : kChunkCols; }

constexpr int ChunkBytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBf16:
      return 8192;
    case WeightFormat::kFp8Tile32:
      return 4096 + 16;
    case WeightFormat::kFp4Row32:
      return 2048 + 128;
    case WeightFormat::kFp8Aligned:
      return 8192;
    case WeightFormat::kFp4Aligned:
      return 4096 + 256;
    default:
      return 0;
  }
}

inline constexpr int64_t kAlignedColsMax = 16384;  // what a block holds of a row of inputs
// The form in which a matrix is bound that is read with `activations`.
constexpr WeightFormat BoundFormat(const Matrix& m, Activations activations, int64_t aligned_cols_min) {
  const bool suits = m.cols % kAlignedChunkCols == 0 && m.cols >= aligned_cols_min && m.cols <= kAlignedColsMax;
  if (activations != Activations::kFp8 || !suits) return m.format;
  return m.format == WeightFormat::kFp8Tile32 ? WeightFormat::kFp8Aligned
         : m.format == WeightFormat::kFp4Row32 ? WeightFormat::kFp4Aligned : m.format;
}

constexpr int64_t NumTiles(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }
constexpr int64_t NumChunks(WeightFormat format, int64_t cols) { return (cols + ChunkCols(format) - 1) / ChunkCols(format); }
// Where the scales of a tile's rows begin in it.
constexpr int64_t RowScalesOffset(WeightFormat format, int64_t cols) { return NumChunks(format, cols) * ChunkBytes(format); }
constexpr int64_t TileBytes(WeightFormat format, int64_t cols) {
  return RowScalesOffset(format, cols) + (IsAligned(format) ? kTileRows * 4 : 0);
}
constexpr int64_t PackedBytes(WeightFormat format, int64_t rows, int64_t cols) { return NumTiles(rows) * TileBytes(format, cols); }

// What makes an e8m0 code the exponent of a bf16 that scales the code's bits, read as a bf16: the bias is 1 for e2m1, 7 for e4m3.
constexpr int ScaleRepair(WeightFormat format) { return format == WeightFormat::kFp4Row32 ? 126 : 120; }
// The largest e8m0 code whose product with the raw exponent field of the element stays inside bf16.
constexpr int ScaleCodeMax(WeightFormat format) { return 254 - ScaleRepair(format); }

// The operand register of the element (row, col) of a chunk, both below 64.
struct Place {
  int thread;
  int step;
  int reg;
  int odd;  // which of the register's two
};

constexpr Place FragmentPlace(int row, int col) {
  const int in_step = col % kStepCols;
  return {row / 16 * 32 + row % 8 * 4 + in_step % 8 / 2, col / kStepCols, row % 16 / 8 + in_step / 8 * 2, in_step % 2};
}

constexpr int Bf16Offset(int row, int col) {
  const Place p = FragmentPlace(row, col);
  return p.reg % 2 * 4096 + p.step / 2 * 2048 + p.thread * 16 + p.step % 2 * 8 + p.reg / 2 * 4 + p.odd * 2;
}

// Bit `bit` of an element's code is bit BitOf... % 8 of the chunk's byte BitOf... / 8.
constexpr int Fp8Bit(int row, int col, int bit) {
  const Place p = FragmentPlace(row, col);
  constexpr int kSecond[8] = {0, 1, 2, 3, 12, 13, 14, 11};
  const int in_half = p.reg / 2 == 0 ? (bit < 7 ? 4 + bit : 15) : kSecond[bit];
  return (p.reg % 2 * 2048 + p.thread * 16 + p.step * 4) * 8 + p.odd * 16 + in_half;
}

// The bits of the first word that registers 4 and 7 use, in both halves; of the second word they use the others.
inline constexpr uint32_t kFp4FirstMask = 0x60306030u;

constexpr int Fp4Bit(int row, int col, int bit) {
  const Place p = FragmentPlace(row, col);
  const int i = p.step * 2 + p.reg / 2;
  const int goal = p.odd * 16 + (bit < 3 ? 6 + bit : 15);
  const int at = i < 5 ? (goal + 2 * i) % 32 : goal - (16 - 2 * i);  // a turn by 2 i, or a shift to the left by what is missing to 16
  const bool mixed = i == 4 || i == 7;
  const bool second = mixed ? (kFp4FirstMask >> at & 1) == 0 : i == 1 || i == 3 || i == 6;
  return (p.reg % 2 * 1024 + p.thread * 8 + (second ? 4 : 0)) * 8 + at;
}

// The same of a chunk of an aligned format, whose columns are below 128; odd: which of the register's four.
constexpr Place AlignedPlace(int row, int col) {
  const int in_step = col % kAlignedStepCols;
  return {row / 16 * 32 + row % 8 * 4 + in_step % 16 / 4, col / kAlignedStepCols, row % 16 / 8 + in_step / 16 * 2, in_step % 4};
}

constexpr int Fp8AlignedOffset(int row, int col) {
  const Place p = AlignedPlace(row, col);
  return p.reg % 2 * 4096 + p.step / 2 * 2048 + p.thread * 16 + p.step % 2 * 8 + p.reg / 2 * 4 + p.odd;
}

constexpr int Fp4AlignedBit(int row, int col, int bit) {
  const Place p = AlignedPlace(row, col);
  const int in_word = bit < 3 ? p.reg / 2 * 16 + p.odd * 4 + bit : p.odd * 8 + (p.reg < 2 ? 7 : 3);
  return (p.reg % 2 * 2048 + p.thread * 16 + p.step * 4) * 8 + in_word;
}

constexpr int Fp4AlignedScaleOffset(int row, int col) {
  return 4096 + (row / 16 * 8 + row % 8) * 8 + row % 16 / 8 * 4 + col / kAlignedStepCols;
}

inline constexpr int kFp4ScaleMost = 11;
// The e4m3 codes of the magnitudes 0 .. 3 or, high, 4 .. 7 of a block with scale s, a byte each.
constexpr uint32_t Fp4AlignedTable(uint32_t s, bool high) {
  return high ? 0x24201C18u + s * 0x08080808u : 0x14100800u + s * 0x08080800u;
}
// What a row's sum is multiplied with is 2^(e8m0 code of the largest scale - this).
constexpr int AlignedBias(WeightFormat format) { return format == WeightFormat::kFp4Aligned ? 127 + 6 : 127; }

constexpr int Fp8ScaleOffset(int row, int col) { return 4096 + row / 32 * 2 + col / 32; }

constexpr int Fp4ScaleOffset(int row, int col) {
  return 2048 + (row / 16 * 8 + row % 8) * 4 + row % 16 / 8 * 2 + col / 32;
}

}  // namespace deepinfer::backend::cuda
