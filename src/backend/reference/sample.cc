// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/reference/ops.h"
#include "numeric/fixed_math.h"
#include "numeric/gumbel.h"

namespace deepinfer::backend::reference {
namespace {

float Noise(const SampleDraw& draw, uint32_t token) {
  uint32_t words[4] = {draw.position, token / 4, draw.choice, draw.stream};
  numeric::Philox(words[0], words[1], words[2], words[3], static_cast<uint32_t>(draw.seed), static_cast<uint32_t>(draw.seed >> 32));
  return numeric::GumbelOf(words[token % 4]);
}

void Apply(const LogitEdit& edit, const float* logits, std::vector<float>* out) {
  const float l = logits[edit.token];
  (*out)[static_cast<size_t>(edit.token)] = (l > 0 ? l / edit.repeat : l * edit.repeat) - edit.off + edit.bias;
}

// The logits of a draw after penalties, bias, mask and temperature.
std::vector<float> Adjust(const SampleAdjustedParams& p, const AdjustedDraw& d) {
  const float* logits = p.logits + d.draw.logits_row * p.vocab;
  std::vector<float> out(logits, logits + p.vocab);
  for (int32_t e = 0; e < d.num_edits; ++e) Apply(p.edits[d.first_edit + e], logits, &out);
  for (int32_t e = 0; e < d.num_overrides; ++e) Apply(p.edits[d.first_override + e], logits, &out);
  for (int64_t t = 0; t < p.vocab; ++t) {
    float& score = out[static_cast<size_t>(t)];
    if (d.mask >= 0 && (p.masks[d.mask * p.mask_words + t / 32] >> (t % 32) & 1) == 0) score = -INFINITY;
    if (d.draw.temperature != 0) score /= d.draw.temperature;
  }
  return out;
}

// Ids of scores above minus infinity, the best first, equal ones by id.
std::vector<int32_t> Ranking(const float* scores, int64_t n) {
  std::vector<int32_t> order;
  for (int32_t t = 0; t < n; ++t) {
    if (scores[t] > -INFINITY) order.push_back(t);
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  return order;
}

// Leaves what top-k, top-p and min-p keep.
void Filter(const AdjustedDraw& d, const std::vector<float>& scores, std::vector<int32_t>* order) {
  if (d.top_k > 0 && static_cast<size_t>(d.top_k) < order->size()) order->resize(static_cast<size_t>(d.top_k));
  const float top = scores[static_cast<size_t>(order->front())];
  const auto share = [&](int32_t token) { return numeric::FixedExp(scores[static_cast<size_t>(token)] - top); };
  if (d.top_p < 1) {
    uint64_t total = 0, sum = 0;
    for (const int32_t token : *order) total += static_cast<uint64_t>(share(token) * 0x1p40f);
    const double wanted = static_cast<double>(d.top_p) * static_cast<double>(total);
    size_t kept = 0;
    while (kept < order->size() && (kept == 0 || static_cast<double>(sum) < wanted)) {
      sum += static_cast<uint64_t>(share((*order)[kept++]) * 0x1p40f);
    }
    order->resize(kept);
  }
  if (d.min_p > 0) {
    order->erase(std::find_if(order->begin(), order->end(), [&](int32_t t) { return !(share(t) >= d.min_p); }), order->end());
  }
}

}  // namespace

void SampleAdjusted(const SampleAdjustedParams& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const AdjustedDraw& d = p.draws[r];
    const std::vector<float> scores = Adjust(p, d);
    std::vector<int32_t> order = Ranking(scores.data(), p.vocab);
    int32_t best = order.empty() ? -1 : order[0];
    if (d.draw.temperature != 0 && best >= 0) {
      Filter(d, scores, &order);
      float best_score = -INFINITY;
      for (const int32_t token : order) {
        const float score = scores[static_cast<size_t>(token)] + Noise(d.draw, static_cast<uint32_t>(token));
        if (!(score > best_score) && !(score == best_score && token < best)) continue;
        best = token;
        best_score = score;
      }
    }
    p.tokens[r] = best;
  }
}

void ReadLogits(const RowLogitsParams& p) {
  constexpr int64_t kLanes = 16;
  for (int64_t r = 0; r < p.rows; ++r) {
    const int32_t token = p.tokens[p.token_at[r]];
    if (token < 0) continue;
    const float* logits = p.logits + p.logits_rows[r] * p.vocab;
    const std::vector<int32_t> order = Ranking(logits, p.vocab);
    RowLogits& out = p.out[r];
    out.chosen = logits[token];
    out.top = order.empty() ? logits[0] : logits[order[0]];
    double sums[kLanes] = {};
    for (int64_t t = 0; t < p.vocab; ++t) sums[t % kLanes] += static_cast<double>(numeric::FixedExp(logits[t] - out.top));
    out.sum = 0;
    for (const double sum : sums) out.sum += sum;
    for (int32_t i = 0; i < std::min<int32_t>(p.best[r], static_cast<int32_t>(order.size())); ++i) {
      out.tokens[i] = order[static_cast<size_t>(i)];
      out.logits[i] = logits[out.tokens[i]];
    }
  }
}

void Sample(const SampleParams& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const SampleDraw& draw = p.draws[r];
    const float* logits = p.logits + draw.logits_row * p.vocab;
    int32_t best = -1;
    float best_score = 0;
    for (int32_t token = 0; token < p.vocab; ++token) {
      float score = logits[token];
      if (!(score > -INFINITY)) continue;
      if (draw.temperature != 0) score = score / draw.temperature + Noise(draw, static_cast<uint32_t>(token));
      if (best >= 0 && !(score > best_score)) continue;
      best = token;
      best_score = score;
    }
    p.tokens[r] = best < 0 ? p.no_token : best;
  }
}

}  // namespace deepinfer::backend::reference
