// SPDX-License-Identifier: Apache-2.0
// What the parameter structs of all ops share: weight matrices, activation types, and views of the KV caches.
// Everything is plain data. A pointer called "device" below is an address that kernels of the backend can read; on the
// CPU that is ordinary memory, weights included, which stay where the checkpoint is mapped.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepinfer::backend {

// How the input of a matrix is rounded before the product (spec/model.md 7). Part of the numeric identity.
enum class Activations {
  kFp32,  // not at all
  kBf16,  // to bf16
  kFp8,   // to e4m3 with a power-of-two scale per 32 channels before FP8 and FP4 matrices, before others to bf16
};

// How a weight matrix lies in memory; scales are powers of two (e8m0), so code * scale is exact in bf16.
enum class WeightFormat {
  kF32,
  kBf16,
  kFp8Tile32,  // e4m3; scale[row / 32][col / 32]
  kFp8Row32,   // e4m3; scale[row][col / 32]
  kFp4Row32,   // two e2m1 a byte, the even column in the low nibble; scale[row][col / 32]
  // Forms that only a backend makes, in a layout of its own: codes relative to one scale a row.
  kFp8Aligned,  // of a kFp8Tile32
  kFp4Aligned,  // of a kFp4Row32
};

// A weight matrix [rows = outputs, cols = inputs], row-major, no padding (but in a backend's own layout). data has no alignment: a
// mapped file promises none. For the block formats cols is a multiple of 32 (and rows, for tiles).
struct Matrix {
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* data = nullptr;
  const uint8_t* scale = nullptr;  // e8m0; nullptr for kF32 and kBf16
};

// What the input of `w` is rounded to: never kFp8 before a matrix without scales.
constexpr Activations EffectiveActivations(Activations activations, const Matrix& w) {
  return activations == Activations::kFp8 && w.scale == nullptr ? Activations::kBf16 : activations;
}

inline size_t MatrixRowBytes(const Matrix& m) {
  const auto cols = static_cast<size_t>(m.cols);
  switch (m.format) {
    case WeightFormat::kF32:
      return cols * 4;
    case WeightFormat::kBf16:
      return cols * 2;
    case WeightFormat::kFp8Tile32:
    case WeightFormat::kFp8Row32:
      return cols;
    case WeightFormat::kFp4Row32:
      return cols / 2;
    case WeightFormat::kFp8Aligned:
    case WeightFormat::kFp4Aligned:
      break;  // no rows
  }
  return 0;
}

// Tokens per block of the global cache and per window page.
inline constexpr int kBlockTokens = 128;

// Window KV of one layer. Position p of request i lies in page pages[i * pages_stride + p / 128 - first_page[i]],
// slot p mod 128. A page is
//   [0, 128 * dim)          e4m3 codes, slot by slot
//   [128 * dim, + 4 * dim)  e8m0 scales, slot by slot, dim / 32 each
// (dim 512: 67,584 bytes). Nothing is overwritten while it can still be read, so rejected rows need no undo.
struct WindowCache {
  std::byte* base = nullptr;            // device
  const int32_t* pages = nullptr;       // device, [requests, pages_stride]
  const int32_t* first_page = nullptr;  // device, [requests]
  int32_t pages_stride = 0;
  int32_t dim = 0;

  constexpr int64_t page_bytes() const { return int64_t{kBlockTokens} * (dim + dim / 32); }
  bool operator==(const WindowCache&) const = default;
};

// Compressed KV and index keys of one KV source. Latent j of request i (tokens j*ratio .. j*ratio + ratio - 1) lies in
// block blocks[i * blocks_stride + j / n], row j mod n, where n = 128 / ratio. A block is, each part row by row,
//   n * dim / 2          e2m1 pairs of the latents       (even channel in the low nibble)
//   n * dim / 16         e4m3 scales of the latents
//   n * index_dim / 2    e2m1 pairs of the index keys
//   n * index_dim / 32   e8m0 scales of the index keys
// (dim 512, index_dim 128: 356 bytes a row.)
struct GlobalCache {
  std::byte* base = nullptr;        // device
  const int32_t* blocks = nullptr;  // device, [requests, blocks_stride]
  int32_t blocks_stride = 0;
  int32_t ratio = 1;
  int32_t dim = 0;
  int32_t index_dim = 0;

  constexpr int64_t rows_per_block() const { return kBlockTokens / ratio; }
  constexpr int64_t latent_scales_offset() const { return rows_per_block() * (dim / 2); }
  constexpr int64_t index_codes_offset() const { return latent_scales_offset() + rows_per_block() * (dim / 16); }
  constexpr int64_t index_scales_offset() const { return index_codes_offset() + rows_per_block() * (index_dim / 2); }
  constexpr int64_t block_bytes() const { return index_scales_offset() + rows_per_block() * (index_dim / 32); }
  bool operator==(const GlobalCache&) const = default;
};

}  // namespace deepinfer::backend
