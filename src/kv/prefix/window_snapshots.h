// SPDX-License-Identifier: Apache-2.0
// Window pages kept at snapshot points, so that a request that continues there need not compute windows again. A
// snapshot belongs to the published block that ends at its point and holds one reference on each of its pages.
//
// Layers come in two groups with a page pool each: *early* ones, up to the last KV source, and *late* ones behind it,
// the draft stages included. A snapshot has early pages, late ones, or both. Snapshots have their own share of
// each pool and are evicted by last use, when the share is full or when the pages are needed elsewhere; losing one
// costs time, never correctness.
// O(1) each, no allocation after construction. Not thread-safe: one owner.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kv/block/block_pool.h"

namespace deepinfer::kv {

enum LayerGroup : int { kEarly = 0, kLate = 1 };
inline constexpr int kLayerGroups = 2;

class WindowSnapshots {
 public:
  struct Limits {
    int32_t blocks = 0;                             // capacity of the block pool
    int32_t pages_per_point = 1;                    // pages that one window spans before a block end
    std::array<int32_t, kLayerGroups> pages_max{};  // share of each pool
  };
  // The pools must outlive this.
  WindowSnapshots(const Limits& limits, std::array<BlockPool*, kLayerGroups> pools);

  // Whether that group's windows are kept at the end of the block.
  bool Has(BlockId block, LayerGroup group) const;
  // Its pages, oldest position first; empty where Has is false. The snapshot becomes the most recently used.
  std::span<const BlockId> Use(BlockId block, LayerGroup group);

  // Keeps `pages` (pages_per_point of them, held by the caller, who keeps his references) for the end of `block`.
  // Older snapshots make room; nothing happens if the share is smaller than one point, or the group is there already.
  void Keep(BlockId block, LayerGroup group, std::span<const BlockId> pages);
  // Drops all that is kept for the block.
  void Drop(BlockId block);
  // Drops the least recently used pages of a group; false where the group has none.
  bool EvictOldest(LayerGroup group);

  // References: a page that two snapshots share counts twice, here and against the share.
  int32_t pages_held(LayerGroup group) const { return groups_[group].pages_held; }

  // For tests: calls visit(page) for every reference held.
  template <typename Visit>
  void ForEachPage(LayerGroup group, const Visit& visit) const {
    for (int32_t block = 0; block < blocks_; ++block) {
      if (!Has(block, group)) continue;
      for (const BlockId page : Pages(block, group)) visit(page);
    }
  }

 private:
  struct Group {
    BlockPool* pool = nullptr;
    int32_t pages_max = 0;
    int32_t pages_held = 0;
    std::vector<BlockId> pages;       // [blocks, pages_per_point]
    std::vector<BlockId> next, prev;  // ring of those kept, through head `blocks`; kNoBlock: not kept
  };

  std::span<const BlockId> Pages(BlockId block, LayerGroup group) const;
  void Link(Group* group, BlockId block);
  void Unlink(Group* group, BlockId block);
  void DropGroup(BlockId block, LayerGroup group);

  int32_t blocks_;
  int32_t pages_per_point_;
  std::array<Group, kLayerGroups> groups_;
};

}  // namespace deepinfer::kv
