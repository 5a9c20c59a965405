// SPDX-License-Identifier: Apache-2.0
// The router and the experts (spec/model.md 5).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/reference/decode.h"
#include "backend/reference/ops.h"

namespace deepinfer::backend::reference {
namespace {

// y[i] += expert(x[i]) for the rows listed; weights[i] is applied before w2.
void AddExpert(const ExpertWeights& e, const ExpertsParams& p, const std::vector<int64_t>& rows,
               const std::vector<double>& weights, std::vector<Row>* y) {
  if (rows.empty()) return;
  const int64_t hidden = p.hidden, inter = e.w1.rows;
  std::vector<Row> inputs(rows.size(), Row(static_cast<size_t>(hidden)));
  std::vector<std::vector<float>> inner(rows.size(), std::vector<float>(static_cast<size_t>(inter)));
  for (size_t i = 0; i < rows.size(); ++i) {
    RoundActivations(p.activations, e.w1, p.x + rows[i] * hidden, hidden, inputs[i].data());
  }
  Row w1(static_cast<size_t>(hidden)), w3(static_cast<size_t>(hidden));
  for (int64_t n = 0; n < inter; ++n) {
    DecodeRow(e.w1, n, w1.data());
    DecodeRow(e.w3, n, w3.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      const double limit = p.limit;
      const double gate = std::min(std::inner_product(w1.begin(), w1.end(), inputs[i].begin(), 0.0), limit);
      const double up = std::clamp(std::inner_product(w3.begin(), w3.end(), inputs[i].begin(), 0.0), -limit, limit);
      inner[i][static_cast<size_t>(n)] = static_cast<float>(weights[i] * gate / (1.0 + std::exp(-gate)) * up);
    }
  }
  std::vector<Row> rounded(rows.size(), Row(static_cast<size_t>(inter)));
  for (size_t i = 0; i < rows.size(); ++i) {
    RoundActivations(p.activations, e.w2, inner[i].data(), inter, rounded[i].data());
  }
  Row w2(static_cast<size_t>(inter));
  for (int64_t n = 0; n < hidden; ++n) {
    DecodeRow(e.w2, n, w2.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      (*y)[static_cast<size_t>(rows[i])][static_cast<size_t>(n)] +=
          std::inner_product(w2.begin(), w2.end(), rounded[i].begin(), 0.0);
    }
  }
}

}  // namespace

void Route(const RouteParams& p) {
  const int64_t experts = p.gate.rows, hidden = p.gate.cols;
  Row score(static_cast<size_t>(experts)), biased(static_cast<size_t>(experts)), gate(static_cast<size_t>(hidden));
  for (int64_t r = 0; r < p.rows; ++r) {
    const bool is_image = p.is_image != nullptr && p.is_image[r];
    for (int64_t e = 0; e < experts; ++e) {
      DecodeRow(p.gate, e, gate.data());
      double x = 0;
      for (int64_t i = 0; i < hidden; ++i) x += gate[static_cast<size_t>(i)] * p.x[r * hidden + i];
      const double softplus = std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
      score[static_cast<size_t>(e)] = std::sqrt(softplus);
      biased[static_cast<size_t>(e)] = score[static_cast<size_t>(e)] + (is_image ? p.image_bias : p.bias)[e];
    }
    std::vector<int32_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return biased[static_cast<size_t>(a)] > biased[static_cast<size_t>(b)];
    });
    order.resize(static_cast<size_t>(p.topk));
    std::sort(order.begin(), order.end());
    double sum = 0;
    for (const int32_t e : order) sum += score[static_cast<size_t>(e)];
    const double divisor = p.normalize && p.topk > 1 ? sum + 1e-20 : 1.0;
    for (int64_t i = 0; i < p.topk; ++i) {
      const int32_t e = order[static_cast<size_t>(i)];
      p.experts[r * p.topk + i] = e;
      p.weights[r * p.topk + i] = static_cast<float>(score[static_cast<size_t>(e)] / divisor * p.scale);
    }
  }
}

void Experts(const ExpertsParams& p) {
  std::vector<Row> y(static_cast<size_t>(p.rows), Row(static_cast<size_t>(p.hidden)));
  for (int64_t e = 0; e < p.num_experts; ++e) {
    std::vector<int64_t> rows;
    std::vector<double> weights;
    for (int64_t i = 0; i < p.rows * p.topk; ++i) {
      if (p.chosen[i] != e) continue;
      rows.push_back(i / p.topk);
      weights.push_back(p.weights[i]);
    }
    AddExpert(p.experts[e], p, rows, weights, &y);
  }
  std::vector<Row> last(static_cast<size_t>(p.rows), Row(static_cast<size_t>(p.hidden)));
  if (p.has_shared) {
    std::vector<int64_t> rows(static_cast<size_t>(p.rows));
    std::iota(rows.begin(), rows.end(), 0);
    AddExpert(p.shared, p, rows, std::vector<double>(rows.size(), 1.0), &last);
  }
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t i = 0; i < p.hidden; ++i) {
      // Rounded, as where it comes from another call.
      auto added = static_cast<float>(last[static_cast<size_t>(r)][static_cast<size_t>(i)]);
      if (p.last != nullptr) added += p.last[r * p.hidden + i];
      p.y[r * p.hidden + i] = static_cast<float>(y[static_cast<size_t>(r)][static_cast<size_t>(i)] + added);
    }
  }
}

}  // namespace deepinfer::backend::reference
