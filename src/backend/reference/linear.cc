// SPDX-License-Identifier: Apache-2.0
// Rows in, rows out: embedding, linears, norms, rope, gathering.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/reference/decode.h"
#include "backend/reference/ops.h"
#include "core/check.h"
#include "numeric/quantize.h"

namespace deepinfer::backend::reference {

void Embed(const EmbedParams& p) {
  const int64_t hidden = p.table.cols;
  Row value(static_cast<size_t>(hidden));
  for (int64_t r = 0; r < p.rows; ++r) {
    if (p.use_override != nullptr && p.use_override[r]) {
      std::copy_n(p.override_rows + r * hidden, hidden, value.begin());
    } else {
      DecodeRow(p.table, p.ids[r], value.data());
    }
    for (int64_t s = 0; s < p.streams; ++s) std::copy(value.begin(), value.end(), p.x + (r * p.streams + s) * hidden);
  }
}

void Linear(const LinearParams& p) {
  const int64_t k = p.w.cols, group_rows = p.w.rows / p.groups;
  DI_CHECK(p.w.rows % p.groups == 0 && p.x_stride >= p.groups * k && p.y_stride >= p.w.rows);
  Row inputs(static_cast<size_t>(p.rows * p.groups * k));
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t g = 0; g < p.groups; ++g) {
      RoundActivations(p.activations, p.w, p.x + r * p.x_stride + g * k, k, inputs.data() + (r * p.groups + g) * k);
    }
  }
  Row weights(static_cast<size_t>(k));
  for (int64_t n = 0; n < p.w.rows; ++n) {
    DecodeRow(p.w, n, weights.data());
    for (int64_t r = 0; r < p.rows; ++r) {
      const double* x = inputs.data() + (r * p.groups + n / group_rows) * k;
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += x[i] * weights[static_cast<size_t>(i)];
      p.y[r * p.y_stride + n] = static_cast<float>(sum);
    }
  }
}

void Add(const AddParams& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t i = 0; i < p.dim; ++i) p.y[r * p.y_stride + i] += p.x[r * p.x_stride + i];
  }
}

void RmsNorm(const RmsNormParams& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const float* x = p.x + r * p.x_stride;
    const double scale = InverseRms(x, p.dim, p.eps);
    for (int64_t i = 0; i < p.dim; ++i) p.y[r * p.dim + i] = static_cast<float>(x[i] * scale * p.weight[i]);
  }
}

void RopeTable(const RopeTableParams& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int32_t i = 0; i < p.pairs; ++i) {
      const float angle = static_cast<float>(p.positions[r]) * p.inv_freq[i];  // rounded to fp32 by definition
      p.table[(r * p.pairs + i) * 2] = static_cast<float>(std::cos(double{angle}));
      p.table[(r * p.pairs + i) * 2 + 1] = static_cast<float>(std::sin(double{angle}));
    }
  }
}

void Rope(const RopeParams& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t h = 0; h < p.heads; ++h) {
      float* x = p.x + (r * p.heads + h) * p.dim;
      Rotate(x, p.dim, p.rope_dim, p.table + r * p.rope_dim);
      if (p.round_index) numeric::RoundTripIndex(x, static_cast<int>(p.dim));
    }
  }
}

void GatherRows(const GatherRowsParams& p) {
  const auto* src = static_cast<const std::byte*>(p.src);
  auto* dst = static_cast<std::byte*>(p.dst);
  for (int64_t r = 0; r < p.rows; ++r) {
    std::memcpy(dst + r * p.row_bytes, src + int64_t{p.index[r]} * p.row_bytes, static_cast<size_t>(p.row_bytes));
  }
}

}  // namespace deepinfer::backend::reference
