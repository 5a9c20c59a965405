// SPDX-License-Identifier: Apache-2.0
// Addresses of rows in the KV caches (layouts: backend/api/types.h). Plain arithmetic; the tables are the caller's duty.
#pragma once

#include <bit>
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
// The layout's sizes, worked out once for many look-ups.
class GlobalRows {
 public:
  explicit GlobalRows(const GlobalCache& cache)
      : cache_(cache),
        shift_(std::countr_zero(static_cast<uint64_t>(cache.rows_per_block()))),
        mask_(static_cast<int32_t>(cache.rows_per_block() - 1)),
        block_bytes_(cache.block_bytes()),
        scales_(cache.latent_scales_offset()),
        index_codes_(cache.index_codes_offset()),
        index_scales_(cache.index_scales_offset()) {}

  GlobalRow Find(int32_t request, int32_t index) const {
    // Rows of a block are a power of two, as ratios are: 128 is a multiple of every ratio.
    const int64_t row = index & mask_;
    auto* block = reinterpret_cast<uint8_t*>(cache_.base) +
                  cache_.blocks[int64_t{request} * cache_.blocks_stride + (index >> shift_)] * block_bytes_;
    return {block + row * (cache_.dim / 2), block + scales_ + row * (cache_.dim / 16),
            block + index_codes_ + row * (cache_.index_dim / 2), block + index_scales_ + row * (cache_.index_dim / 32)};
  }

 private:
  const GlobalCache cache_;
  const int shift_;
  const int32_t mask_;
  const int64_t block_bytes_, scales_, index_codes_, index_scales_;
};

}  // namespace deepinfer::backend::cpu
