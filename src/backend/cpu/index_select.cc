// SPDX-License-Identifier: Apache-2.0
// The indexer: scores of visible latents, the best of them, and candidate blocks (spec/model.md 4).
#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>

#include "backend/cpu/cache.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/select.h"
#include "core/check.h"

namespace deepinfer::backend::cpu {
namespace {

// Latents scored at a time.
constexpr int64_t kChunk = TopK::kRunMax;
static_assert(kChunk % 16 == 0);

// Neighbouring rows of one request that share decoded keys.
constexpr int64_t kRowsTogether = 16;

// Decoded keys of one chunk, and where they come from.
class KeyChunk {
 public:
  KeyChunk(const Context& context, const GlobalCache& cache, Arena& arena)
      : context_(context), rows_(cache), dim_(cache.index_dim), columns_(arena.Take<float>(kChunk * cache.index_dim)) {}

  void Clear() { size_ = 0; }
  bool full() const { return size_ == kChunk; }
  int64_t size() const { return size_; }
  const int32_t* items() const { return items_; }
  const float* columns() const { return columns_; }

  void Add(int32_t request, int32_t item) {
    const GlobalRow row = rows_.Find(request, item);
    codes_[size_] = row.index_codes;
    scales_[size_] = row.index_scales;
    items_[size_++] = item;
  }
  void Decode() {
    for (int64_t i = 0; i < size_; i += 16) {
      context_.kernels.index_columns(codes_ + i, scales_ + i, std::min<int64_t>(16, size_ - i), dim_,
                                     columns_ + i * dim_);
    }
  }

 private:
  const Context& context_;
  const GlobalRows rows_;
  const int64_t dim_;
  float* columns_;
  int64_t size_ = 0;
  int32_t items_[kChunk];
  const uint8_t* codes_[kChunk];
  const uint8_t* scales_[kChunk];
};

// One row: its scores, chunk by chunk, and the best so far.
class RowSelector {
 public:
  RowSelector(const Context& context, const IndexSelectParams& p, int64_t r, Arena& arena)
      : context_(context),
        p_(p),
        r_(r),
        visible_((p.positions[r] + 1) / p.cache.ratio),
        weights_(arena.Take<float>(p.heads)),
        best_(context.kernels, p.topk, arena),
        blocks_(context.kernels, p.blocks_max, arena) {
    for (int64_t h = 0; h < p.heads; ++h) weights_[h] = p.weights[r * p.heads + h] * p.weight_scale;
  }

  int64_t visible() const { return visible_; }

  // Where there is nothing to choose: stores the whole answer and returns true.
  bool TakeAll() {
    if (p_.candidates == Candidates::kRestrict) return false;
    const int64_t blocks = p_.candidates == Candidates::kPublish ? (visible_ + p_.block_size - 1) / p_.block_size : 0;
    if (visible_ > p_.topk || blocks > p_.blocks_max) return false;
    if (p_.candidates == Candidates::kPublish) {
      std::iota(p_.blocks + r_ * p_.blocks_max, p_.blocks + r_ * p_.blocks_max + blocks, 0);
      p_.block_count[r_] = static_cast<int32_t>(blocks);
    }
    int32_t* selected = p_.selected + r_ * p_.topk;
    std::iota(selected, selected + visible_, 0);
    Fill(visible_);
    return true;
  }

  // Scores of the first n keys of the chunk.
  void Score(const KeyChunk& keys, int64_t n, float* scores) const {
    context_.kernels.index_scores({.heads = p_.heads, .dim = p_.cache.index_dim, .keys = n, .columns = keys.columns(),
                                   .q = p_.q + r_ * p_.heads * p_.cache.index_dim, .weights = weights_,
                                   .score_scale = p_.score_scale, .scores = scores});
  }

  // Takes in up to kChunk scored latents; they ascend, within a call and from call to call.
  void Take(const float* scores, const int32_t* items, int64_t n) {
    best_.Add(scores, items, n);
    if (p_.candidates == Candidates::kPublish) PoolBlocks(scores, items, n);
  }

  void Finish() {
    if (p_.candidates == Candidates::kPublish) p_.block_count[r_] = blocks_.Finish(p_.blocks + r_ * p_.blocks_max);
    Fill(best_.Finish(p_.selected + r_ * p_.topk));
  }

 private:
  // The best score of each candidate block; the block of the newest visible latent is always kept.
  void PoolBlocks(const float* scores, const int32_t* items, int64_t n) {
    float pooled[kChunk];
    int32_t blocks[kChunk];
    int64_t done = 0;
    for (int64_t i = 0; i < n; ++i) {
      pooled_ = std::max(pooled_, scores[i]);
      const bool newest = int64_t{items[i]} + 1 == visible_;
      if (++in_block_ < p_.block_size && !newest) continue;
      pooled[done] = newest ? INFINITY : pooled_;
      blocks[done++] = block_++;
      pooled_ = -INFINITY;
      in_block_ = 0;
    }
    blocks_.Add(pooled, blocks, done);
  }

  void Fill(int64_t count) {
    std::fill(p_.selected + r_ * p_.topk + count, p_.selected + (r_ + 1) * p_.topk, -1);
    p_.selected_count[r_] = static_cast<int32_t>(count);
  }

  const Context& context_;
  const IndexSelectParams& p_;
  const int64_t r_;
  const int64_t visible_;
  float* weights_;
  TopK best_;
  TopK blocks_;
  // The candidate block that is being pooled.
  int32_t block_ = 0;
  int64_t in_block_ = 0;
  float pooled_ = -INFINITY;
};

// The latents that a row chooses among, ascending: inside its candidate blocks, or all visible ones.
int64_t ListItems(const IndexSelectParams& p, int64_t r, int64_t visible, int32_t* items) {
  if (p.candidates != Candidates::kRestrict) {
    std::iota(items, items + visible, 0);
    return visible;
  }
  int64_t n = 0;
  for (int32_t b = 0; b < p.block_count[r]; ++b) {
    const int64_t begin = p.blocks[r * p.blocks_max + b] * p.block_size;
    for (int64_t j = begin; j < std::min(begin + p.block_size, visible); ++j) items[n++] = static_cast<int32_t>(j);
  }
  return n;
}
int64_t ItemsMax(const IndexSelectParams& p, int64_t visible) {
  return p.candidates == Candidates::kRestrict ? std::min(visible, p.blocks_max * p.block_size) : visible;
}

// A row inside its candidate blocks, on one thread.
void SelectRestricted(const Context& context, const IndexSelectParams& p, int64_t r, KeyChunk& keys, Arena& arena) {
  RowSelector row(context, p, r, arena);
  int32_t* items = arena.Take<int32_t>(ItemsMax(p, row.visible()));
  const int64_t n = ListItems(p, r, row.visible(), items);
  for (int64_t first = 0; first < n; first += kChunk) {
    keys.Clear();
    for (int64_t i = first; i < std::min(n, first + kChunk); ++i) keys.Add(p.requests[r], items[i]);
    keys.Decode();
    float scores[kChunk];
    row.Score(keys, keys.size(), scores);
    row.Take(scores, keys.items(), keys.size());
  }
  row.Finish();
}

// One row by itself, its chunks scored by all threads: for a decode step over a long context.
void SelectAlone(Context& context, const IndexSelectParams& p, int64_t r) {
  Arena& shared = context.shared;
  shared.Reset();
  RowSelector row(context, p, r, shared);
  if (row.TakeAll()) return;
  const int64_t max = ItemsMax(p, row.visible());
  int32_t* items = shared.Take<int32_t>(max);
  float* scores = shared.Take<float>(max);
  const int64_t n = ListItems(p, r, row.visible(), items);
  const int64_t chunks = (n + kChunk - 1) / kChunk;
  context.For(chunks, kChunk * p.heads * p.cache.index_dim, [&](int thread, int64_t begin, int64_t end) {
    Arena& arena = context.arena(thread);
    arena.Reset();
    KeyChunk keys(context, p.cache, arena);
    for (int64_t first = begin * kChunk; first < std::min(n, end * kChunk); first += kChunk) {
      keys.Clear();
      for (int64_t i = first; i < std::min(n, first + kChunk); ++i) keys.Add(p.requests[r], items[i]);
      keys.Decode();
      row.Score(keys, keys.size(), scores + first);
    }
  });
  for (int64_t first = 0; first < n; first += kChunk) row.Take(scores + first, items + first, std::min(kChunk, n - first));
  row.Finish();
}

// Rows [begin, end) of one request over all their visible latents.
void SelectTogether(const Context& context, const IndexSelectParams& p, int64_t begin, int64_t end, KeyChunk& keys, Arena& arena) {
  RowSelector* rows = arena.Take<RowSelector>(kRowsTogether);
  int64_t n = 0, visible = 0;
  for (int64_t r = begin; r < end; ++r) {
    RowSelector* row = new (rows + n) RowSelector(context, p, r, arena);
    if (row->TakeAll()) continue;
    visible = std::max(visible, row->visible());
    ++n;
  }
  for (int64_t first = 0; first < visible; first += kChunk) {
    keys.Clear();
    for (int64_t j = first; j < std::min(first + kChunk, visible); ++j) keys.Add(p.requests[begin], static_cast<int32_t>(j));
    keys.Decode();
    for (int64_t i = 0; i < n; ++i) {
      const int64_t seen = std::min(keys.size(), rows[i].visible() - first);
      if (seen <= 0) continue;
      float scores[kChunk];
      rows[i].Score(keys, seen, scores);
      rows[i].Take(scores, keys.items(), seen);
    }
  }
  for (int64_t i = 0; i < n; ++i) rows[i].Finish();
}

}  // namespace

void IndexSelect(Context& context, const IndexSelectParams& p) {
  if (p.rows == 0) return;
  DI_CHECK(p.candidates == Candidates::kNone || p.block_size > 0);
  if (p.rows < context.pool.size() || p.rows == 1) {
    for (int64_t r = 0; r < p.rows; ++r) SelectAlone(context, p, r);
    return;
  }
  const int64_t visible = (*std::max_element(p.positions, p.positions + p.rows) + 1) / p.cache.ratio;
  const int64_t work = visible <= p.topk ? 16 : ItemsMax(p, visible) * p.heads * p.cache.index_dim;
  context.For(p.rows, work, [&](int thread, int64_t begin, int64_t end) {
    Arena& arena = context.arena(thread);
    for (int64_t r = begin; r < end;) {
      arena.Reset();
      KeyChunk keys(context, p.cache, arena);
      if (p.candidates == Candidates::kRestrict) {
        SelectRestricted(context, p, r++, keys, arena);
        continue;
      }
      const int64_t first = r;
      while (r < end && r < first + kRowsTogether && p.requests[r] == p.requests[first]) ++r;
      SelectTogether(context, p, first, r, keys, arena);
    }
  });
}

}  // namespace deepinfer::backend::cpu
