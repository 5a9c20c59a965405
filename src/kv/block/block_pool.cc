// SPDX-License-Identifier: Apache-2.0
#include "kv/block/block_pool.h"

#include <fmt/format.h>

#include "core/check.h"

namespace deepinfer::kv {

BlockPool::BlockPool(int32_t capacity) {
  DI_CHECK(capacity >= 0);
  const auto n = static_cast<size_t>(capacity);
  refs_.assign(n, 0);
  kept_.assign(n, 0);
  list_.assign(n, List::kNone);
  next_.resize(n + 2);
  prev_.resize(n + 2);
  for (const List list : {List::kFree, List::kCached}) {
    next_[Head(list)] = prev_[Head(list)] = static_cast<BlockId>(Head(list));
  }
  for (BlockId id = 0; id < capacity; ++id) Link(List::kFree, id);
}

BlockId BlockPool::Take() {
  if (num_free_ == 0) return kNoBlock;
  // The most recently freed one: its lines may still be warm.
  const BlockId id = prev_[Head(List::kFree)];
  Unlink(id);
  refs_[static_cast<size_t>(id)] = 1;
  return id;
}

void BlockPool::Ref(BlockId id) {
  const auto i = static_cast<size_t>(id);
  if (refs_[i] == 0) {
    DI_CHECK(list_[i] == List::kCached);
    Unlink(id);
  }
  ++refs_[i];
}

void BlockPool::Unref(BlockId id) {
  const auto i = static_cast<size_t>(id);
  DI_CHECK(refs_[i] > 0);
  if (--refs_[i] == 0) Link(kept_[i] ? List::kCached : List::kFree, id);
}

void BlockPool::Keep(BlockId id) {
  const auto i = static_cast<size_t>(id);
  DI_CHECK(refs_[i] > 0);
  kept_[i] = 1;
}

void BlockPool::Forget(BlockId id) {
  const auto i = static_cast<size_t>(id);
  kept_[i] = 0;
  if (list_[i] == List::kCached) {
    Unlink(id);
    Link(List::kFree, id);
  }
}

BlockId BlockPool::EvictOldest() {
  if (num_cached_ == 0) return kNoBlock;
  const BlockId id = next_[Head(List::kCached)];
  Forget(id);
  return id;
}

void BlockPool::Link(List list, BlockId id) {
  const auto i = static_cast<size_t>(id);
  const size_t head = Head(list);
  next_[i] = static_cast<BlockId>(head);
  prev_[i] = prev_[head];
  next_[static_cast<size_t>(prev_[head])] = id;
  prev_[head] = id;
  list_[i] = list;
  ++(list == List::kFree ? num_free_ : num_cached_);
}

void BlockPool::Unlink(BlockId id) {
  const auto i = static_cast<size_t>(id);
  next_[static_cast<size_t>(prev_[i])] = next_[i];
  prev_[static_cast<size_t>(next_[i])] = prev_[i];
  --(list_[i] == List::kFree ? num_free_ : num_cached_);
  list_[i] = List::kNone;
}

std::string BlockPool::FindViolation() const {
  for (const List list : {List::kFree, List::kCached}) {
    int32_t seen = 0;
    for (auto i = static_cast<size_t>(next_[Head(list)]); i != Head(list); i = static_cast<size_t>(next_[i])) {
      if (list_[i] != list) return fmt::format("piece {} is linked in a list it does not belong to", i);
      if (++seen > capacity()) return "a list is a loop";
    }
    const int32_t count = list == List::kFree ? num_free_ : num_cached_;
    if (seen != count) return fmt::format("a list of {} pieces holds {}", count, seen);
  }
  for (size_t i = 0; i < refs_.size(); ++i) {
    if (refs_[i] < 0) return fmt::format("piece {} has {} references", i, refs_[i]);
    if ((refs_[i] == 0) != (list_[i] != List::kNone)) return fmt::format("piece {} is held and listed, or neither", i);
    if (list_[i] == List::kCached && !kept_[i]) return fmt::format("piece {} is cached and not kept", i);
    if (list_[i] == List::kFree && kept_[i]) return fmt::format("piece {} is free and kept", i);
  }
  return "";
}

}  // namespace deepinfer::kv
