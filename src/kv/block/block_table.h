// SPDX-License-Identifier: Apache-2.0
// Which block (or window page) holds which 128 positions of which request: one row of ids per slot of a running
// request, in one flat array that can be copied to a device as it is.
//
// Entry i of a row stands for positions [i * 128, (i + 1) * 128). A block table begins at entry 0; a window page table
// slides: entries below first(slot) have left the window and are gone from the row. So with stride() and data()
//   position p of the request in slot s  ->  data()[s * stride() + p / 128 - first(s)],  slot p mod 128 inside it,
// which is what the kernels' cache views ask for (backend/api/types.h: GlobalCache, WindowCache).
// The table does not own references: whoever fills it takes and returns them (BlockPool).
// No allocation after construction. Not thread-safe: one owner.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/block/block_pool.h"

namespace deepinfer::kv {

class BlockTable {
 public:
  // REQUIRES: slots >= 0, stride >= 0: the most entries that a row ever has.
  BlockTable(int32_t slots, int32_t stride);

  // Entries of the row, without those that slid out.
  std::span<const BlockId> ids(int32_t slot) const;
  int64_t first(int32_t slot) const { return first_[static_cast<size_t>(slot)]; }
  // One behind the last entry, counted from position 0.
  int64_t end(int32_t slot) const { return first(slot) + count_[static_cast<size_t>(slot)]; }
  bool Has(int32_t slot, int64_t entry) const { return entry >= first(slot) && entry < end(slot); }
  // REQUIRES: Has(slot, entry).
  BlockId at(int32_t slot, int64_t entry) const;

  // Makes an empty row begin at that entry.
  void Start(int32_t slot, int64_t first);
  // REQUIRES: fewer than stride() entries in the row.
  void Append(int32_t slot, BlockId id);
  // Takes the first entry out and returns its id. REQUIRES: not empty.
  BlockId PopFront(int32_t slot);
  // Takes the last entry out and returns its id. REQUIRES: not empty.
  BlockId PopBack(int32_t slot);

  int32_t slots() const { return static_cast<int32_t>(first_.size()); }
  int32_t stride() const { return stride_; }
  const BlockId* data() const { return ids_.data(); }             // [slots, stride]
  const int32_t* first_entries() const { return first_.data(); }  // [slots]

 private:
  size_t Offset(int32_t slot) const { return static_cast<size_t>(slot) * static_cast<size_t>(stride_); }

  int32_t stride_;
  std::vector<BlockId> ids_;
  std::vector<int32_t> first_;
  std::vector<int32_t> count_;
};

}  // namespace deepinfer::kv
