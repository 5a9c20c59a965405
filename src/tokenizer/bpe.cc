// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "core/check.h"

namespace deepinfer {
namespace {

// A key of EncodeShort: rank and position.
constexpr int kPositionBits = 6;
static_assert(BpeScratch::kShortMax == size_t{1} << kPositionBits);
constexpr int32_t kNoKey = INT32_MAX;

constexpr uint32_t kNone = UINT32_MAX;

// Bits of operands_.
constexpr uint8_t kLeft = 1;
constexpr uint8_t kRight = 2;

constexpr int kIdBits = 20;
constexpr int kRankBits = 64 - 2 * kIdBits;
constexpr uint64_t kEmpty = UINT64_MAX;

// A pair in the upper bits of a rule.
uint64_t Pair(TokenId left, TokenId right) {
  return (static_cast<uint64_t>(left) << kIdBits | static_cast<uint64_t>(right)) << kRankBits;
}

// The least of `count` keys, a multiple of 8.
int32_t Least(const int32_t* keys, size_t count) {
  typedef int32_t Keys4 __attribute__((vector_size(16)));
  const auto* vectors = reinterpret_cast<const Keys4*>(keys);
  Keys4 low = vectors[0];
  Keys4 high = vectors[1];
  for (size_t i = 2; i < count / 4; i += 2) {
    low = vectors[i] < low ? vectors[i] : low;
    high = vectors[i + 1] < high ? vectors[i + 1] : high;
  }
  low = high < low ? high : low;
  return std::min(std::min(low[0], low[1]), std::min(low[2], low[3]));
}

size_t Slot(uint64_t pair, unsigned shift) { return (pair >> kRankBits) * 0x9E3779B97F4A7C15u >> shift; }

}  // namespace

BpeModel::BpeModel(const TokenizerSpec& spec) : byte_ids_(spec.byte_ids), byte_pair_ranks_(size_t{1} << 16, kNoRank) {
  DI_CHECK(spec.spellings.size() <= size_t{1} << kIdBits);
  DI_CHECK(spec.merges.size() < size_t{1} << kRankBits);
  const size_t slots = std::bit_ceil(2 * spec.merges.size() + 2);
  shift_ = 64 - static_cast<unsigned>(std::countr_zero(slots));
  rules_.resize(slots, kEmpty);
  operands_.resize(spec.spellings.size());
  for (const MergeRule& rule : spec.merges) {
    AddRule(rule.left, rule.right, static_cast<uint32_t>(merged_.size()));
    merged_.push_back(rule.merged);
  }
  for (size_t i = 0; i < byte_pair_ranks_.size(); ++i) {
    const TokenId left = byte_ids_[i >> 8], right = byte_ids_[i & 255];
    if (left >= 0 && right >= 0) byte_pair_ranks_[i] = Rank(left, right);
  }
  if (!spec.ignore_merges) return;
  for (const TokenId id : spec.vocabulary) whole_pieces_.emplace(spec.bytes[id], id);
}

void BpeModel::AddRule(TokenId left, TokenId right, uint32_t rank) {
  const uint64_t pair = Pair(left, right);
  size_t slot = Slot(pair, shift_);
  while (rules_[slot] != kEmpty && rules_[slot] >> kRankBits != pair >> kRankBits) {
    slot = (slot + 1) & (rules_.size() - 1);
  }
  // A pair that is there twice has its last rank.
  rules_[slot] = pair | rank;
  operands_[left] |= kLeft;
  operands_[right] |= kRight;
}

inline uint32_t BpeModel::Rank(TokenId left, TokenId right) const {
  if ((operands_[left] & kLeft) == 0 || (operands_[right] & kRight) == 0) return kNoRank;
  const uint64_t pair = Pair(left, right);
  size_t slot = Slot(pair, shift_);
  while (true) {
    const uint64_t rule = rules_[slot];
    if (rule == kEmpty) return kNoRank;
    if (rule >> kRankBits == pair >> kRankBits) {
      const auto rank = static_cast<uint32_t>(rule & ((1u << kRankBits) - 1));
      __builtin_prefetch(&merged_[rank]);  // a rule that applies is likely to be used
      return rank;
    }
    slot = (slot + 1) & (rules_.size() - 1);
  }
}

void BpeModel::Encode(std::string_view piece, BpeScratch* scratch, std::vector<TokenId>* out) const {
  if (!whole_pieces_.empty()) {
    const auto it = whole_pieces_.find(std::string(piece));
    if (it != whole_pieces_.end()) {
      out->push_back(it->second);
      return;
    }
  }
  piece.size() <= BpeScratch::kShortMax ? EncodeShort(piece, scratch, out) : EncodeLong(piece, scratch, out);
}

// Symbols stay where they began; a mask tells which are left, and each pair's key is rank | position, so that the
// least key is the pair to join. Without branches in the search this is faster than a heap up to the mask's size.
void BpeModel::EncodeShort(std::string_view piece, BpeScratch* scratch, std::vector<TokenId>* out) const {
  std::array<TokenId, BpeScratch::kShortMax>& ids = scratch->short_ids;
  std::array<int32_t, BpeScratch::kShortMax>& keys = scratch->keys;
  const auto key = [](uint32_t rank, size_t position) {
    return rank == kNoRank ? kNoKey : static_cast<int32_t>(rank << kPositionBits | position);
  };
  size_t size = 0;
  uint8_t last = 0;
  for (const char c : piece) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte_ids_[byte] < 0) continue;
    if (size > 0) keys[size - 1] = key(byte_pair_ranks_[last << 8 | byte], size - 1);
    ids[size++] = byte_ids_[byte];
    last = byte;
  }
  if (size == 0) return;
  const size_t padded = (size + 7) & ~size_t{7};
  std::fill(keys.begin() + size - 1, keys.begin() + padded, kNoKey);
  uint64_t alive = ~uint64_t{0} >> (64 - size);
  while (true) {
    const int32_t best = Least(keys.data(), padded);
    if (best == kNoKey) break;
    const size_t at = best & (BpeScratch::kShortMax - 1);
    ids[at] = merged_[best >> kPositionBits];
    const uint64_t behind = alive & ~uint64_t{1} << at;
    keys[std::countr_zero(behind)] = kNoKey;
    alive &= ~(behind & -behind);
    const uint64_t still_behind = behind & (behind - 1);
    keys[at] = still_behind == 0 ? kNoKey : key(Rank(ids[at], ids[std::countr_zero(still_behind)]), at);
    const uint64_t before = alive & ((uint64_t{1} << at) - 1);
    if (before == 0) continue;
    const size_t previous = 63 - std::countl_zero(before);
    keys[previous] = key(Rank(ids[previous], ids[at]), previous);
  }
  for (; alive != 0; alive &= alive - 1) out->push_back(ids[std::countr_zero(alive)]);
}

void BpeModel::EncodeLong(std::string_view piece, BpeScratch* scratch, std::vector<TokenId>* out) const {
  std::vector<TokenId>& ids = scratch->ids;
  std::vector<uint32_t>& ranks = scratch->ranks;
  ids.clear();
  ranks.clear();
  uint8_t last = 0;
  for (const char c : piece) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte_ids_[byte] < 0) continue;
    if (!ids.empty()) ranks.push_back(byte_pair_ranks_[last << 8 | byte]);
    ids.push_back(byte_ids_[byte]);
    last = byte;
  }
  if (ids.empty()) return;
  ranks.push_back(kNoRank);
  MergeByHeap(scratch);
  out->insert(out->end(), ids.begin(), ids.end());
}

// A linked list, and a heap of (rank, position); an entry is stale when the pair there has another rank by now.
void BpeModel::MergeByHeap(BpeScratch* scratch) const {
  std::vector<TokenId>& ids = scratch->ids;
  std::vector<uint32_t>& ranks = scratch->ranks;
  std::vector<uint32_t>& next = scratch->next;
  std::vector<uint32_t>& previous = scratch->previous;
  std::vector<uint64_t>& heap = scratch->heap;
  const auto size = static_cast<uint32_t>(ids.size());
  next.resize(size);
  previous.resize(size);
  heap.clear();
  for (uint32_t i = 0; i < size; ++i) {
    next[i] = i + 1 < size ? i + 1 : kNone;
    previous[i] = i > 0 ? i - 1 : kNone;
    if (ranks[i] != kNoRank) heap.push_back(uint64_t{ranks[i]} << 32 | i);
  }
  std::ranges::make_heap(heap, std::greater<>());
  const auto rank_pair = [&](uint32_t i) {
    ranks[i] = next[i] == kNone ? kNoRank : Rank(ids[i], ids[next[i]]);
    if (ranks[i] == kNoRank) return;
    heap.push_back(uint64_t{ranks[i]} << 32 | i);
    std::ranges::push_heap(heap, std::greater<>());
  };
  while (!heap.empty()) {
    const auto rank = static_cast<uint32_t>(heap.front() >> 32);
    const auto at = static_cast<uint32_t>(heap.front());
    std::ranges::pop_heap(heap, std::greater<>());
    heap.pop_back();
    if (ranks[at] != rank) continue;
    const uint32_t gone = next[at];
    ids[at] = merged_[rank];
    ranks[gone] = kNoRank;
    next[at] = next[gone];
    if (next[at] != kNone) previous[next[at]] = at;
    rank_pair(at);
    if (previous[at] != kNone) rank_pair(previous[at]);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i != kNone; i = next[i]) ids[kept++] = ids[i];
  ids.resize(kept);
}

}  // namespace deepinfer
