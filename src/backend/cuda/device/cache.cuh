// SPDX-License-Identifier: Apache-2.0
// Where a row of the caches lies; layouts in backend/api/types.h.
#pragma once

#include "backend/api/types.h"

namespace deepinfer::backend::cuda {

struct WindowRow {
  uint8_t* codes;   // [dim]
  uint8_t* scales;  // [dim / 32]
};

__device__ inline WindowRow FindWindowRow(const WindowCache& cache, int32_t request, int32_t position) {
  const int32_t entry = position / kBlockTokens - cache.first_page[request];
  const int64_t page = cache.pages[int64_t{request} * cache.pages_stride + entry];
  const int slot = position % kBlockTokens;
  auto* base = reinterpret_cast<uint8_t*>(cache.base) + page * cache.page_bytes();
  return {base + slot * cache.dim, base + kBlockTokens * cache.dim + slot * (cache.dim / 32)};
}

struct GlobalRow {
  uint8_t* latent_codes;   // [dim / 2]
  uint8_t* latent_scales;  // [dim / 16]
  uint8_t* index_codes;    // [index_dim / 2]
  uint8_t* index_scales;   // [index_dim / 32]
};

__device__ inline GlobalRow FindGlobalRow(const GlobalCache& cache, int32_t request, int32_t index) {
  const int n = kBlockTokens / cache.ratio;
  const int64_t block = cache.blocks[int64_t{request} * cache.blocks_stride + index / n];
  const int row = index % n;
  auto* base = reinterpret_cast<uint8_t*>(cache.base) + block * cache.block_bytes();
  return {base + row * (cache.dim / 2), base + cache.latent_scales_offset() + row * (cache.dim / 16),
          base + cache.index_codes_offset() + row * (cache.index_dim / 2),
          base + cache.index_scales_offset() + row * (cache.index_dim / 32)};
}

}  // namespace deepinfer::backend::cuda
