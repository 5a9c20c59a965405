// SPDX-License-Identifier: Apache-2.0
// Rewrites a row-major matrix into the layout of packed.h. Runs once a matrix, at load.
#include "backend/cuda/linear/pack.h"

#include "backend/cuda/linear/packed.h"
#include "numeric/formats.h"

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
  const int64_t num_chunks = NumChunks(m.format, m.cols);
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

__device__ bool AnyNotZero(const Matrix& m, int64_t row, int64_t col) {
  const bool fp4 = m.format == WeightFormat::kFp4Row32;
  const int64_t at = row * m.cols + col;
  const auto* codes = reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(m.data) + (fp4 ? at / 2 : at));
  const uint32_t magnitudes = fp4 ? 0x77777777u : 0x7F7F7F7Fu;
  uint32_t any = 0;
  for (int i = 0; i < (fp4 ? 1 : 2); ++i) any |= codes[i].x | codes[i].y | codes[i].z | codes[i].w;
  return (any & magnitudes) != 0;
}

// One block the rows that share scales: the largest of them, blocks of zeros left out, to their places behind the tiles.
__global__ void RowScalesKernel(Matrix m, WeightFormat format, uint8_t* out) {
  __shared__ int largest;
  const int rows = m.format == WeightFormat::kFp8Tile32 ? 32 : 1;
  const int64_t row0 = int64_t{blockIdx.x} * rows, blocks = m.cols / 32;
  if (threadIdx.x == 0) largest = -1;
  __syncthreads();
  int most = -1;
  if (row0 < m.rows) {
    for (int64_t i = threadIdx.x; i < rows * blocks; i += kThreads) {
      const int64_t row = row0 + i / blocks, col = i % blocks * 32;
      if (AnyNotZero(m, row, col)) most = max(most, RawScale(m, row, col));
    }
  }
  atomicMax(&largest, most);
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= rows) return;
  const int64_t row = row0 + threadIdx.x;
  auto* scales = reinterpret_cast<float*>(out + row / kTileRows * TileBytes(format, m.cols) + RowScalesOffset(format, m.cols));
  scales[row % kTileRows] = largest < 0 ? 1.0f : ldexpf(1.0f, largest - AlignedBias(format));
}

// One block a chunk, behind RowScalesKernel.
__global__ void PackAlignedKernel(Matrix m, WeightFormat format, uint8_t* out) {
  __shared__ uint32_t words[ChunkBytes(WeightFormat::kFp8Aligned) / 4];
  const int64_t num_chunks = NumChunks(format, m.cols), tile = blockIdx.x / num_chunks, chunk = blockIdx.x % num_chunks;
  const int chunk_bytes = ChunkBytes(format);
  const bool fp4 = format == WeightFormat::kFp4Aligned;
  uint8_t* tile_data = out + tile * TileBytes(format, m.cols);
  const auto* row_scales = reinterpret_cast<const float*>(tile_data + RowScalesOffset(format, m.cols));
  for (int i = threadIdx.x; i < chunk_bytes / 4; i += kThreads) words[i] = 0;
  __syncthreads();
  auto* bytes = reinterpret_cast<uint8_t*>(words);
  for (int at = threadIdx.x; at < kTileRows * kAlignedChunkCols; at += kThreads) {
    const int r = at / kAlignedChunkCols, c = at % kAlignedChunkCols;
    const int64_t row = tile * kTileRows + r, col = chunk * kAlignedChunkCols + c;
    const int largest = ilogbf(row_scales[r]) + AlignedBias(format), below = largest - RawScale(m, row, col);  // < 0: a block of zeros
    if (!fp4) {
      const unsigned code = Raw<uint8_t>(m, row, col);
      bytes[Fp8AlignedOffset(r, c)] = numeric::FloatToE4m3(ldexpf(numeric::E4m3ToFloat(static_cast<uint8_t>(code)), -max(below, 0)));
      continue;
    }
    unsigned code = RawNibble(m, row, col);
    const int lost = max(below - kFp4ScaleMost, 0);
    if (lost > 0) code = numeric::FloatToE2m1(ldexpf(numeric::E2m1ToFloat(static_cast<uint8_t>(code)), -lost));
    for (int bit = 0; bit < 4; ++bit) {
      const int place = Fp4AlignedBit(r, c, bit);
      if (code >> bit & 1) atomicOr(&words[place / 32], 1u << place % 32);
    }
    if (c % 32 == 0) bytes[Fp4AlignedScaleOffset(r, c)] = static_cast<uint8_t>(min(max(kFp4ScaleMost - below, 0), kFp4ScaleMost));
  }
  __syncthreads();
  auto* packed = reinterpret_cast<uint32_t*>(tile_data + chunk * chunk_bytes);
  for (int i = threadIdx.x; i < chunk_bytes / 4; i += kThreads) packed[i] = words[i];
}

}  // namespace

void Pack(cudaStream_t stream, const Matrix& row_major, WeightFormat format, void* out) {
  const int64_t tiles = NumTiles(row_major.rows), chunks = tiles * NumChunks(format, row_major.cols);
  if (chunks == 0) return;
  auto* bytes = static_cast<uint8_t*>(out);
  if (!IsAligned(format)) {
    PackKernel<<<static_cast<unsigned>(chunks), kThreads, 0, stream>>>(row_major, bytes);
    return;
  }
  const int64_t rows = row_major.format == WeightFormat::kFp8Tile32 ? 32 : 1;
  RowScalesKernel<<<static_cast<unsigned>(tiles * kTileRows / rows), kThreads, 0, stream>>>(row_major, format, bytes);
  PackAlignedKernel<<<static_cast<unsigned>(chunks), kThreads, 0, stream>>>(row_major, format, bytes);
}

}  // namespace deepinfer::backend::cuda
