// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "backend/reference/ops.h"
#include "numeric/gumbel.h"

namespace deepinfer::backend::reference {
namespace {

float Noise(const SampleDraw& draw, uint32_t token) {
  uint32_t words[4] = {draw.position, token / 4, draw.choice, draw.stream};
  numeric::Philox(words[0], words[1], words[2], words[3], static_cast<uint32_t>(draw.seed), static_cast<uint32_t>(draw.seed >> 32));
  return numeric::GumbelOf(words[token % 4]);
}

}  // namespace

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
