// SPDX-License-Identifier: Apache-2.0
// Writing the caches: window rows, the compressor, latents and index keys (spec/model.md 3, 4, 7).
#include <algorithm>
#include <cmath>

#include "backend/reference/decode.h"
#include "backend/reference/ops.h"
#include "core/check.h"
#include "numeric/quantize.h"

namespace deepinfer::backend::reference {
namespace {

std::vector<float> NormAndRotate(const float* x, int64_t dim, const float* weight, float eps, int64_t rope_dim,
                                 const float* table) {
  Row value(x, x + dim);
  const double scale = InverseRms(x, dim, eps);
  for (int64_t i = 0; i < dim; ++i) value[static_cast<size_t>(i)] *= scale * weight[i];
  Rotate(value.data(), dim, rope_dim, table);
  return std::vector<float>(value.begin(), value.end());
}

}  // namespace

void StoreWindow(const StoreWindowParams& p) {
  const int64_t dim = p.cache.dim;
  for (int64_t r = 0; r < p.rows; ++r) {
    const std::vector<float> kv = NormAndRotate(p.kv + r * p.kv_stride, dim, p.norm_weight, p.norm_eps, p.rope_dim,
                                                p.table + r * p.rope_dim);
    const WindowRow row = FindWindowRow(p.cache, p.requests[r], p.positions[r]);
    for (int64_t b = 0; b < dim; b += numeric::kFp8Block) {
      row.scales[b / numeric::kFp8Block] = numeric::QuantizeFp8Block(kv.data() + b, row.codes + b);
    }
  }
}

void Compress(const CompressParams& p) {
  DI_CHECK(p.ratio == 1 || p.ring >= p.ratio - 1);
  // kv and gate of the token `back` positions before row `last`, from the batch or from the ring.
  const auto token = [&](int64_t last, int32_t back) -> std::pair<const float*, const float*> {
    const int64_t row = last - back;
    if (row >= 0 && p.requests[row] == p.requests[last] && p.positions[row] == p.positions[last] - back) {
      return {p.kv + row * p.dim, p.gate == nullptr ? nullptr : p.gate + row * p.dim};
    }
    const int64_t slot = (p.positions[last] - back) % p.ring;
    const float* entry = p.state + (int64_t{p.ring_slots[p.requests[last]]} * p.ring + slot) * 2 * p.dim;
    return {entry, entry + p.dim};
  };
  Row latent(static_cast<size_t>(p.dim));
  for (int64_t l = 0; l < p.latents; ++l) {
    const int64_t last = p.last_row[l];
    if (last < 0) continue;
    for (int64_t i = 0; i < p.dim; ++i) {
      double top = -INFINITY, sum = 0, value = 0;
      for (int32_t b = 0; b < p.ratio && p.ratio > 1; ++b) top = std::max(top, double{token(last, b).second[i]});
      // Oldest first.
      for (int32_t b = p.ratio - 1; b >= 0; --b) {
        const auto [kv, gate] = token(last, b);
        const double weight = p.ratio == 1 ? 1.0 : std::exp(gate[i] - top);
        sum += weight;
        value += weight * kv[i];
      }
      latent[static_cast<size_t>(i)] = value / sum;
    }
    const double scale = InverseRms(latent.data(), p.dim, p.norm_eps);
    for (int64_t i = 0; i < p.dim; ++i) {
      p.out[l * p.dim + i] = static_cast<float>(latent[static_cast<size_t>(i)] * scale * p.norm_weight[i]);
    }
  }
  if (p.ratio == 1) return;
  for (int64_t r = 0; r < p.rows; ++r) {
    const bool among_last = r + p.ring >= p.rows || p.requests[r + p.ring] != p.requests[r];
    if (!among_last) continue;
    float* entry =
        p.state + (int64_t{p.ring_slots[p.requests[r]]} * p.ring + p.positions[r] % p.ring) * 2 * p.dim;
    std::copy_n(p.kv + r * p.dim, p.dim, entry);
    std::copy_n(p.gate + r * p.dim, p.dim, entry + p.dim);
  }
}

void StoreLatent(const StoreLatentParams& p) {
  const int64_t dim = p.cache.dim;
  for (int64_t l = 0; l < p.latents; ++l) {
    if (p.index[l] < 0) continue;
    Row turned(p.latent + l * dim, p.latent + (l + 1) * dim);
    Rotate(turned.data(), dim, p.rope_dim, p.table + l * p.rope_dim);
    const std::vector<float> x(turned.begin(), turned.end());
    const GlobalRow row = FindGlobalRow(p.cache, p.requests[l], p.index[l]);
    for (int64_t b = 0; b < dim; b += numeric::kLatentBlock) {
      row.latent_scales[b / numeric::kLatentBlock] = numeric::QuantizeLatentBlock(x.data() + b, row.latent_codes + b / 2);
    }
  }
}

void StoreIndexKey(const StoreIndexKeyParams& p) {
  const int64_t dim = p.cache.index_dim;
  for (int64_t l = 0; l < p.latents; ++l) {
    if (p.index[l] < 0) continue;
    const std::vector<float> key =
        NormAndRotate(p.key + l * dim, dim, p.norm_weight, p.norm_eps, p.rope_dim, p.table + l * p.rope_dim);
    const GlobalRow row = FindGlobalRow(p.cache, p.requests[l], p.index[l]);
    for (int64_t b = 0; b < dim; b += numeric::kIndexBlock) {
      row.index_scales[b / numeric::kIndexBlock] = numeric::QuantizeIndexBlock(key.data() + b, row.index_codes + b / 2);
    }
  }
}

}  // namespace deepinfer::backend::reference
