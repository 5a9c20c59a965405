// SPDX-License-Identifier: Apache-2.0
// Where activations lie that the tensor-core kernels read. They are cut into groups of 8 rows and chunks of 64 inputs of bf16: an atom of
// 1024 bytes in the 128-byte swizzle of the tensor cores (row r at 128 * r, its 16-byte unit u at 16 * (u ^ r)). Atoms lie
// [chunk][part][row group].
// For aligned matrices (packed.h) an atom holds 128 inputs, an e4m3 code each relative to the row's largest MXFP8 scale; behind all atoms
// lie the rows' scales, a float for each row of the groups.
#pragma once

#include <cstdint>

namespace deepinfer::backend::cuda {

inline constexpr int kChunkCols = 64;
inline constexpr int kAlignedChunkCols = 128;
inline constexpr int kGroupRows = 8;
inline constexpr int kAtomBytes = 1024;

// Of one part of a chunk of inputs.
constexpr int64_t PartBytes(int64_t rows) { return (rows + kGroupRows - 1) / kGroupRows * kAtomBytes; }
// Where a row begins in a chunk of one part, and in it one of its eight units of eight values.
constexpr int64_t InputRow(int64_t row) { return row / kGroupRows * kAtomBytes + row % kGroupRows * 128; }
constexpr int InputUnit(int row, int unit) { return (unit ^ row % kGroupRows) * 16; }
// Where a value lies in inputs of one part.
constexpr int64_t InputPlace(int64_t row, int64_t column, int64_t part_bytes) {
  const auto in_group = static_cast<int>(row % kGroupRows), unit = static_cast<int>(column % kChunkCols / 8);
  return column / kChunkCols * part_bytes + InputRow(row) + InputUnit(in_group, unit) + column % 8 * 2;
}
// The same in inputs for aligned matrices.
constexpr int64_t AlignedInputPlace(int64_t row, int64_t column, int64_t part_bytes) {
  const auto in_group = static_cast<int>(row % kGroupRows), unit = static_cast<int>(column % kAlignedChunkCols / 16);
  return column / kAlignedChunkCols * part_bytes + InputRow(row) + InputUnit(in_group, unit) + column % 16;
}

}  // namespace deepinfer::backend::cuda
