// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace deepinfer {
namespace {

// Up to here moving the tail at each merge costs less than a heap.
constexpr size_t kScanMax = 64;

constexpr uint32_t kNone = UINT32_MAX;

uint64_t Pair(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

size_t Slot(uint64_t pair, unsigned shift) { return pair * 0x9E3779B97F4A7C15u >> shift; }

}  // namespace

BpeModel::BpeModel(const TokenizerSpec& spec) : byte_ids_(spec.byte_ids) {
  const size_t slots = std::bit_ceil(2 * spec.merges.size() + 2);
  shift_ = 64 - static_cast<unsigned>(std::countr_zero(slots));
  rules_.resize(slots);
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const MergeRule& rule = spec.merges[rank];
    AddRule(Pair(rule.left, rule.right), static_cast<uint32_t>(rank), rule.merged);
  }
  if (!spec.ignore_merges) return;
  for (const TokenId id : spec.vocabulary) whole_pieces_.emplace(spec.bytes[id], id);
}

void BpeModel::AddRule(uint64_t pair, uint32_t rank, TokenId merged) {
  size_t slot = Slot(pair, shift_);
  while (rules_[slot].pair != pair && rules_[slot].rank != kNoRank) slot = (slot + 1) & (rules_.size() - 1);
  // A pair that is there twice has its last rank.
  rules_[slot] = {pair, rank, merged};
}

inline const BpeModel::Rule& BpeModel::Find(TokenId left, TokenId right) const {
  const uint64_t pair = Pair(left, right);
  size_t slot = Slot(pair, shift_);
  while (rules_[slot].pair != pair && rules_[slot].rank != kNoRank) slot = (slot + 1) & (rules_.size() - 1);
  return rules_[slot];
}

void BpeModel::Encode(std::string_view piece, BpeScratch* scratch, std::vector<TokenId>* out) const {
  if (!whole_pieces_.empty()) {
    const auto it = whole_pieces_.find(std::string(piece));
    if (it != whole_pieces_.end()) {
      out->push_back(it->second);
      return;
    }
  }
  std::vector<TokenId>& ids = scratch->ids;
  ids.clear();
  for (const char c : piece) {
    const TokenId id = byte_ids_[static_cast<uint8_t>(c)];
    if (id >= 0) ids.push_back(id);
  }
  if (ids.size() > 1) {
    std::vector<uint32_t>& ranks = scratch->ranks;
    ranks.resize(ids.size());
    for (size_t i = 0; i + 1 < ids.size(); ++i) ranks[i] = Find(ids[i], ids[i + 1]).rank;
    ranks.back() = kNoRank;
    ids.size() <= kScanMax ? MergeByScan(scratch) : MergeByHeap(scratch);
  }
  out->insert(out->end(), ids.begin(), ids.end());
}

// ids and ranks (of the pair that begins there) stay dense.
void BpeModel::MergeByScan(BpeScratch* scratch) const {
  std::vector<TokenId>& ids = scratch->ids;
  std::vector<uint32_t>& ranks = scratch->ranks;
  while (true) {
    const size_t at = std::ranges::min_element(ranks) - ranks.begin();  // the leftmost of equals
    if (ranks[at] == kNoRank) return;
    ids[at] = Find(ids[at], ids[at + 1]).merged;
    ids.erase(ids.begin() + at + 1);
    ranks.erase(ranks.begin() + at);
    if (at + 1 < ids.size()) ranks[at] = Find(ids[at], ids[at + 1]).rank;
    if (at > 0) ranks[at - 1] = Find(ids[at - 1], ids[at]).rank;
  }
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
    ranks[i] = next[i] == kNone ? kNoRank : Find(ids[i], ids[next[i]]).rank;
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
    ids[at] = Find(ids[at], ids[gone]).merged;
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
