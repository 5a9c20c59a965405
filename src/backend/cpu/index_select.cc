// SPDX-License-Identifier: Apache-2.0
// The indexer: scores of visible latents, the best of them, and candidate blocks (spec/model.md 4).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/cache.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/select.h"
#include "core/check.h"

namespace deepinfer::backend::cpu {
namespace {

// Latents scored at a time.
constexpr int64_t kChunk = 256;

// Scratch of one thread for one row after the other.
struct Scratch {
  Scratch(const IndexSelectParams& p, Arena& arena)
      : codes(arena.Take<const uint8_t*>(kChunk)),
        scales(arena.Take<const uint8_t*>(kChunk)),
        q(arena.Take<const float*>(p.heads)),
        dots(arena.Take<float*>(p.heads)),
        weights(arena.Take<float>(p.heads)),
        panel(arena.Take<float>(PanelFloats(p.cache.index_dim))),
        scores(arena.Take<float>(kChunk)),
        items(arena.Take<int32_t>(kChunk)),
        best(arena.Take<uint64_t>(TopK::BufferSize(p.topk))),
        best_blocks(arena.Take<uint64_t>(TopK::BufferSize(p.blocks_max))) {
    for (int64_t h = 0; h < p.heads; ++h) dots[h] = arena.Take<float>(4);
  }

  const uint8_t** codes;
  const uint8_t** scales;
  const float** q;
  float** dots;
  float* weights;
  float* panel;
  float* scores;
  int32_t* items;
  uint64_t* best;
  uint64_t* best_blocks;
};

class RowSelector {
 public:
  RowSelector(const Context& context, const IndexSelectParams& p, int64_t r, const Scratch& s)
      : context_(context), p_(p), r_(r), s_(s), visible_((p.positions[r] + 1) / p.cache.ratio), best_(p.topk, s.best) {
    for (int64_t h = 0; h < p.heads; ++h) {
      s.q[h] = p.q + (r * p.heads + h) * p.cache.index_dim;
      s.weights[h] = p.weights[r * p.heads + h] * p.weight_scale;
    }
  }

  void Run() {
    int32_t* selected = p_.selected + r_ * p_.topk;
    if (p_.candidates == Candidates::kRestrict) {
      ScoreBlocks();
    } else {
      const int64_t blocks = p_.block_size > 0 ? (visible_ + p_.block_size - 1) / p_.block_size : 0;
      const bool all_blocks = p_.candidates == Candidates::kNone || blocks <= p_.blocks_max;
      if (visible_ <= p_.topk && all_blocks) {  // nothing to choose
        if (p_.candidates == Candidates::kPublish) PublishAll(blocks);
        return Store(selected, Iota(selected, visible_));
      }
      ScoreAll();
    }
    Store(selected, best_.Finish(selected));
  }

 private:
  static int32_t Iota(int32_t* to, int64_t n) {
    std::iota(to, to + n, 0);
    return static_cast<int32_t>(n);
  }
  void Store(int32_t* selected, int32_t count) {
    std::fill(selected + count, selected + p_.topk, -1);
    p_.selected_count[r_] = count;
  }
  void PublishAll(int64_t blocks) { p_.block_count[r_] = Iota(p_.blocks + r_ * p_.blocks_max, blocks); }

  // s_.scores[i] of latent s_.items[i].
  void Score(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const GlobalRow row = FindGlobalRow(p_.cache, p_.requests[r_], s_.items[i]);
      s_.codes[i] = row.index_codes;
      s_.scales[i] = row.index_scales;
    }
    context_.kernels.index_scores({.heads = p_.heads, .dim = p_.cache.index_dim, .keys = n, .codes = s_.codes,
                                   .scales = s_.scales, .q = s_.q, .weights = s_.weights,
                                   .score_scale = p_.score_scale, .panel = s_.panel, .dots = s_.dots,
                                   .scores = s_.scores});
  }

  void ScoreAll() {
    TopK blocks(p_.blocks_max, s_.best_blocks);
    float pooled = -INFINITY;
    for (int64_t begin = 0; begin < visible_; begin += kChunk) {
      const int64_t n = std::min(kChunk, visible_ - begin);
      std::iota(s_.items, s_.items + n, static_cast<int32_t>(begin));
      Score(n);
      for (int64_t i = 0; i < n; ++i) {
        best_.Add(s_.scores[i], s_.items[i]);
        if (p_.candidates != Candidates::kPublish) continue;
        pooled = std::max(pooled, s_.scores[i]);
        const int64_t next = begin + i + 1;
        if (next == visible_) pooled = INFINITY;  // the block of the newest visible latent is always kept
        if (next % p_.block_size == 0 || next == visible_) {
          blocks.Add(pooled, static_cast<int32_t>((next - 1) / p_.block_size));
          pooled = -INFINITY;
        }
      }
    }
    if (p_.candidates == Candidates::kPublish) p_.block_count[r_] = blocks.Finish(p_.blocks + r_ * p_.blocks_max);
  }

  void ScoreBlocks() {
    int64_t n = 0;
    const auto flush = [&] {
      Score(n);
      for (int64_t i = 0; i < n; ++i) best_.Add(s_.scores[i], s_.items[i]);
      n = 0;
    };
    for (int32_t b = 0; b < p_.block_count[r_]; ++b) {
      const int64_t begin = p_.blocks[r_ * p_.blocks_max + b] * p_.block_size;
      for (int64_t j = begin; j < std::min(begin + p_.block_size, visible_); ++j) {
        s_.items[n++] = static_cast<int32_t>(j);
        if (n == kChunk) flush();
      }
    }
    flush();
  }

  const Context& context_;
  const IndexSelectParams& p_;
  const int64_t r_;
  const Scratch& s_;
  const int64_t visible_;
  TopK best_;
};

}  // namespace

void IndexSelect(Context& context, const IndexSelectParams& p) {
  if (p.rows == 0) return;
  DI_CHECK(p.candidates == Candidates::kNone || p.block_size > 0);
  const int64_t visible = (*std::max_element(p.positions, p.positions + p.rows) + 1) / p.cache.ratio;
  context.For(p.rows, visible <= p.topk ? 16 : visible * p.heads * p.cache.index_dim,
              [&](int thread, int64_t begin, int64_t end) {
                Arena& arena = context.arena(thread);
                arena.Reset();
                const Scratch scratch(p, arena);
                for (int64_t r = begin; r < end; ++r) RowSelector(context, p, r, scratch).Run();
              });
}

}  // namespace deepinfer::backend::cpu
