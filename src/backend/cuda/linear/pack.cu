// SPDX-License-Identifier: Apache-2.0
// Rewrites a row-major matrix into the layout of packed.h. Runs once a matrix, at load.
#include "backend/cuda/linear/pack.h"

#include "backend/cuda/linear/packed.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__device__ T Raw(const Matrix& m, int64_t row, int64_t col) {
  return row < m.rows && col < m.cols ? static_cast<const T*>(m.data)[row * m.cols + col] : T{0};
}

__device__ unsigned RawNibble(const Matrix& m, int64_t row, int64_t col) {
  if (row >= m.rows || col >= m.cols) return 0;
  return static_cast<const uint8_t*>(m.data)[(row * m.cols + col) / 2] >> (4 * (col & 1)) & 0xF;
}

// Scale code of a block of 32 inputs; 127 (one) in the padding, where the codes are zero.
__device__ uint8_t RawScale(const Matrix& m, int64_t row, int64_t col) {
  if (row >= m.rows || col >= m.cols) return 127;
  const int64_t scale_row = m.format == WeightFormat::kFp8Tile32 ? row / 32 : row;
  return m.scale[scale_row * (m.cols / 32) + col / 32];
}

// One block a chunk.
__global__ void PackKernel(Matrix m, uint8_t* out) {
  const int64_t num_chunks = NumChunks(m.cols);
  const int64_t row0 = blockIdx.x / num_chunks * kTileRows, col0 = blockIdx.x % num_chunks * kChunkCols;
  out += int64_t{blockIdx.x} * ChunkBytes(m.format);
  for (int at = threadIdx.x; at < kTileRows * kChunkCols; at += kThreads) {
    const int row = at / kChunkCols, col = at % kChunkCols;
    if (m.format == WeightFormat::kBf16) {
      *reinterpret_cast<uint16_t*>(out + Bf16Offset(row, col)) = Raw<uint16_t>(m, row0 + row, col0 + col);
    } else if (m.format == WeightFormat::kFp8Tile32) {
      out[Fp8Offset(row, col)] = Raw<uint8_t>(m, row0 + row, col0 + col);
      if (row % 32 == 0 && col % 32 == 0) out[Fp8ScaleOffset(row, col)] = RawScale(m, row0 + row, col0 + col);
    } else {
      // The two nibbles of a byte are registers 2j and 2j + 1 of the same column: the rows r (odd register) and r + 8.
      const Place place = FragmentPlace(row, col);
      if (place.reg % 2 == 0) {
        out[Fp4Nibble(row, col) / 2] = static_cast<uint8_t>(RawNibble(m, row0 + row, col0 + col) << 4 |
                                                            RawNibble(m, row0 + row + 8, col0 + col));
      }
      if (col % 32 == 0) out[Fp4ScaleOffset(row, col)] = RawScale(m, row0 + row, col0 + col);
    }
  }
}

}  // namespace

void Pack(cudaStream_t stream, const Matrix& row_major, void* out) {
  const int64_t chunks = NumTiles(row_major.rows) * NumChunks(row_major.cols);
  if (chunks > 0) PackKernel<<<static_cast<unsigned>(chunks), kThreads, 0, stream>>>(row_major, static_cast<uint8_t*>(out));
}

}  // namespace deepinfer::backend::cuda
