// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/arena.h"

#include <algorithm>
#include <new>

namespace deepinfer::backend::cpu {

void* Arena::TakeBytes(size_t size) {
  size = (size + 63) / 64 * 64;
  if (blocks_.empty() || used_ + size > blocks_.back().size) Grow(size);
  std::byte* piece = blocks_.back().data.get() + used_;
  used_ += size;
  return piece;
}

void Arena::Reset() {
  // One block of the whole size, so that the next op finds its scratch in one piece.
  if (blocks_.size() > 1) {
    size_t total = 0;
    for (const Block& block : blocks_) total += block.size;
    blocks_.clear();
    Grow(total);
  }
  used_ = 0;
}

void Arena::Grow(size_t size) {
  constexpr size_t kFirstBytes = 64 << 10;
  size = std::max({size, kFirstBytes, blocks_.empty() ? 0 : 2 * blocks_.back().size});
  blocks_.push_back({decltype(Block::data)(static_cast<std::byte*>(::operator new[](size, std::align_val_t{64}))), size});
  used_ = 0;
}

}  // namespace deepinfer::backend::cpu
