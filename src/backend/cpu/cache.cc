// SPDX-License-Identifier: Apache-2.0
// Writing the caches: window rows, the compressor, latents and index keys (spec/model.md 3, 4, 7).
#include "backend/cpu/cache.h"

#include <algorithm>

#include "backend/cpu/ops.h"
#include "core/check.h"
#include "numeric/quantize.h"

namespace deepinfer::backend::cpu {
namespace {

// What one channel costs to norm, rotate and quantise, in multiply-adds.
constexpr int64_t kStoreWork = 64;

// Finds the tokens that a latent pools: in the batch, or else in the open-group ring.
class PoolSource {
 public:
  explicit PoolSource(const CompressParams& p) : p_(p) {}

  // kv and gate of the token `back` positions before row `last`.
  void Find(int64_t last, int32_t back, const float** kv, const float** gate) const {
    const int64_t row = last - back;
    if (row >= 0 && p_.requests[row] == p_.requests[last] && p_.positions[row] == p_.positions[last] - back) {
      *kv = p_.kv + row * p_.dim;
      *gate = p_.gate + row * p_.dim;
    } else {
      *kv = RingEntry(p_.requests[last], p_.positions[last] - back);
      *gate = *kv + p_.dim;
    }
  }
  float* RingEntry(int32_t request, int32_t position) const {
    return p_.state + (int64_t{p_.ring_slots[request]} * p_.ring + position % p_.ring) * 2 * p_.dim;
  }

 private:
  const CompressParams& p_;
};

constexpr int32_t kRatioMax = kBlockTokens;

}  // namespace

void StoreWindow(Context& context, const StoreWindowParams& p) {
  const int64_t dim = p.cache.dim;
  context.For(p.rows, dim * kStoreWork, [&](int thread, int64_t begin, int64_t end) {
    Arena& arena = context.arena(thread);
    arena.Reset();
    float* kv = arena.Take<float>(dim);
    for (int64_t r = begin; r < end; ++r) {
      context.kernels.rms_norm(p.kv + r * p.kv_stride, p.norm_weight, p.norm_eps, dim, kv);
      context.kernels.rope(kv, dim, p.rope_dim, p.table + r * p.rope_dim);
      const WindowRow row = FindWindowRow(p.cache, p.requests[r], p.positions[r]);
      for (int64_t b = 0; b < dim; b += numeric::kFp8Block) {
        row.scales[b / numeric::kFp8Block] = numeric::QuantizeFp8Block(kv + b, row.codes + b);
      }
    }
  });
}

void Compress(Context& context, const CompressParams& p) {
  DI_CHECK(p.ratio >= 1 && p.ratio <= kRatioMax && (p.ratio == 1 || p.ring >= p.ratio - 1));
  const Kernels& k = context.kernels;
  const PoolSource source(p);
  context.For(p.latents, p.dim * p.ratio * 8, [&](int, int64_t begin, int64_t end) {
    const float *kv[kRatioMax], *gate[kRatioMax];
    for (int64_t l = begin; l < end; ++l) {
      const int64_t last = p.last_row[l];
      if (last < 0) continue;
      float* out = p.out + l * p.dim;
      if (p.ratio == 1) {
        k.rms_norm(p.kv + last * p.dim, p.norm_weight, p.norm_eps, p.dim, out);
        continue;
      }
      for (int32_t t = 0; t < p.ratio; ++t) source.Find(last, p.ratio - 1 - t, &kv[t], &gate[t]);
      k.pool(kv, gate, p.ratio, p.dim, out);
      k.rms_norm(out, p.norm_weight, p.norm_eps, p.dim, out);
    }
  });
  if (p.ratio == 1) return;
  for (int64_t r = 0; r < p.rows; ++r) {
    const bool among_last = r + p.ring >= p.rows || p.requests[r + p.ring] != p.requests[r];
    if (!among_last) continue;
    float* entry = source.RingEntry(p.requests[r], p.positions[r]);
    std::copy_n(p.kv + r * p.dim, p.dim, entry);
    std::copy_n(p.gate + r * p.dim, p.dim, entry + p.dim);
  }
}

void StoreLatent(Context& context, const StoreLatentParams& p) {
  const GlobalRows rows(p.cache);
  const int64_t dim = p.cache.dim;
  context.For(p.latents, dim * kStoreWork, [&](int thread, int64_t begin, int64_t end) {
    Arena& arena = context.arena(thread);
    arena.Reset();
    float* x = arena.Take<float>(dim);
    for (int64_t l = begin; l < end; ++l) {
      if (p.index[l] < 0) continue;
      std::copy_n(p.latent + l * dim, dim, x);
      context.kernels.rope(x, dim, p.rope_dim, p.table + l * p.rope_dim);
      const GlobalRow row = rows.Find(p.requests[l], p.index[l]);
      for (int64_t b = 0; b < dim; b += numeric::kLatentBlock) {
        row.latent_scales[b / numeric::kLatentBlock] = numeric::QuantizeLatentBlock(x + b, row.latent_codes + b / 2);
      }
    }
  });
}

void StoreIndexKey(Context& context, const StoreIndexKeyParams& p) {
  const GlobalRows rows(p.cache);
  const int64_t dim = p.cache.index_dim;
  context.For(p.latents, dim * kStoreWork, [&](int thread, int64_t begin, int64_t end) {
    Arena& arena = context.arena(thread);
    arena.Reset();
    float* key = arena.Take<float>(dim);
    for (int64_t l = begin; l < end; ++l) {
      if (p.index[l] < 0) continue;
      context.kernels.rms_norm(p.key + l * dim, p.norm_weight, p.norm_eps, dim, key);
      context.kernels.rope(key, dim, p.rope_dim, p.table + l * p.rope_dim);
      const GlobalRow row = rows.Find(p.requests[l], p.index[l]);
      for (int64_t b = 0; b < dim; b += numeric::kIndexBlock) {
        row.index_scales[b / numeric::kIndexBlock] = numeric::QuantizeIndexBlock(key + b, row.index_codes + b / 2);
      }
    }
  });
}

}  // namespace deepinfer::backend::cpu
