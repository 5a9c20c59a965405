// SPDX-License-Identifier: Apache-2.0
// Tells a value that tipped over a rounding boundary from a bug (tests/golden/README.md, "How to compare"). One twin
// over the reference backend keeps what goes into the caches and the index queries: the values before rounding and the
// codes after it. A twin over another backend follows it: codes that came out differently are counted, how far their
// inputs lay apart is kept, and they are replaced by the reference's, so that everything behind them must agree again.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/check.h"
#include "tests/model/forwarding_backend.h"

namespace deepinfer::golden {

class RoundingTwin final : public ForwardingBackend {
 public:
  // One row that is rounded: a latent, a window row, an index key, one head of an index query.
  struct Row {
    std::vector<float> values;     // before
    std::vector<std::byte> codes;  // after
  };
  using Rows = std::vector<Row>;

  RoundingTwin(std::unique_ptr<backend::Backend> inner, Rows* rows, bool follows)
      : ForwardingBackend(std::move(inner)), rows_(*rows), follows_(follows) {}

  int tipped_rows() const { return tipped_rows_; }
  // Of tipped rows: the largest difference of two values before rounding, relative to the row's largest.
  double tipped_distance() const { return tipped_distance_; }

  void StoreWindow(const backend::StoreWindowParams& p) override {
    const auto before = Read(p.kv, p.rows * p.kv_stride);
    ForwardingBackend::StoreWindow(p);
    const auto positions = Read(p.positions, p.rows), requests = Read(p.requests, p.rows);
    for (int64_t i = 0; i < p.rows; ++i) {
      const int64_t request = requests[i], position = positions[i], slot = position % backend::kBlockTokens;
      const int64_t page = position / backend::kBlockTokens - Read(p.cache.first_page + request, 1)[0];
      std::byte* base =
          p.cache.base + Read(p.cache.pages + request * p.cache.pages_stride + page, 1)[0] * p.cache.page_bytes();
      Rounded({before.begin() + i * p.kv_stride, before.begin() + i * p.kv_stride + p.cache.dim},
              {{base + slot * p.cache.dim, p.cache.dim},
               {base + backend::kBlockTokens * p.cache.dim + slot * (p.cache.dim / 32), p.cache.dim / 32}});
    }
  }

  void StoreLatent(const backend::StoreLatentParams& p) override {
    const auto before = Read(p.latent, p.latents * p.cache.dim);
    ForwardingBackend::StoreLatent(p);
    StoredInBlocks(p, before, p.cache.dim, 0, p.cache.dim / 2, p.cache.latent_scales_offset(), p.cache.dim / 16);
  }

  void StoreIndexKey(const backend::StoreIndexKeyParams& p) override {
    const auto before = Read(p.key, p.latents * p.cache.index_dim);
    ForwardingBackend::StoreIndexKey(p);
    StoredInBlocks(p, before, p.cache.index_dim, p.cache.index_codes_offset(), p.cache.index_dim / 2,
                   p.cache.index_scales_offset(), p.cache.index_dim / 32);
  }

  void Rope(const backend::RopeParams& p) override {
    if (!p.round_index) return ForwardingBackend::Rope(p);
    const auto before = Read(p.x, p.rows * p.heads * p.dim);
    ForwardingBackend::Rope(p);
    for (int64_t i = 0; i < p.rows * p.heads; ++i) {
      Rounded({before.begin() + i * p.dim, before.begin() + (i + 1) * p.dim},
              {{reinterpret_cast<std::byte*>(p.x + i * p.dim), p.dim * static_cast<int64_t>(sizeof(float))}});
    }
  }

 private:
  struct Piece {
    std::byte* device;
    int64_t size_bytes;
  };

  template <typename T>
  std::vector<T> Read(const T* device, int64_t count) {
    std::vector<T> host(static_cast<size_t>(count));
    CopyToHost(host.data(), device, host.size() * sizeof(T));
    DI_CHECK(Synchronize().ok());
    return host;
  }

  // Rows whose codes and scales lie in a block of the global cache at these offsets.
  template <typename Params>
  void StoredInBlocks(const Params& p, const std::vector<float>& before, int64_t dim, int64_t codes_offset,
                      int64_t codes_bytes, int64_t scales_offset, int64_t scales_bytes) {
    const auto indices = Read(p.index, p.latents), requests = Read(p.requests, p.latents);
    for (int64_t i = 0; i < p.latents; ++i) {
      if (indices[i] < 0) continue;
      const int64_t block = indices[i] / p.cache.rows_per_block(), row = indices[i] % p.cache.rows_per_block();
      std::byte* base =
          p.cache.base +
          Read(p.cache.blocks + int64_t{requests[i]} * p.cache.blocks_stride + block, 1)[0] * p.cache.block_bytes();
      Rounded({before.begin() + i * dim, before.begin() + (i + 1) * dim},
              {{base + codes_offset + row * codes_bytes, codes_bytes},
               {base + scales_offset + row * scales_bytes, scales_bytes}});
    }
  }

  void Rounded(std::vector<float> values, const std::vector<Piece>& pieces) {
    std::vector<std::byte> codes;
    for (const Piece& piece : pieces) {
      const auto read = Read(piece.device, piece.size_bytes);
      codes.insert(codes.end(), read.begin(), read.end());
    }
    if (!follows_) return rows_.push_back({std::move(values), std::move(codes)});
    DI_CHECK(next_ < rows_.size());
    const Row& expected = rows_[next_++];
    DI_CHECK(expected.values.size() == values.size() && expected.codes.size() == codes.size());
    if (expected.codes == codes) return;
    ++tipped_rows_;
    float largest = 0, apart = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::fabs(expected.values[i]));
      apart = std::max(apart, std::fabs(expected.values[i] - values[i]));
    }
    tipped_distance_ = std::max(tipped_distance_, double{apart} / largest);
    const std::byte* from = expected.codes.data();
    for (const Piece& piece : pieces) {
      CopyToDevice(piece.device, from, static_cast<size_t>(piece.size_bytes));
      from += piece.size_bytes;
    }
  }

  Rows& rows_;
  const bool follows_;
  size_t next_ = 0;
  int tipped_rows_ = 0;
  double tipped_distance_ = 0;
};

}  // namespace deepinfer::golden
