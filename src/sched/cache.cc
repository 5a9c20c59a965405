// SPDX-License-Identifier: Apache-2.0
#include "sched/cache.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer::sched {
namespace {

using kv::BlockId;
using kv::kBlockTokens;
using kv::kEarly;
using kv::kLate;
using kv::kNoBlock;
using kv::LayerGroup;

int64_t PieceEnd(int64_t position) { return (position + kBlockTokens - 1) / kBlockTokens; }

std::string CheckReferences(const kv::BlockPool& pool, const std::vector<int32_t>& expected, const char* what) {
  for (BlockId id = 0; id < pool.capacity(); ++id) {
    const int32_t want = expected[static_cast<size_t>(id)];
    if (pool.refs(id) != want) return fmt::format("{} {}: {} references, {} holders", what, id, pool.refs(id), want);
  }
  return pool.FindViolation();
}

}  // namespace

Cache::Cache(const Config& config)
    : pages_per_point_(config.pages_per_point()),
      block_pool_(config.blocks),
      page_pools_{kv::BlockPool(config.pages[kEarly]), kv::BlockPool(config.pages[kLate])},
      block_table_(config.slots, config.blocks_per_request_max()),
      page_tables_{kv::BlockTable(config.slots, config.pages[kEarly] > 0 ? config.pages_per_request_max() : 0),
                   kv::BlockTable(config.slots, config.pages[kLate] > 0 ? config.pages_per_request_max() : 0)},
      index_(&block_pool_),
      snapshots_(
          {.blocks = config.blocks, .pages_per_point = config.pages_per_point(), .pages_max = config.snapshot_pages},
          {&page_pools_[kEarly], &page_pools_[kLate]}) {
  free_slots_.reserve(static_cast<size_t>(config.slots));
  for (int32_t slot = config.slots; slot-- > 0;) free_slots_.push_back(slot);
}

SlotLease Cache::TakeSlot() {
  DI_CHECK(HasSlot());
  const int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return SlotLease(slot);
}

void Cache::Release(SlotLease lease) {
  const int32_t slot = std::exchange(lease.slot_, -1);
  TruncateBlocks(slot, 0);
  for (const LayerGroup group : {kEarly, kLate}) {
    while (!page_tables_[group].ids(slot).empty()) page_pools_[group].Unref(page_tables_[group].PopBack(slot));
    page_tables_[group].Start(slot, 0);
  }
  free_slots_.push_back(slot);
}

void Cache::TruncateBlocks(int32_t slot, int64_t count) {
  while (block_table_.end(slot) > count) {
    const BlockId id = block_table_.PopBack(slot);
    // Only its computer holds an announced block (others wait), except across a fork, where a sibling carries on.
    if (index_.IsNamed(id) && !index_.IsReady(id) && block_pool_.refs(id) == 1) index_.Withdraw(id);
    block_pool_.Unref(id);
  }
}

BlockId Cache::TakeBlock() {
  BlockId evicted;
  const BlockId id = index_.TakeBlock(&evicted);
  if (evicted != kNoBlock) {
    snapshots_.Drop(evicted);
    ++evictions_;
  }
  return id;
}

// Frees pages by evicting snapshots until `count` are free.
bool Cache::MakePages(LayerGroup group, int64_t count) {
  while (page_pools_[group].num_free() < count) {
    if (!snapshots_.EvictOldest(group)) return false;
  }
  return true;
}

int64_t Cache::MissingPages(int32_t slot, LayerGroup group, int64_t end) const {
  if (page_pools_[group].capacity() == 0) return 0;
  return std::max<int64_t>(0, PieceEnd(end) - page_tables_[group].end(slot));
}

int64_t Cache::MissingBlocks(int32_t slot, int64_t end) const {
  return std::max<int64_t>(0, PieceEnd(end) - block_table_.end(slot));
}

bool Cache::Covers(int32_t slot, int64_t block_end, std::array<int64_t, kv::kLayerGroups> page_end) const {
  return MissingBlocks(slot, block_end) == 0 && MissingPages(slot, kEarly, page_end[kEarly]) == 0 &&
         MissingPages(slot, kLate, page_end[kLate]) == 0;
}

bool Cache::Reserve(int32_t slot, int64_t block_end, std::array<int64_t, kv::kLayerGroups> page_end) {
  const int64_t blocks = MissingBlocks(slot, block_end);
  const int64_t pages[kv::kLayerGroups] = {MissingPages(slot, kEarly, page_end[kEarly]),
                                           MissingPages(slot, kLate, page_end[kLate])};
  if (blocks > block_pool_.num_available()) return false;
  for (const LayerGroup group : {kEarly, kLate}) {
    if (!MakePages(group, pages[group])) return false;
  }
  for (int64_t i = 0; i < blocks; ++i) block_table_.Append(slot, TakeBlock());
  for (const LayerGroup group : {kEarly, kLate}) {
    for (int64_t i = 0; i < pages[group]; ++i) page_tables_[group].Append(slot, page_pools_[group].Take());
  }
  return true;
}

void Cache::ShareBlock(int32_t slot, BlockId block) {
  block_pool_.Ref(block);
  block_table_.Append(slot, block);
}

void Cache::StartPages(int32_t slot, LayerGroup group, int64_t from) {
  page_tables_[group].Start(slot, from / kBlockTokens);
}

void Cache::SharePages(int32_t slot, LayerGroup group, BlockId block, int64_t position) {
  const std::span<const BlockId> pages = snapshots_.Use(block, group);
  DI_CHECK(!pages.empty());
  page_tables_[group].Start(slot, position / kBlockTokens - pages_per_point_);
  for (const BlockId page : pages) {
    page_pools_[group].Ref(page);
    page_tables_[group].Append(slot, page);
  }
}

void Cache::SlidePages(int32_t slot, int64_t computed) {
  const int64_t keep_from = computed / kBlockTokens - pages_per_point_;
  for (const LayerGroup group : {kEarly, kLate}) {
    kv::BlockTable& table = page_tables_[group];
    while (table.first(slot) < keep_from && !table.ids(slot).empty()) page_pools_[group].Unref(table.PopFront(slot));
  }
}

void Cache::KeepSnapshot(int32_t slot, LayerGroup group, BlockId block, int64_t position) {
  const int64_t end = position / kBlockTokens;
  const int64_t first = end - pages_per_point_;
  const kv::BlockTable& table = page_tables_[group];
  if (first < table.first(slot) || end > table.end(slot)) return;
  snapshots_.Keep(
      block, group,
      table.ids(slot).subspan(static_cast<size_t>(first - table.first(slot)), static_cast<size_t>(pages_per_point_)));
}

bool Cache::Fork(int32_t from, int32_t to, int64_t position, std::vector<Copy>* copies) {
  const int64_t whole = position / kBlockTokens;
  const bool partial = position % kBlockTokens != 0;
  if (partial) {
    if (block_pool_.num_available() < 1) return false;
    for (const LayerGroup group : {kEarly, kLate}) {
      if (page_pools_[group].capacity() > 0 && !MakePages(group, 1)) return false;
    }
  }
  for (int64_t entry = 0; entry < whole; ++entry) ShareBlock(to, block_table_.at(from, entry));
  if (partial) {
    const BlockId block = TakeBlock();
    copies->push_back({CopyKind::kBlock, block_table_.at(from, whole), block});
    block_table_.Append(to, block);
  }
  for (const LayerGroup group : {kEarly, kLate}) ForkPages(from, to, group, position, copies);
  copies->push_back({CopyKind::kState, from, to});
  return true;
}

void Cache::ForkPages(int32_t from, int32_t to, LayerGroup group, int64_t position, std::vector<Copy>* copies) {
  const kv::BlockTable& table = page_tables_[group];
  if (page_pools_[group].capacity() == 0) return;
  const int64_t whole = position / kBlockTokens;
  const int64_t first = std::max(table.first(from), whole - pages_per_point_);
  page_tables_[group].Start(to, first);
  for (int64_t entry = first; entry < whole; ++entry) {
    const BlockId page = table.at(from, entry);
    page_pools_[group].Ref(page);
    page_tables_[group].Append(to, page);
  }
  if (position % kBlockTokens == 0) return;
  const BlockId page = page_pools_[group].Take();
  copies->push_back({group == kEarly ? CopyKind::kEarlyPage : CopyKind::kLatePage, table.at(from, whole), page});
  page_tables_[group].Append(to, page);
}

std::string Cache::FindViolation() const {
  std::vector<int32_t> expected(static_cast<size_t>(block_pool_.capacity()), 0);
  for (int32_t slot = 0; slot < block_table_.slots(); ++slot) {
    for (const BlockId id : block_table_.ids(slot)) ++expected[static_cast<size_t>(id)];
  }
  std::string violation = CheckReferences(block_pool_, expected, "block");
  for (const LayerGroup group : {kEarly, kLate}) {
    if (!violation.empty()) return violation;
    expected.assign(static_cast<size_t>(page_pools_[group].capacity()), 0);
    for (int32_t slot = 0; slot < block_table_.slots(); ++slot) {
      for (const BlockId id : page_tables_[group].ids(slot)) ++expected[static_cast<size_t>(id)];
    }
    snapshots_.ForEachPage(group, [&](BlockId page) { ++expected[static_cast<size_t>(page)]; });
    violation = CheckReferences(page_pools_[group], expected, group == kEarly ? "early page" : "late page");
  }
  for (const int32_t slot : free_slots_) {
    if (!block_table_.ids(slot).empty()) return fmt::format("free slot {} holds blocks", slot);
    if (!page_tables_[kEarly].ids(slot).empty() || !page_tables_[kLate].ids(slot).empty()) {
      return fmt::format("free slot {} holds pages", slot);
    }
  }
  return violation.empty() ? index_.FindViolation() : violation;
}

}  // namespace deepinfer::sched
