// SPDX-License-Identifier: Apache-2.0
// Ops on single rows: embedding, norms, rotary tables and rotation, hyper-connections, Engram, row gathering.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/ops.h"
#include "core/check.h"
#include "numeric/quantize.h"

namespace deepinfer::backend::cpu {

void Embed(Context& context, const EmbedParams& p) {
  const int64_t hidden = p.table.cols;
  context.For(p.rows, p.streams * hidden, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* x = p.x + r * p.streams * hidden;
      if (p.use_override != nullptr && p.use_override[r]) {
        std::copy_n(p.override_rows + r * hidden, hidden, x);
      } else {
        DI_CHECK(p.ids[r] >= 0 && p.ids[r] < p.table.rows);
        context.kernels.decode_row(p.table, p.ids[r], x);
      }
      for (int64_t s = 1; s < p.streams; ++s) std::copy_n(x, hidden, x + s * hidden);
    }
  });
}

void EngramLookup(Context& context, const EngramLookupParams& p) {
  const int64_t columns = int64_t{p.ngram_max - 1} * p.heads;
  context.For(p.rows, columns * p.dim, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t* tokens = p.tokens + r * p.ngram_max;
      uint64_t hash = 0;  // products wrap like int64
      for (int32_t n = 1; n <= p.ngram_max; ++n) {
        const int32_t token = tokens[n - 1];
        const auto id = static_cast<uint64_t>(token < 0 ? p.pad : p.compressed_ids[token]);
        hash ^= id * static_cast<uint64_t>(p.multipliers[n - 1]);
        for (int32_t h = 0; n >= 2 && h < p.heads; ++h) {
          const int64_t c = int64_t{n - 2} * p.heads + h;
          int64_t row = static_cast<int64_t>(hash) % p.primes[c];
          if (row < 0) row += p.primes[c];
          row += p.offsets[c];
          DI_CHECK(row >= 0 && row < p.table.rows);
          p.table_rows[r * columns + c] = row;
          context.kernels.decode_row(p.table, row, p.out + (r * columns + c) * p.dim);
        }
      }
    }
  });
}

void EngramApply(Context& context, const EngramApplyParams& p) {
  const auto width = static_cast<double>(p.hidden);
  context.For(p.rows, p.streams * p.hidden * 4, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (p.dead != nullptr && p.dead[r]) continue;
      const float* keys = p.kv + r * (p.streams + 1) * p.hidden;
      for (int64_t s = 0; s < p.streams; ++s) {
        float* x = p.x + (r * p.streams + s) * p.hidden;
        float sums[3];
        context.kernels.engram_sums(x, p.qk_weight + s * p.hidden, keys + s * p.hidden, p.hidden, sums);
        const double dot = sums[0] / std::sqrt((sums[1] / width + p.eps) * (sums[2] / width + p.eps)) / std::sqrt(width);
        const double gate = 1.0 / (1.0 + std::exp(-std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot)));
        context.kernels.add_scaled(keys + p.streams * p.hidden, static_cast<float>(gate), p.hidden, x);
      }
    }
  });
}

void HcMix(Context& context, const HcMixParams& p) {
  if (p.rows == 0) return;
  DI_CHECK(p.streams >= 1 && p.streams <= kStreamsMax);
  const int64_t n = p.streams, flat = n * p.hidden, outputs = (2 + n) * n;
  float* mixes = context.mixes.Take<float>(p.rows * outputs);
  Linear(context, {.rows = p.rows, .w = p.fn, .x = p.x, .x_stride = flat, .y = mixes, .y_stride = outputs});
  context.For(p.rows, flat * 4, [&](int, int64_t begin, int64_t end) {
    const Kernels& k = context.kernels;
    for (int64_t r = begin; r < end; ++r) {
      const float* x = p.x + r * flat;
      float* m = mixes + r * outputs;
      const double mean = k.sum_of_squares(x, flat) / static_cast<double>(flat);
      const auto scale = static_cast<float>(1.0 / std::sqrt(mean + p.norm_eps));
      for (int64_t o = 0; o < outputs; ++o) m[o] = m[o] * scale * p.scale[o < n ? 0 : o < 2 * n ? 1 : 2] + p.base[o];
      k.sigmoid(m, 2 * n);
      for (int64_t s = 0; s < n; ++s) {
        p.pre[r * n + s] = m[s] + p.hc_eps;
        p.post[r * n + s] = 2 * m[n + s];
      }
      std::copy_n(m + 2 * n, n * n, p.comb + r * n * n);
      k.hc_collapse({.streams = n, .hidden = p.hidden, .x = x, .weights = p.collapse + r * n,
                     .norm_weight = p.norm_weight, .eps = p.norm_eps, .out = p.collapsed + r * p.hidden});
    }
    k.sinkhorn(p.comb + begin * n * n, end - begin, n * n, n, p.hc_eps, p.sinkhorn_iters);
  });
  context.mixes.Reset();
}

void HcCollapse(Context& context, const HcCollapseParams& p) {
  context.For(p.rows, p.streams * p.hidden, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      context.kernels.hc_collapse({.streams = p.streams, .hidden = p.hidden, .x = p.x + r * p.streams * p.hidden,
                                   .weights = p.collapse + r * p.streams, .norm_weight = p.norm_weight,
                                   .eps = p.norm_eps, .out = p.collapsed + r * p.hidden});
    }
  });
}

void HcExpand(Context& context, const HcExpandParams& p) {
  DI_CHECK(p.streams >= 1 && p.streams <= kStreamsMax);
  const int64_t n = p.streams;
  context.For(p.rows, n * (n + 1) * p.hidden, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      context.kernels.hc_expand(p.y + r * p.hidden, p.post + r * n, p.comb + r * n * n, n, p.hidden,
                                p.x + r * n * p.hidden);
    }
  });
}

void HcSum(Context& context, const HcSumParams& p) {
  const float mean = 1.0f / static_cast<float>(p.streams);
  context.For(p.rows, p.streams * p.hidden, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* y = p.y + r * p.y_stride;
      std::fill_n(y, p.hidden, 0.0f);
      for (int64_t s = 0; s < p.streams; ++s) {
        const float weight = p.weights != nullptr ? p.weights[r * p.streams + s] : mean;
        context.kernels.add_scaled(p.x + (r * p.streams + s) * p.hidden, weight, p.hidden, y);
      }
    }
  });
}

void Add(Context& context, const AddParams& p) {
  context.For(p.rows, p.dim, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      context.kernels.add_scaled(p.x + r * p.x_stride, 1.0f, p.dim, p.y + r * p.y_stride);
    }
  });
}

void RmsNorm(Context& context, const RmsNormParams& p) {
  context.For(p.rows, 2 * p.dim, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      context.kernels.rms_norm(p.x + r * p.x_stride, p.weight, p.eps, p.dim, p.y + r * p.dim);
    }
  });
}

void RopeTable(Context& context, const RopeTableParams& p) {
  context.For(p.rows, 200 * int64_t{p.pairs}, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int32_t i = 0; i < p.pairs; ++i) {
        // The product is rounded to fp32 by definition; its cosine and sine are exact to the last bit.
        const double angle = static_cast<float>(p.positions[r]) * p.inv_freq[i];
        float* to = p.table + (r * p.pairs + i) * 2;
        to[0] = static_cast<float>(std::cos(angle));
        to[1] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

void Rope(Context& context, const RopeParams& p) {
  context.For(p.rows, p.heads * (p.round_index ? 32 * p.dim : p.rope_dim), [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t h = 0; h < p.heads; ++h) {
        float* x = p.x + (r * p.heads + h) * p.dim;
        context.kernels.rope(x, p.dim, p.rope_dim, p.table + r * p.rope_dim);
        if (p.round_index) numeric::RoundTripIndex(x, static_cast<int>(p.dim));
      }
    }
  });
}

void GatherRows(Context& context, const GatherRowsParams& p) {
  const auto* src = static_cast<const std::byte*>(p.src);
  auto* dst = static_cast<std::byte*>(p.dst);
  context.For(p.rows, p.row_bytes / 16, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(dst + r * p.row_bytes, src + int64_t{p.index[r]} * p.row_bytes, static_cast<size_t>(p.row_bytes));
    }
  });
}

}  // namespace deepinfer::backend::cpu
