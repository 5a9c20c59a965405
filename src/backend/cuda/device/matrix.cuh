// SPDX-License-Identifier: Apache-2.0
// One element of a bound weight matrix, for kernels where the weights are not the cost.
#pragma once

#include "backend/cuda/linear/packed.h"
#include "numeric/formats.h"

namespace deepinfer::backend::cuda {

// A code of kBits bits, of which bit i is bit bit_of(i) of the chunk.
template <int kBits, typename BitOf>
__device__ inline uint8_t PackedCode(const uint8_t* chunk, const BitOf& bit_of) {
  unsigned code = 0;
  for (int i = 0; i < kBits; ++i) code |= (chunk[bit_of(i) / 8] >> bit_of(i) % 8 & 1u) << i;
  return static_cast<uint8_t>(code);
}

// What a row's sum is multiplied with. REQUIRES: IsAligned(m.format)
__device__ inline float RowScaleAt(const Matrix& m, int64_t row) {
  const auto* tile = static_cast<const uint8_t*>(m.data) + row / kTileRows * TileBytes(m.format, m.cols);
  return reinterpret_cast<const float*>(tile + RowScalesOffset(m.format, m.cols))[row % kTileRows];
}

__device__ inline float WeightAt(const Matrix& m, int64_t row, int64_t col) {
  const auto* data = static_cast<const uint8_t*>(m.data);
  if (IsPacked(m.format)) {
    data += row / kTileRows * TileBytes(m.format, m.cols) + col / ChunkCols(m.format) * ChunkBytes(m.format);
  }
  const int r = static_cast<int>(row % kTileRows), c = static_cast<int>(col % ChunkCols(m.format));
  switch (m.format) {
    case WeightFormat::kF32:
      return static_cast<const float*>(m.data)[row * m.cols + col];
    case WeightFormat::kBf16:
      return numeric::Bf16ToFloat(*reinterpret_cast<const uint16_t*>(data + Bf16Offset(r, c)));
    case WeightFormat::kFp8Tile32:
      return numeric::E4m3ToFloat(PackedCode<8>(data, [&](int bit) { return Fp8Bit(r, c, bit); })) *
             numeric::E8m0ToFloat(static_cast<uint8_t>(data[Fp8ScaleOffset(r, c)] - ScaleRepair(m.format)));
    case WeightFormat::kFp8Row32:
      return numeric::E4m3ToFloat(data[row * m.cols + col]) * numeric::E8m0ToFloat(m.scale[row * (m.cols / 32) + col / 32]);
    case WeightFormat::kFp4Row32:
      return numeric::E2m1ToFloat(PackedCode<4>(data, [&](int bit) { return Fp4Bit(r, c, bit); })) *
             numeric::E8m0ToFloat(static_cast<uint8_t>(data[Fp4ScaleOffset(r, c)] - ScaleRepair(m.format)));
    case WeightFormat::kFp8Aligned:
      return numeric::E4m3ToFloat(data[Fp8AlignedOffset(r, c)]) * RowScaleAt(m, row);
    case WeightFormat::kFp4Aligned: {
      const unsigned code = PackedCode<4>(data, [&](int bit) { return Fp4AlignedBit(r, c, bit); });
      const uint32_t table = Fp4AlignedTable(data[Fp4AlignedScaleOffset(r, c)], (code & 4) != 0);
      const uint32_t e4m3 = (table >> (code & 3) * 8 & 0xFFu) | (code & 8) << 4;
      return numeric::E4m3ToFloat(static_cast<uint8_t>(e4m3)) * RowScaleAt(m, row);
    }
  }
  return 0.0f;
}

}  // namespace deepinfer::backend::cuda
