// SPDX-License-Identifier: Apache-2.0
// The layout of a bound weight matrix as the tensor-core kernels read it; that of activations: input_place.h.
//
// A matrix is cut into tiles of 64 outputs, a tile into chunks of 64 inputs; both are padded with zeros. A chunk is one
// contiguous piece of memory that a bulk copy brings into shared memory, and all chunks of a tile follow each other:
// chunk (tile, k) begins at (tile * num_chunks + k) * ChunkBytes(format). Inside, every thread of the warpgroup that
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
#pragma once

#include "backend/api/types.h"
#include "backend/cuda/linear/input_place.h"

namespace deepinfer::backend::cuda {

inline constexpr int kTileRows = 64;
inline constexpr int kStepCols = 16;
inline constexpr int kWarpgroup = 128;

constexpr bool IsPacked(WeightFormat format) {
  return format == WeightFormat::kBf16 || format == WeightFormat::kFp8Tile32 || format == WeightFormat::kFp4Row32;
}

constexpr int ChunkBytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBf16:
      return 8192;
    case WeightFormat::kFp8Tile32:
      return 4096 + 16;
    case WeightFormat::kFp4Row32:
      return 2048 + 128;
    default:
      return 0;
  }
}

constexpr int64_t NumTiles(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }
constexpr int64_t NumChunks(int64_t cols) { return (cols + kChunkCols - 1) / kChunkCols; }
constexpr int64_t PackedBytes(const Matrix& m) { return NumTiles(m.rows) * NumChunks(m.cols) * ChunkBytes(m.format); }

// What makes an e8m0 code the exponent of a bf16 that scales the code's bits, read as a bf16: the bias is 1 for e2m1, 7 for e4m3.
constexpr int ScaleRepair(WeightFormat format) { return format == WeightFormat::kFp4Row32 ? 126 : 120; }
// The largest e8m0 code whose product with the raw exponent field of the element stays inside bf16.
constexpr int ScaleCodeMax(WeightFormat format) { return 254 - ScaleRepair(format); }

// The operand register of the element (row, col) of a chunk, both below 64.
struct Place {
  int thread;
  int step;
  int reg;
  int odd;
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

constexpr int Fp8ScaleOffset(int row, int col) { return 4096 + row / 32 * 2 + col / 32; }

constexpr int Fp4ScaleOffset(int row, int col) {
  return 2048 + (row / 16 * 8 + row % 8) * 4 + row % 16 / 8 * 2 + col / 32;
}

}  // namespace deepinfer::backend::cuda
