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
__device__ int RawScale(const Matrix& m, int64_t row, int64_t col) {
  if (row >= m.rows || col >= m.cols) return 127;
  const int64_t scale_row = m.format == WeightFormat::kFp8Tile32 ? row / 32 : row;
  return m.scale[scale_row * (m.cols / 32) + col / 32];
}

// One block a chunk, which is put together in shared memory.
__global__ void PackKernel(Matrix m, uint8_t* out) {
  __shared__ uint32_t words[ChunkBytes(WeightFormat::kBf16) / 4];
  const int64_t num_chunks = NumChunks(m.cols);
  const int64_t row0 = blockIdx.x / num_chunks * kTileRows, col0 = blockIdx.x % num_chunks * kChunkCols;
  const int chunk_bytes = ChunkBytes(m.format);
  for (int i = threadIdx.x; i < chunk_bytes / 4; i += kThreads) words[i] = 0;
  __syncthreads();
  auto* bytes = reinterpret_cast<uint8_t*>(words);
  const auto set = [&](int bit) { atomicOr(&words[bit / 32], 1u << bit % 32); };
  for (int at = threadIdx.x; at < kTileRows * kChunkCols; at += kThreads) {
    const int row = at / kChunkCols, col = at % kChunkCols;
    if (m.format == WeightFormat::kBf16) {
      *reinterpret_cast<uint16_t*>(bytes + Bf16Offset(row, col)) = Raw<uint16_t>(m, row0 + row, col0 + col);
    } else if (m.format == WeightFormat::kFp8Tile32) {
      const unsigned code = Raw<uint8_t>(m, row0 + row, col0 + col);
      for (int bit = 0; bit < 8; ++bit) {
        if (code >> bit & 1) set(Fp8Bit(row, col, bit));
      }
    } else {
      const unsigned code = RawNibble(m, row0 + row, col0 + col);
      for (int bit = 0; bit < 4; ++bit) {
        if (code >> bit & 1) set(Fp4Bit(row, col, bit));
      }
    }
    const bool fp4 = m.format == WeightFormat::kFp4Row32, fp8 = m.format == WeightFormat::kFp8Tile32;
    if (col % 32 == 0 && (fp4 || (fp8 && row % 32 == 0))) {
      bytes[fp4 ? Fp4ScaleOffset(row, col) : Fp8ScaleOffset(row, col)] =
          static_cast<uint8_t>(RawScale(m, row0 + row, col0 + col) + ScaleRepair(m.format));
    }
  }
  __syncthreads();
  auto* packed = reinterpret_cast<uint32_t*>(out + int64_t{blockIdx.x} * chunk_bytes);
  for (int i = threadIdx.x; i < chunk_bytes / 4; i += kThreads) packed[i] = words[i];
}

}  // namespace

void Pack(cudaStream_t stream, const Matrix& row_major, void* out) {
  const int64_t chunks = NumTiles(row_major.rows) * NumChunks(row_major.cols);
  if (chunks > 0) PackKernel<<<static_cast<unsigned>(chunks), kThreads, 0, stream>>>(row_major, static_cast<uint8_t*>(out));
}

}  // namespace deepinfer::backend::cuda
