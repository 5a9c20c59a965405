// SPDX-License-Identifier: Apache-2.0
#include "kv/block/block_table.h"

#include <algorithm>

#include "core/check.h"

namespace deepinfer::kv {

BlockTable::BlockTable(int32_t slots, int32_t stride) : stride_(stride) {
  DI_CHECK(slots >= 0 && stride >= 0);
  ids_.assign(static_cast<size_t>(slots) * static_cast<size_t>(stride), kNoBlock);
  first_.assign(static_cast<size_t>(slots), 0);
  count_.assign(static_cast<size_t>(slots), 0);
}

std::span<const BlockId> BlockTable::ids(int32_t slot) const {
  return {ids_.data() + Offset(slot), static_cast<size_t>(count_[static_cast<size_t>(slot)])};
}

BlockId BlockTable::at(int32_t slot, int64_t entry) const {
  DI_CHECK(Has(slot, entry));
  return ids_[Offset(slot) + static_cast<size_t>(entry - first(slot))];
}

void BlockTable::Start(int32_t slot, int64_t first) {
  const auto s = static_cast<size_t>(slot);
  DI_CHECK(count_[s] == 0 && first >= 0 && first <= INT32_MAX);
  first_[s] = static_cast<int32_t>(first);
}

void BlockTable::Append(int32_t slot, BlockId id) {
  int32_t& count = count_[static_cast<size_t>(slot)];
  DI_CHECK(count < stride_);
  ids_[Offset(slot) + static_cast<size_t>(count)] = id;
  ++count;
}

BlockId BlockTable::PopFront(int32_t slot) {
  const auto s = static_cast<size_t>(slot);
  DI_CHECK(count_[s] > 0);
  BlockId* row = ids_.data() + Offset(slot);
  const BlockId id = row[0];
  std::copy(row + 1, row + count_[s], row);  // a window's row has a handful of entries
  --count_[s];
  ++first_[s];
  return id;
}

BlockId BlockTable::PopBack(int32_t slot) {
  const auto s = static_cast<size_t>(slot);
  DI_CHECK(count_[s] > 0);
  return ids_[Offset(slot) + static_cast<size_t>(--count_[s])];
}

}  // namespace deepinfer::kv
