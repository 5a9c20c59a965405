// SPDX-License-Identifier: Apache-2.0
// Finds blocks by name. A block is announced when somebody begins to compute it, so that others can wait for it
// instead of computing it too, and published when all its positions are committed; from then on it never changes.
//
// A hash table of block ids with open addressing, as large as the pool asks for at construction: no allocation later,
// O(1) each. The index marks published blocks as kept (BlockPool::Keep), so they survive their holders in order of last
// use. A chain is evicted from its tail if holders drop their blocks last one first: then no block is ever younger than
// the one before it. Not thread-safe: one owner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv/block/block_pool.h"
#include "kv/prefix/block_name.h"

namespace deepinfer::kv {

class PrefixIndex {
 public:
  // The pool must outlive the index.
  explicit PrefixIndex(BlockPool* pool);

  struct Found {
    BlockId block = kNoBlock;  // kNoBlock: nobody has it or computes it
    bool ready = false;        // published; else `owner` is computing it
    uint32_t owner = 0;
  };
  Found Find(const BlockName& name) const;

  // `owner` begins to compute the held block `id`. False, and nothing happens, if the name is taken already.
  bool Announce(const BlockName& name, BlockId id, uint32_t owner);
  // The content of the held block `id` is complete. False if another block has the name: this one stays private.
  // An announcement of the same block becomes a publication; somebody else's announcement gives way.
  bool Publish(const BlockName& name, BlockId id);
  // The block is not going to be completed (an announced one) or its content is given up (a published one).
  // Nothing happens to a block without a name.
  void Withdraw(BlockId id);

  // A block of the pool, if need be the one that was cached for longest, which loses its name: that one is also
  // reported in *evicted (else kNoBlock). kNoBlock where every block is held.
  BlockId TakeBlock(BlockId* evicted);

  bool IsNamed(BlockId id) const { return state_[static_cast<size_t>(id)] != State::kNone; }
  bool IsReady(BlockId id) const { return state_[static_cast<size_t>(id)] == State::kReady; }

  // For tests, O(capacity): "" or what is wrong.
  std::string FindViolation() const;

 private:
  enum class State : uint8_t { kNone, kComputing, kReady };
  struct Cell {
    BlockId block = kNoBlock;
    uint32_t tag = 0;  // other bits of the hash than those that choose the cell: saves most look-ups of names
  };

  size_t Home(const BlockName& name) const { return static_cast<size_t>(name.Hash()) & mask_; }
  size_t FindCell(const BlockName& name) const;  // its cell, or the free one where it would go
  void Insert(size_t cell, const BlockName& name, BlockId id, State state, uint32_t owner);
  void Erase(BlockId id);

  BlockPool* pool_;
  size_t mask_;
  std::vector<Cell> cells_;
  std::vector<BlockName> names_;  // by block
  std::vector<State> state_;
  std::vector<uint32_t> owner_;
};

}  // namespace deepinfer::kv
