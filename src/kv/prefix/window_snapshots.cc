// SPDX-License-Identifier: Apache-2.0
#include "kv/prefix/window_snapshots.h"

#include <algorithm>

#include "core/check.h"

namespace deepinfer::kv {

WindowSnapshots::WindowSnapshots(const Limits& limits, std::array<BlockPool*, kLayerGroups> pools)
    : blocks_(limits.blocks), pages_per_point_(limits.pages_per_point) {
  DI_CHECK(blocks_ >= 0 && pages_per_point_ >= 1);
  for (const LayerGroup group : {kEarly, kLate}) {
    Group& g = groups_[group];
    g.pool = pools[group];
    g.pages_max = limits.pages_max[group];
    if (g.pages_max < pages_per_point_) continue;  // never keeps anything: needs no tables
    const auto n = static_cast<size_t>(blocks_);
    g.pages.assign(n * static_cast<size_t>(pages_per_point_), kNoBlock);
    g.next.assign(n + 1, kNoBlock);
    g.prev.assign(n + 1, kNoBlock);
    g.next[n] = g.prev[n] = blocks_;
  }
}

bool WindowSnapshots::Has(BlockId block, LayerGroup group) const {
  const Group& g = groups_[group];
  return !g.next.empty() && g.next[static_cast<size_t>(block)] != kNoBlock;
}

std::span<const BlockId> WindowSnapshots::Pages(BlockId block, LayerGroup group) const {
  const auto n = static_cast<size_t>(pages_per_point_);
  return {groups_[group].pages.data() + static_cast<size_t>(block) * n, n};
}

std::span<const BlockId> WindowSnapshots::Use(BlockId block, LayerGroup group) {
  if (!Has(block, group)) return {};
  Unlink(&groups_[group], block);
  Link(&groups_[group], block);
  return Pages(block, group);
}

void WindowSnapshots::Keep(BlockId block, LayerGroup group, std::span<const BlockId> pages) {
  DI_CHECK(pages.size() == static_cast<size_t>(pages_per_point_));
  Group& g = groups_[group];
  if (g.next.empty() || Has(block, group)) return;
  while (g.pages_held + pages_per_point_ > g.pages_max) EvictOldest(group);
  std::copy(pages.begin(), pages.end(), g.pages.begin() + static_cast<ptrdiff_t>(block) * pages_per_point_);
  for (const BlockId page : pages) g.pool->Ref(page);
  g.pages_held += pages_per_point_;
  Link(&g, block);
}

void WindowSnapshots::Drop(BlockId block) {
  for (const LayerGroup group : {kEarly, kLate}) {
    if (Has(block, group)) DropGroup(block, group);
  }
}

bool WindowSnapshots::EvictOldest(LayerGroup group) {
  const Group& g = groups_[group];
  if (g.pages_held == 0) return false;
  DropGroup(g.next[static_cast<size_t>(blocks_)], group);
  return true;
}

void WindowSnapshots::DropGroup(BlockId block, LayerGroup group) {
  Group& g = groups_[group];
  for (const BlockId page : Pages(block, group)) g.pool->Unref(page);
  g.pages_held -= pages_per_point_;
  Unlink(&g, block);
}

void WindowSnapshots::Link(Group* group, BlockId block) {
  const auto head = static_cast<size_t>(blocks_);
  const BlockId newest = group->prev[head];
  group->next[static_cast<size_t>(block)] = blocks_;
  group->prev[static_cast<size_t>(block)] = newest;
  group->next[static_cast<size_t>(newest)] = block;
  group->prev[head] = block;
}

void WindowSnapshots::Unlink(Group* group, BlockId block) {
  const auto i = static_cast<size_t>(block);
  group->next[static_cast<size_t>(group->prev[i])] = group->next[i];
  group->prev[static_cast<size_t>(group->next[i])] = group->prev[i];
  group->next[i] = group->prev[i] = kNoBlock;
}

}  // namespace deepinfer::kv
