// SPDX-License-Identifier: Apache-2.0
// Sampling noise as a pure function of (seed, choice, position, token id): Gumbel noise from Philox4x32-10 words
// (design.md 6). argmax(logit / T + noise) is then a sample of softmax(logit / T), and what ran before or beside it
// cannot change it. Pure functions.
#pragma once

#include <array>
#include <cstdint>

namespace deepinfer::sampling {

// Independent sequences of words. Target and coupled draft share stream 0 on purpose.
enum class NoiseStream : uint32_t { kTarget = 0, kDraft = 1, kAcceptance = 2, kResidual = 3 };

struct NoiseKey {
  uint64_t seed = 0;
  uint32_t position = 0;  // of the token that is drawn, from 0 at the sequence's start
  uint32_t choice = 0;    // 0 .. n - 1
  NoiseStream stream = NoiseStream::kTarget;
  // Place in the draft block, for the streams beside kTarget: a position is drafted again in the next block when this one
  // was cut before it, and whether it was cut may depend on the numbers drawn here.
  uint32_t block_offset = 0;

  // The last word of the Philox counter.
  uint32_t stream_word() const { return static_cast<uint32_t>(stream) + 4 * block_offset; }
};

// The four words of one counter (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// -log(-log1p(-w)), w = (bits + 1/2) * 2^-32 rounded to fp32, at most 1 - 2^-24. Finite for every word.
float GumbelFromBits(uint32_t bits);
// At least that, and where w < 1/4 by at most 0.21 more; needs no logarithm.
float GumbelBoundFromBits(uint32_t bits);
// (bits + 1/2) * 2^-32 as above: a uniform number in (0, 1), for acceptance tests.
float UniformFromBits(uint32_t bits);

// A uniform number in (0, 1) of a position: for streams that need one number there.
float Uniform(const NoiseKey& key);

// The noise of one token id.
float Gumbel(const NoiseKey& key, uint32_t token);
// No noise is above this: -log(2^-33) is 22.88.
inline constexpr float kGumbelMax = 23;

}  // namespace deepinfer::sampling
