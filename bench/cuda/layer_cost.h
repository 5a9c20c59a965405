// SPDX-License-Identifier: Apache-2.0
// The fewest bytes and operations of the published stack of 40 layers: each weight that a step needs read once, each cached
// row that a query needs read once, matrix products and attention counted, everything small left out.
#pragma once

#include <cstdint>

namespace deepinfer::bench {

// Dense bf16 products of an H200 on random data, 8192^3 through PyTorch (docs/performance.md).
inline constexpr double kBf16Peak = 779e12;

struct Cost {
  double bytes = 0;
  double flops = 0;
};

// One token for each of `batch` requests at `context` tokens; `experts` routed experts on this card, 6 a token.
Cost DecodeCost(int64_t batch, int64_t context, int64_t experts);
// A prompt of `tokens` under replay `exact` or `decoder`.
Cost PrefillCost(int64_t tokens, bool exact, int64_t experts);

}  // namespace deepinfer::bench
