// SPDX-License-Identifier: Apache-2.0
// The arithmetic of noise.h as inline functions, for loops over many tokens.
#pragma once

#include "numeric/gumbel.h"
#include "sampling/math.h"

namespace deepinfer::sampling {

constexpr uint32_t kWeyl0 = numeric::kPhiloxWeyl0, kWeyl1 = numeric::kPhiloxWeyl1;
constexpr uint64_t kMultiplier0 = numeric::kPhiloxMultiplier0, kMultiplier1 = numeric::kPhiloxMultiplier1;
constexpr int kRounds = numeric::kPhiloxRounds;

using numeric::GumbelBound;
using numeric::GumbelOf;
using numeric::Philox;
using numeric::Uniform;

}  // namespace deepinfer::sampling
