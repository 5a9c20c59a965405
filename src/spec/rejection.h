// SPDX-License-Identifier: Apache-2.0
// Which drafts stand, and the token behind them, when drafts are judged by chance and not by the coupled noise: classic
// rejection sampling, token by token or for the block as a whole (spec/dspark.md 6.1). Both leave the distribution of the
// output as plain decoding has it; the tokens themselves depend on how many drafts are verified, which under the coupled
// noise they do not.
//
// The distributions are final ones: after penalties, bias, mask, temperature and the filters, as the sampler draws from
// them (Sampler::Distribution), draft rows exactly those that the drafts were drawn from: draft j with NoiseStream::kDraft
// and block_offset j (block verification looks at all drafts before it cuts, so their noise must not be used again).
//
// Deterministic: the result is a function of the arguments; acceptance and replacement use noise of their own streams.
// Sums in fp64, ascending ids. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "sampling/noise.h"

namespace deepinfer::spec {

enum class Acceptance {
  kCoupled,    // a draft stands if it is what the target draws with the same noise
  kRejection,  // token by token
  kBlock,      // the longest prefix that the block as a whole allows (Sun et al., arXiv 2403.10444)
};

struct VerifyInput {
  std::span<const int32_t> drafts;  // [k], 0 <= k
  std::span<const float> draft;     // [k, vocab]: row j was draft j drawn from; each sums to 1
  // Row j [vocab] judges draft j, given the drafts before it; row k is behind all. Asked for in ascending order, and not where
  // the verdict needs no more; rows stay valid. Empty: no token can follow the drafts before it, so the answer ends there.
  std::function<std::span<const float>(size_t row)> target;
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t position = 0;  // of the first draft; the others follow
};

struct Verdict {
  int32_t accepted = 0;  // drafts 0 .. accepted - 1 stand
  int32_t token = 0;     // and this one follows; -1: none can
};

// Draft j stands with probability min(1, p_j / q_j); the first that does not is replaced by a draw from max(0, p - q).
Verdict VerifyByToken(const VerifyInput& input);

// At least as many drafts stand, on average, as token by token.
Verdict VerifyByBlock(const VerifyInput& input);

// A draw from `weights` (not negative, any sum above 0, ids ascending) by the Gumbel noise of `key`.
int32_t DrawFrom(std::span<const double> weights, const sampling::NoiseKey& key);

}  // namespace deepinfer::spec
