// SPDX-License-Identifier: Apache-2.0
// All cache memory of a device as the scheduler sees it: blocks and pages with their tables, the prefix index and the
// window snapshots. A slot is the right to run: one row in every table. What a slot holds is taken with Reserve and the
// Share functions, and given back as a whole with Release. Not thread-safe: part of the scheduler.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kv/block/block_pool.h"
#include "kv/block/block_table.h"
#include "kv/prefix/prefix_index.h"
#include "kv/prefix/window_snapshots.h"
#include "sched/config.h"
#include "sched/plan.h"

namespace deepinfer::sched {

// Ownership of a slot and of all that its rows hold. Must be given back to Cache::Release; losing one is a bug.
class SlotLease {
 public:
  SlotLease(SlotLease&& other) noexcept : slot_(std::exchange(other.slot_, -1)) {}
  SlotLease& operator=(SlotLease&& other) noexcept {
    DI_CHECK(slot_ < 0);
    slot_ = std::exchange(other.slot_, -1);
    return *this;
  }
  ~SlotLease() { DI_CHECK(slot_ < 0); }

  int32_t slot() const { return slot_; }

 private:
  friend class Cache;
  explicit SlotLease(int32_t slot) : slot_(slot) {}
  int32_t slot_;
};

class Cache {
 public:
  explicit Cache(const Config& config);
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  bool HasSlot() const { return !free_slots_.empty(); }
  // An empty slot. REQUIRES: HasSlot().
  SlotLease TakeSlot();
  // Drops all references of the slot, the last block first, and withdraws blocks that it announced and did not finish.
  void Release(SlotLease lease);

  // Grows the slot's rows until they cover positions below `block_end`, and below page_end in each group. All or
  // nothing. Evicts cached blocks and snapshots as needed.
  bool Reserve(int32_t slot, int64_t block_end, std::array<int64_t, kv::kLayerGroups> page_end);
  // Whether they do already.
  bool Covers(int32_t slot, int64_t block_end, std::array<int64_t, kv::kLayerGroups> page_end) const;

  // Appends a block that the index knows.
  void ShareBlock(int32_t slot, kv::BlockId block);
  // Drops the blocks from entry `count` on.
  void TruncateBlocks(int32_t slot, int64_t count);
  // The group's row begins at the page of position `from`.
  void StartPages(int32_t slot, kv::LayerGroup group, int64_t from);
  // The group's row begins with the snapshot's pages, which end at `position`. REQUIRES: there is one for `block`.
  void SharePages(int32_t slot, kv::LayerGroup group, kv::BlockId block, int64_t position);
  // Drops the pages that no row from position `computed` on reads, but for those of the last block end.
  void SlidePages(int32_t slot, int64_t computed);
  // Keeps the slot's windows at the block end `position` for `block`, if they are there.
  void KeepSnapshot(int32_t slot, kv::LayerGroup group, kv::BlockId block, int64_t position);

  // Makes slot `to` a copy of `from` at `position`: whole blocks and pages are shared, partial ones copied. False, and
  // nothing happens, where there is no room.
  bool Fork(int32_t from, int32_t to, int64_t position, std::vector<Copy>* copies);

  kv::PrefixIndex& index() { return index_; }
  const kv::PrefixIndex& index() const { return index_; }
  const kv::WindowSnapshots& snapshots() const { return snapshots_; }
  const kv::BlockTable& blocks() const { return block_table_; }
  const kv::BlockTable& pages(kv::LayerGroup group) const { return page_tables_[group]; }
  int32_t available_blocks() const { return block_pool_.num_available(); }
  const kv::BlockPool& block_pool() const { return block_pool_; }
  const kv::BlockPool& page_pool(kv::LayerGroup group) const { return page_pools_[group]; }
  int32_t pages_per_point() const { return pages_per_point_; }
  int64_t evictions() const { return evictions_; }

  // For tests, O(everything): "" or the first thing that is wrong: lists, names, and every reference accounted for.
  std::string FindViolation() const;

 private:
  kv::BlockId TakeBlock();
  bool MakePages(kv::LayerGroup group, int64_t count);
  int64_t MissingBlocks(int32_t slot, int64_t end) const;
  int64_t MissingPages(int32_t slot, kv::LayerGroup group, int64_t end) const;
  void ForkPages(int32_t from, int32_t to, kv::LayerGroup group, int64_t position, std::vector<Copy>* copies);

  int32_t pages_per_point_;
  kv::BlockPool block_pool_;
  std::array<kv::BlockPool, kv::kLayerGroups> page_pools_;
  kv::BlockTable block_table_;
  std::array<kv::BlockTable, kv::kLayerGroups> page_tables_;
  kv::PrefixIndex index_;
  kv::WindowSnapshots snapshots_;
  std::vector<int32_t> free_slots_;
  int64_t evictions_ = 0;
};

}  // namespace deepinfer::sched
