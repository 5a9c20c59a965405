// SPDX-License-Identifier: Apache-2.0
// Hyper-connections (spec/model.md 2) and the Engram (spec/model.md 6).
#include <algorithm>
#include <cmath>

#include "backend/reference/decode.h"
#include "backend/reference/ops.h"

namespace deepinfer::backend::reference {
namespace {

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// C = softmax over rows + eps; columns; then iters - 1 times rows and columns.
void Sinkhorn(double* c, int64_t n, double eps, int iters) {
  for (int64_t j = 0; j < n; ++j) {
    double* row = c + j * n;
    const double top = *std::max_element(row, row + n);
    double sum = 0;
    for (int64_t k = 0; k < n; ++k) sum += row[k] = std::exp(row[k] - top);
    for (int64_t k = 0; k < n; ++k) row[k] = row[k] / sum + eps;
  }
  const auto normalise = [&](int64_t outer, int64_t inner) {
    for (int64_t a = 0; a < n; ++a) {
      double sum = 0;
      for (int64_t b = 0; b < n; ++b) sum += c[a * outer + b * inner];
      for (int64_t b = 0; b < n; ++b) c[a * outer + b * inner] /= sum + eps;
    }
  };
  normalise(1, n);
  for (int i = 1; i < iters; ++i) {
    normalise(n, 1);
    normalise(1, n);
  }
}

void Collapse(const float* x, const float* weights, int64_t streams, int64_t hidden, const float* norm_weight, double eps,
              float* out) {
  Row sum(static_cast<size_t>(hidden));
  for (int64_t s = 0; s < streams; ++s) {
    for (int64_t i = 0; i < hidden; ++i) sum[static_cast<size_t>(i)] += double{weights[s]} * x[s * hidden + i];
  }
  const double scale = InverseRms(sum.data(), hidden, eps);
  for (int64_t i = 0; i < hidden; ++i) out[i] = static_cast<float>(sum[static_cast<size_t>(i)] * scale * norm_weight[i]);
}

}  // namespace

void HcMix(const HcMixParams& p) {
  const int64_t n = p.streams, flat = n * p.hidden, outputs = (2 + n) * n;
  std::vector<Row> fn(static_cast<size_t>(outputs), Row(static_cast<size_t>(flat)));
  for (int64_t o = 0; o < outputs && p.rows > 0; ++o) DecodeRow(p.fn, o, fn[static_cast<size_t>(o)].data());
  for (int64_t r = 0; r < p.rows; ++r) {
    const float* x = p.x + r * flat;
    const double scale = InverseRms(x, flat, p.norm_eps);
    Row m(static_cast<size_t>(outputs));
    for (int64_t o = 0; o < outputs; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < flat; ++i) sum += x[i] * fn[static_cast<size_t>(o)][static_cast<size_t>(i)];
      const int part = o < n ? 0 : o < 2 * n ? 1 : 2;
      m[static_cast<size_t>(o)] = sum * scale * p.scale[part] + p.base[o];
    }
    for (int64_t s = 0; s < n; ++s) {
      p.pre[r * n + s] = static_cast<float>(Sigmoid(m[static_cast<size_t>(s)]) + p.hc_eps);
      p.post[r * n + s] = static_cast<float>(2 * Sigmoid(m[static_cast<size_t>(n + s)]));
    }
    Sinkhorn(m.data() + 2 * n, n, p.hc_eps, p.sinkhorn_iters);
    std::copy(m.begin() + 2 * n, m.end(), p.comb + r * n * n);
    Collapse(x, p.collapse + r * n, n, p.hidden, p.norm_weight, p.norm_eps, p.collapsed + r * p.hidden);
  }
}

void HcCollapse(const HcCollapseParams& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    Collapse(p.x + r * p.streams * p.hidden, p.collapse + r * p.streams, p.streams, p.hidden, p.norm_weight, p.norm_eps,
             p.collapsed + r * p.hidden);
  }
}

void HcSum(const HcSumParams& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const float* x = p.x + r * p.streams * p.hidden;
    for (int64_t i = 0; i < p.hidden; ++i) {
      double sum = 0;
      for (int64_t s = 0; s < p.streams; ++s) {
        const double weight = p.weights != nullptr ? p.weights[r * p.streams + s] : 1.0 / static_cast<double>(p.streams);
        sum += weight * x[s * p.hidden + i];
      }
      p.y[r * p.y_stride + i] = static_cast<float>(sum);
    }
  }
}

void HcExpand(const HcExpandParams& p) {
  const int64_t n = p.streams;
  Row old(static_cast<size_t>(n));
  for (int64_t r = 0; r < p.rows; ++r) {
    float* x = p.x + r * n * p.hidden;
    for (int64_t i = 0; i < p.hidden; ++i) {
      for (int64_t j = 0; j < n; ++j) old[static_cast<size_t>(j)] = x[j * p.hidden + i];
      for (int64_t k = 0; k < n; ++k) {
        double sum = double{p.post[r * n + k]} * p.y[r * p.hidden + i];
        for (int64_t j = 0; j < n; ++j) sum += p.comb[(r * n + j) * n + k] * old[static_cast<size_t>(j)];
        x[k * p.hidden + i] = static_cast<float>(sum);
      }
    }
  }
}

void EngramLookup(const EngramLookupParams& p) {
  const int64_t columns = int64_t{p.ngram_max - 1} * p.heads;
  Row value(static_cast<size_t>(p.dim));
  for (int64_t r = 0; r < p.rows; ++r) {
    const int32_t* tokens = p.tokens + r * p.ngram_max;
    // Products wrap like int64; the published sizes never do.
    uint64_t hash = 0;
    for (int32_t n = 1; n <= p.ngram_max; ++n) {
      const int32_t token = tokens[n - 1];
      const auto id = static_cast<uint64_t>(token < 0 ? p.pad : p.compressed_ids[token]);
      hash ^= id * static_cast<uint64_t>(p.multipliers[n - 1]);
      for (int32_t h = 0; n >= 2 && h < p.heads; ++h) {
        const int64_t c = int64_t{n - 2} * p.heads + h;
        int64_t row = static_cast<int64_t>(hash) % p.primes[c];
        if (row < 0) row += p.primes[c];
        row += p.offsets[c];
        p.table_rows[r * columns + c] = row;
        DecodeRow(p.table, row, value.data());
        std::copy(value.begin(), value.end(), p.out + (r * columns + c) * p.dim);
      }
    }
  }
}

void EngramApply(const EngramApplyParams& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    if (p.dead != nullptr && p.dead[r]) continue;
    const float* keys = p.kv + r * (p.streams + 1) * p.hidden;
    const float* value = keys + p.streams * p.hidden;
    for (int64_t s = 0; s < p.streams; ++s) {
      float* x = p.x + (r * p.streams + s) * p.hidden;
      const float* key = keys + s * p.hidden;
      double dot = 0;
      for (int64_t i = 0; i < p.hidden; ++i) dot += double{x[i]} * p.qk_weight[s * p.hidden + i] * key[i];
      dot *= InverseRms(x, p.hidden, p.eps) * InverseRms(key, p.hidden, p.eps) / std::sqrt(static_cast<double>(p.hidden));
      const double gate = Sigmoid(std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot));
      for (int64_t i = 0; i < p.hidden; ++i) x[i] = static_cast<float>(x[i] + gate * value[i]);
    }
  }
}

}  // namespace deepinfer::backend::reference
