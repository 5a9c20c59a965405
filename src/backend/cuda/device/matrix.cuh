// SPDX-License-Identifier: Apache-2.0
// One element of a bound weight matrix, for kernels where the weights are not the cost.
#pragma once

#include "backend/cuda/linear/packed.h"
#include "numeric/formats.h"

namespace deepinfer::backend::cuda {

__device__ inline float WeightAt(const Matrix& m, int64_t row, int64_t col) {
  const auto* data = static_cast<const uint8_t*>(m.data);
  if (IsPacked(m.format)) {
    data += (row / kTileRows * NumChunks(m.cols) + col / kChunkCols) * ChunkBytes(m.format);
  }
  const int r = static_cast<int>(row % kTileRows), c = static_cast<int>(col % kChunkCols);
  switch (m.format) {
    case WeightFormat::kF32:
      return static_cast<const float*>(m.data)[row * m.cols + col];
    case WeightFormat::kBf16:
      return numeric::Bf16ToFloat(*reinterpret_cast<const uint16_t*>(data + Bf16Offset(r, c)));
    case WeightFormat::kFp8Tile32:
      return numeric::E4m3ToFloat(data[Fp8Offset(r, c)]) * numeric::E8m0ToFloat(data[Fp8ScaleOffset(r, c)]);
    case WeightFormat::kFp8Row32:
      return numeric::E4m3ToFloat(data[row * m.cols + col]) * numeric::E8m0ToFloat(m.scale[row * (m.cols / 32) + col / 32]);
    case WeightFormat::kFp4Row32: {
      const int nibble = Fp4Nibble(r, c);
      return numeric::E2m1ToFloat(static_cast<uint8_t>(data[nibble / 2] >> (4 * (nibble & 1)))) *
             numeric::E8m0ToFloat(data[Fp4ScaleOffset(r, c)]);
    }
  }
  return 0.0f;
}

}  // namespace deepinfer::backend::cuda
