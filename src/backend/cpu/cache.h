// SPDX-License-Identifier: Apache-2.0
// Addresses of rows in the KV caches (layouts: backend/api/types.h). Plain arithmetic; the tables are the caller's duty.
#pragma once

#include <cstdint>

#include "backend/api/types.h"

namespace deepinfer::backend::cpu {

struct WindowRow {
  uint8_t* codes;   // [dim], e4m3
  uint8_t* scales;  // [dim / 32], e8m0
};
inline WindowRow FindWindowRow(const WindowCache& cache, int32_t request, int32_t position) {
  const int64_t entry = int64_t{request} * cache.pages_stride + position / kBlockTokens - cache.first_page[request];
  auto* page = reinterpret_cast<uint8_t*>(cache.base) + cache.pages[entry] * cache.page_bytes();
  const int64_t slot = position % kBlockTokens;
  return {page + slot * cache.dim, page + int64_t{kBlockTokens} * cache.dim + slot * (cache.dim / 32)};
}

struct GlobalRow {
  uint8_t* latent_codes;   // [dim / 2], e2m1 pairs
  uint8_t* latent_scales;  // [dim / 16], e4m3
  uint8_t* index_codes;    // [index_dim / 2], e2m1 pairs
  uint8_t* index_scales;   // [index_dim / 32], e8m0
};
inline GlobalRow FindGlobalRow(const GlobalCache& cache, int32_t request, int32_t index) {
  const int64_t per_block = cache.rows_per_block();
  const int64_t row = index % per_block;
  auto* block = reinterpret_cast<uint8_t*>(cache.base) +
                cache.blocks[int64_t{request} * cache.blocks_stride + index / per_block] * cache.block_bytes();
  return {block + row * (cache.dim / 2), block + cache.latent_scales_offset() + row * (cache.dim / 16),
          block + cache.index_codes_offset() + row * (cache.index_dim / 2),
          block + cache.index_scales_offset() + row * (cache.index_dim / 32)};
}

}  // namespace deepinfer::backend::cpu
