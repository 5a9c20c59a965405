// SPDX-License-Identifier: Apache-2.0
#include "kv/prefix/prefix_index.h"

#include <fmt/format.h>

#include <bit>

#include "core/check.h"

namespace deepinfer::kv {
namespace {

uint32_t TagOf(const BlockName& name) { return static_cast<uint32_t>(name.Hash() >> 32); }

}  // namespace

PrefixIndex::PrefixIndex(BlockPool* pool) : pool_(pool) {
  const auto n = static_cast<size_t>(pool->capacity());
  const size_t num_cells = std::bit_ceil(2 * n + 1);  // at most half full, so probes stay short and always end
  mask_ = num_cells - 1;
  cells_.resize(num_cells);
  names_.resize(n);
  state_.assign(n, State::kNone);
  owner_.assign(n, 0);
}

PrefixIndex::Found PrefixIndex::Find(const BlockName& name) const {
  const BlockId id = cells_[FindCell(name)].block;
  if (id == kNoBlock) return {};
  return {id, IsReady(id), owner_[static_cast<size_t>(id)]};
}

bool PrefixIndex::Announce(const BlockName& name, BlockId id, uint32_t owner) {
  DI_CHECK(!IsNamed(id) && pool_->refs(id) > 0);
  const size_t cell = FindCell(name);
  if (cells_[cell].block != kNoBlock) return false;
  Insert(cell, name, id, State::kComputing, owner);
  return true;
}

bool PrefixIndex::Publish(const BlockName& name, BlockId id) {
  DI_CHECK(pool_->refs(id) > 0);
  size_t cell = FindCell(name);
  const BlockId present = cells_[cell].block;
  if (present != kNoBlock && present != id) {
    if (IsReady(present)) return false;
    Erase(present);
    cell = FindCell(name);
  }
  if (present != id) {
    DI_CHECK(!IsNamed(id));
    Insert(cell, name, id, State::kReady, 0);
  }
  state_[static_cast<size_t>(id)] = State::kReady;
  pool_->Keep(id);
  return true;
}

void PrefixIndex::Withdraw(BlockId id) {
  if (!IsNamed(id)) return;
  const bool ready = IsReady(id);
  Erase(id);
  if (ready) pool_->Forget(id);
}

BlockId PrefixIndex::TakeBlock(BlockId* evicted) {
  *evicted = kNoBlock;
  const BlockId id = pool_->Take();
  if (id != kNoBlock) return id;
  *evicted = pool_->EvictOldest();
  if (*evicted == kNoBlock) return kNoBlock;
  Erase(*evicted);
  return pool_->Take();
}

size_t PrefixIndex::FindCell(const BlockName& name) const {
  const uint32_t tag = TagOf(name);
  size_t cell = Home(name);
  while (cells_[cell].block != kNoBlock) {
    if (cells_[cell].tag == tag && names_[static_cast<size_t>(cells_[cell].block)] == name) break;
    cell = (cell + 1) & mask_;
  }
  return cell;
}

void PrefixIndex::Insert(size_t cell, const BlockName& name, BlockId id, State state, uint32_t owner) {
  const auto i = static_cast<size_t>(id);
  cells_[cell] = {id, TagOf(name)};
  names_[i] = name;
  state_[i] = state;
  owner_[i] = owner;
}

// Closes the gap: whoever was pushed past it by a collision moves up, so that probes need no tombstones.
void PrefixIndex::Erase(BlockId id) {
  size_t gap = FindCell(names_[static_cast<size_t>(id)]);
  DI_CHECK(cells_[gap].block == id);
  state_[static_cast<size_t>(id)] = State::kNone;
  for (size_t cell = (gap + 1) & mask_; cells_[cell].block != kNoBlock; cell = (cell + 1) & mask_) {
    const size_t home = Home(names_[static_cast<size_t>(cells_[cell].block)]);
    // Movable iff its home does not lie behind the gap, in ring order, up to the cell.
    if (((cell - home) & mask_) < ((cell - gap) & mask_)) continue;
    cells_[gap] = cells_[cell];
    gap = cell;
  }
  cells_[gap] = {};
}

std::string PrefixIndex::FindViolation() const {
  size_t in_cells = 0;
  size_t named = 0;
  for (const Cell& cell : cells_) in_cells += cell.block != kNoBlock;
  for (BlockId id = 0; id < pool_->capacity(); ++id) {
    const auto i = static_cast<size_t>(id);
    if (state_[i] == State::kNone) {
      if (pool_->kept(id)) return fmt::format("block {} is kept without a name", id);
      continue;
    }
    ++named;
    if (cells_[FindCell(names_[i])].block != id) return fmt::format("block {} is not found by its name", id);
    if (state_[i] == State::kReady && !pool_->kept(id)) return fmt::format("block {} is ready and not kept", id);
    if (state_[i] == State::kComputing && pool_->refs(id) == 0) return fmt::format("nobody computes block {}", id);
    if (state_[i] == State::kComputing && pool_->kept(id))
      return fmt::format("block {} is kept before it is ready", id);
  }
  if (in_cells != named) return fmt::format("{} cells for {} named blocks", in_cells, named);
  return "";
}

}  // namespace deepinfer::kv
