// SPDX-License-Identifier: Apache-2.0
// The layout of a bound weight matrix, and of activations, as the tensor-core kernels read them.
//
// A matrix is cut into tiles of 64 outputs, a tile into chunks of 64 inputs; both are padded with zeros. A chunk is one
// contiguous piece of memory that a bulk copy brings into shared memory, and all chunks of a tile follow each other:
// chunk (tile, k) begins at (tile * num_chunks + k) * ChunkBytes(format). Inside, every thread of the warpgroup that
// multiplies it finds its own operand registers as 16-byte words, neighbouring threads next to each other. In the
// register fragment of a 64x16 step, thread t = warp * 32 + g * 4 + c holds in register `reg` the rows
// warp * 16 + g + 8 * (reg & 1) and the inputs 2 * c + 8 * (reg >> 1) + {0, 1}.
//
//   format       a chunk, bytes                                            in all
//   kBf16        [step 4][thread 128][reg 4][2 values]                     8192
//   kFp8Tile32   [step / 2][thread 128][step % 2][word 2][4 bytes]         4096 + 16: e8m0 [row / 32][input / 32], padding
//                word = reg >> 1; reg 0: bytes 1, 3; reg 1: bytes 0, 2
//   kFp4Row32    [thread 128][step 4][4 bytes]                             2048 + 128: e8m0 [warp][g][input / 32][reg & 1]
//                register i: bits 12 - 4i .. 15 - 4i of either half
//
// kF32 and kFp8Row32 (Engram tables) stay row-major.
//
// Activations are cut into groups of 8 rows and chunks of 64 inputs of bf16: an atom of 1024 bytes in the 128-byte swizzle
// of the tensor cores (row r at 128 * r, its 16-byte unit u at 16 * (u ^ r)). Atoms lie [chunk][part][row group].
#pragma once

#include "backend/api/types.h"

namespace deepinfer::backend::cuda {

inline constexpr int kTileRows = 64;
inline constexpr int kChunkCols = 64;
inline constexpr int kStepCols = 16;
inline constexpr int kWarpgroup = 128;
inline constexpr int kGroupRows = 8;
inline constexpr int kAtomBytes = 1024;

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

// The largest e8m0 code whose product with the raw exponent field of the element stays inside bf16.
constexpr int ScaleCodeMax(WeightFormat format) { return format == WeightFormat::kFp4Row32 ? 128 : 134; }

// Where the element (row, col) of a chunk lies, both below 64: byte offset for kBf16 and kFp8Tile32, and for kFp4Row32
// the byte offset times two plus the nibble.
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
  return p.step * 2048 + p.thread * 16 + p.reg * 4 + p.odd * 2;
}

constexpr int Fp8Offset(int row, int col) {
  const Place p = FragmentPlace(row, col);
  return p.step / 2 * 2048 + p.thread * 16 + p.step % 2 * 8 + p.reg / 2 * 4 + 2 * p.odd + (p.reg % 2 == 0 ? 1 : 0);
}

constexpr int Fp4Nibble(int row, int col) {
  const Place p = FragmentPlace(row, col);
  return (p.thread * 16 + p.step * 4) * 2 + p.odd * 4 + 3 - p.reg;
}

constexpr int Fp8ScaleOffset(int row, int col) { return 4096 + row / 32 * 2 + col / 32; }

constexpr int Fp4ScaleOffset(int row, int col) {
  return 2048 + (row / 16 * 8 + row % 8) * 4 + col / 32 * 2 + row % 16 / 8;
}

}  // namespace deepinfer::backend::cuda
