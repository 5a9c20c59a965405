// SPDX-License-Identifier: Apache-2.0
// Draws with penalties, bias, masks and filters: one block a row, the definition of sampling/sampler.h to the bit.
//
// Tokens are ordered by key (score, then id). What top-k, top-p and min-p keep are the tokens at or above some key, but
// finding it means sorting. So instead the winner among all is drawn; if it turns out to be one that is kept, it wins among
// those too. If not, neither is any below it: the draw goes on among the tokens above. A round is a pass over the row for
// the winner and one for what lies above it; the best token is always kept, so it ends, most often in the first round.
// Only top-k before top-p needs its key, since top-p's share is one of what top-k leaves: 4 bits of it a pass.
//
// A row is read where it lies. A bit for each token says whether its own logit counts: not for tokens that are masked, nor
// for those in the lists of edits, which follow behind the row in each pass.
#include "backend/cuda/launch.h"
#include "backend/cuda/sample/keys.cuh"
#include "core/check.h"
#include "numeric/gumbel.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWordTokens = 4;  // tokens that share one call of Philox
constexpr float kWeightOne = 0x1p40f;

struct Row {
  const SampleAdjustedParams& p;
  const AdjustedDraw& d;
  const float* logits;
  const uint32_t* mask;  // nullptr: all tokens
  uint32_t* open;        // bit t: token t counts with its own logit
  uint32_t* overridden;  // bit t: an override stands for its edit

  __device__ float Heat(float logit) const { return d.draw.temperature == 0.0f ? logit : logit / d.draw.temperature; }
  __device__ float Edited(const LogitEdit& e) const {
    const float l = logits[e.token];
    return (l > 0.0f ? l / e.repeat : l * e.repeat) - e.off + e.bias;
  }
};

__device__ bool Bit(const uint32_t* words, int32_t token) { return (words[token / 32] >> (token % 32) & 1) != 0; }

// Calls f(word, present, scores) for words of four tokens: bit i of `present` says that token 4 * word + i has scores[i],
// above minus infinity. Each token that may come is seen once.
template <typename F>
__device__ void ForEach(const Row& row, const F& f) {
  const auto visit = [&](uint32_t word, unsigned present, float (&scores)[kWordTokens]) {
#pragma unroll
    for (int i = 0; i < kWordTokens; ++i) {
      scores[i] = row.Heat(scores[i]);
      if (!(scores[i] > -INFINITY)) present &= ~(1u << i);
    }
    if (present != 0) f(word, present, scores);
  };
  const auto vocab = static_cast<uint32_t>(row.p.vocab);
  for (uint32_t word = threadIdx.x; word < (vocab + kWordTokens - 1) / kWordTokens; word += kThreads) {
    const unsigned present = row.open[word / 8] >> (word % 8 * kWordTokens) & 15u;
    if (present == 0) continue;
    float scores[kWordTokens];
    if (vocab % kWordTokens == 0) {
      const float4 four = reinterpret_cast<const float4*>(row.logits)[word];
      scores[0] = four.x, scores[1] = four.y, scores[2] = four.z, scores[3] = four.w;
    } else {
#pragma unroll
      for (int i = 0; i < kWordTokens; ++i) scores[i] = (present >> i & 1) != 0 ? row.logits[word * kWordTokens + i] : 0.0f;
    }
    visit(word, present, scores);
  }
  const auto edits = [&](int32_t first, int32_t count, bool are_overrides) {
    for (int32_t i = threadIdx.x; i < count; i += kThreads) {
      const LogitEdit e = row.p.edits[first + i];
      if (row.mask != nullptr && !Bit(row.mask, e.token)) continue;
      if (!are_overrides && row.d.num_overrides > 0 && Bit(row.overridden, e.token)) continue;
      float scores[kWordTokens];
      const float score = row.Edited(e);
#pragma unroll
      for (int j = 0; j < kWordTokens; ++j) scores[j] = score;
      visit(static_cast<uint32_t>(e.token) / kWordTokens, 1u << (e.token % kWordTokens), scores);
    }
  };
  edits(row.d.first_edit, row.d.num_edits, false);
  edits(row.d.first_override, row.d.num_overrides, true);
}

// The same, token by token: f(key, score).
template <typename F>
__device__ void ForEachKey(const Row& row, const F& f) {
  ForEach(row, [&](uint32_t word, unsigned present, const float (&scores)[kWordTokens]) {
#pragma unroll
    for (int i = 0; i < kWordTokens; ++i) {
      if ((present >> i & 1) != 0) f(Key(scores[i], word * kWordTokens + i), scores[i]);
    }
  });
}

__device__ void FillBits(const Row& row) {
  const int words = static_cast<int>((row.p.vocab + 31) / 32);
  for (int i = threadIdx.x; i < words; i += kThreads) {
    uint32_t bits = row.mask == nullptr ? ~0u : row.mask[i];
    if (i == words - 1 && row.p.vocab % 32 != 0) bits &= (1u << row.p.vocab % 32) - 1;
    row.open[i] = bits;
    row.overridden[i] = 0;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < row.d.num_edits + row.d.num_overrides; i += kThreads) {
    const bool is_override = i >= row.d.num_edits;
    const int32_t token = row.p.edits[is_override ? row.d.first_override + i - row.d.num_edits : row.d.first_edit + i].token;
    atomicAnd(row.open + token / 32, ~(1u << token % 32));
    if (is_override) atomicOr(row.overridden + token / 32, 1u << token % 32);
  }
  __syncthreads();
}

// The key of the k-th token by rank, or one at or below the last one's where there are fewer: all of them are at or above it.
__device__ uint64_t RankedKey(const Row& row, uint64_t k, uint64_t* shared) {
  constexpr int kDigits = 15;
  __shared__ unsigned counts[kDigits];
  uint64_t found = 0;
  for (int shift = 60; shift >= 0; shift -= 4) {
    // Ids are less than 2^20.
    if (shift < 32 && shift >= 20) {
      found |= uint64_t{15} << shift;
      continue;
    }
    if (threadIdx.x < kDigits) counts[threadIdx.x] = 0;
    __syncthreads();
    unsigned mine[kDigits] = {};
    ForEachKey(row, [&](uint64_t key, float) {
      if (key < found) return;
      const uint64_t digit = (key - found) >> shift;
#pragma unroll
      for (int i = 0; i < kDigits; ++i) mine[i] += digit > static_cast<unsigned>(i);
    });
#pragma unroll
    for (int i = 0; i < kDigits; ++i) {
      const unsigned warp = __reduce_add_sync(kAllLanes, mine[i]);
      if (threadIdx.x % kWarp == 0) atomicAdd(counts + i, warp);
    }
    __syncthreads();
    int digit = 0;
    while (digit < kDigits && counts[digit] >= k) ++digit;
    found |= static_cast<uint64_t>(digit) << shift;
    const bool exact = digit > 0 && counts[digit - 1] == k;
    __syncthreads();
    if (exact) break;
  }
  return found;
}

struct Winner {
  uint64_t noisy;  // its key with noise
  uint64_t key;    // and without
};

// The best by score and noise of the tokens at or above `floor`; `top` is the best without noise.
__device__ Winner Draw(const Row& row, uint64_t floor, uint64_t top, uint64_t* shared) {
  __shared__ uint64_t winner_key;
  const SampleDraw& draw = row.d.draw;
  const auto words = [&](uint32_t word, uint32_t (&c)[kWordTokens]) {
    c[0] = draw.position, c[1] = word, c[2] = draw.choice, c[3] = draw.stream;
    numeric::Philox(c[0], c[1], c[2], c[3], static_cast<uint32_t>(draw.seed), static_cast<uint32_t>(draw.seed >> 32));
  };
  uint32_t c[kWordTokens];
  words(TokenOf(top) / kWordTokens, c);
  const uint32_t place = TokenOf(top) % kWordTokens;
  float best = ScoreOf(top) + numeric::GumbelOf(place == 0 ? c[0] : place == 1 ? c[1] : place == 2 ? c[2] : c[3]);
  Winner mine{Key(best, TokenOf(top)), top};
  ForEach(row, [&](uint32_t word, unsigned present, const float (&scores)[kWordTokens]) {
#pragma unroll
    for (int i = 0; i < kWordTokens; ++i) {
      if (Key(scores[i], word * kWordTokens + i) < floor) present &= ~(1u << i);
    }
    if (present == 0) return;
    words(word, c);
#pragma unroll
    for (int i = 0; i < kWordTokens; ++i) {
      // Most cannot reach the best so far, by a bound that needs no logarithm.
      if ((present >> i & 1) == 0 || !(scores[i] + numeric::GumbelBound(c[i]) >= best)) continue;
      const float score = scores[i] + numeric::GumbelOf(c[i]);
      const uint64_t noisy = Key(score, word * kWordTokens + i);
      if (noisy <= mine.noisy) continue;
      mine = {noisy, Key(scores[i], word * kWordTokens + i)};
      best = score;
    }
  });
  const uint64_t noisy = BlockMaximum<kThreads>(mine.noisy, shared);
  if (mine.noisy == noisy) winner_key = mine.key;  // all who have it have the same
  __syncthreads();
  const Winner winner{noisy, winner_key};
  __syncthreads();
  return winner;
}

// The token that the filters and the noise choose.
__device__ uint32_t Choose(const Row& row, uint64_t top, uint64_t* shared) {
  const AdjustedDraw& d = row.d;
  const float top_score = ScoreOf(top);
  const auto weight = [&](float score) { return static_cast<uint64_t>(numeric::FixedExp(score - top_score) * kWeightOne); };
  const bool limited = d.top_k > 0, shared_out = d.top_p < 1.0f;
  uint64_t floor = limited && shared_out ? RankedKey(row, static_cast<uint64_t>(d.top_k), shared) : 0;
  double wanted = 0;
  if (shared_out || d.min_p > 0.0f) {
    uint64_t total = 0, weak = 0;
    ForEachKey(row, [&](uint64_t key, float score) {
      if (key >= floor) total += weight(score);
      if (d.min_p > 0.0f && !(numeric::FixedExp(score - top_score) >= d.min_p)) weak = key > weak ? key : weak;
    });
    total = BlockTotal<kThreads>(total, shared);
    weak = BlockMaximum<kThreads>(weak, shared);
    wanted = static_cast<double>(d.top_p) * static_cast<double>(total);
    if (weak >= floor && weak > 0) floor = weak + 1;
  }
  while (true) {
    const Winner winner = Draw(row, floor, top, shared);
    if (winner.key == top || (!limited && !shared_out)) return TokenOf(winner.noisy);
    uint64_t sum = 0, count = 0;
    ForEachKey(row, [&](uint64_t key, float score) {
      if (key <= winner.key) return;
      sum += weight(score);
      ++count;
    });
    sum = BlockTotal<kThreads>(sum, shared);
    count = BlockTotal<kThreads>(count, shared);
    const bool in_k = !limited || count < static_cast<uint64_t>(d.top_k);
    const bool in_p = !shared_out || static_cast<double>(sum) < wanted;
    if (in_k && in_p) return TokenOf(winner.noisy);
    floor = winner.key + 1;
  }
}

__global__ void __launch_bounds__(kThreads) AdjustedKernel(SampleAdjustedParams p) {
  extern __shared__ uint32_t bits[];
  __shared__ uint64_t shared[kThreads / kWarp];
  __shared__ AdjustedDraw draw;
  if (threadIdx.x == 0) draw = p.draws[blockIdx.x];
  __syncthreads();
  const Row row{p, draw, p.logits + draw.draw.logits_row * p.vocab, draw.mask < 0 ? nullptr : p.masks + draw.mask * p.mask_words,
                bits, bits + (p.vocab + 31) / 32};
  FillBits(row);
  uint64_t top = 0;
  ForEachKey(row, [&](uint64_t key, float) { top = key > top ? key : top; });
  top = BlockMaximum<kThreads>(top, shared);
  int32_t token = -1;
  if (top != 0) token = static_cast<int32_t>(draw.draw.temperature == 0.0f ? TokenOf(top) : Choose(row, top, shared));
  if (threadIdx.x == 0) p.tokens[blockIdx.x] = token;
}

}  // namespace

void SampleAdjusted(Context& context, const SampleAdjustedParams& p) {
  if (p.rows == 0) return;
  DI_CHECK(p.vocab > 0 && p.vocab <= kAdjustedVocabMax && p.mask_words * 32 >= p.vocab);
  const size_t bytes = 2 * static_cast<size_t>((p.vocab + 31) / 32) * sizeof(uint32_t);
  context.Record(cudaFuncSetAttribute(AdjustedKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
                 "sample adjusted: shared memory");
  AdjustedKernel<<<static_cast<unsigned>(p.rows), kThreads, bytes, context.stream()>>>(p);
}

}  // namespace deepinfer::backend::cuda
