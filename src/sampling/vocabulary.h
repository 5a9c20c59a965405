// SPDX-License-Identifier: Apache-2.0
// Loops over a whole vocabulary, vectorised: what sampling does for every token of every answer. The results are the same
// bits on every instruction set. Pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "sampling/noise.h"

namespace deepinfer::sampling {

// The highest score, the lower id where two are equal; NaN never wins. REQUIRES: scores are not empty.
int32_t ArgMax(std::span<const float> scores);

// The same of scores[i] + Gumbel(key, i). All words are drawn, but few get their logarithms: the others cannot reach the
// best sum, by a bound that needs none. REQUIRES: some score is above minus infinity.
int32_t NoisyArgMax(const NoiseKey& key, std::span<const float> scores);

// out[i] = Gumbel(key, i).
void GumbelAll(const NoiseKey& key, std::span<float> out);

// log(sum of e^logit): terms by FixedExp, within 2 ulp, fp64 sums by id mod 16, joined in order. The other one is for a device
// that made the sum, in the same order, of e^(logit - top).
double LogSumExp(std::span<const float> logits);
double LogSumExp(float top, double sum);

}  // namespace deepinfer::sampling
