// SPDX-License-Identifier: Apache-2.0
// The k best of an ascending stream of scored items, exactly, in bounded memory: items collect in a buffer; when it is
// full, all but the best k are dropped, and from then on only items with a higher score than the worst of those enter.
// Scores are compared as numbers (-0 equals +0; a NaN is worse than everything), ties go to the lower item.
// Plain data over scratch that the caller owns; one thread at a time.
#pragma once

#include <cmath>
#include <cstdint>

#include "backend/cpu/arena.h"
#include "backend/cpu/kernels.h"

namespace deepinfer::backend::cpu {

class TopK {
 public:
  // Items of one Add, at most.
  static constexpr int64_t kRunMax = 256;

  TopK(const Kernels& kernels, int64_t k, Arena& arena)
      : kernels_(&kernels), k_(k), orders_(arena.Take<uint32_t>(Capacity())), items_(arena.Take<int32_t>(Capacity())) {}

  // Items ascend, within a call and from call to call.
  void Add(const float* scores, const int32_t* items, int64_t n) {
    if (size_ + n > Capacity()) Shrink();
    size_ += kernels_->append_above(scores, items, n, floor_, orders_ + size_, items_ + size_);
  }

  // Writes the best items, ascending, and returns how many there are.
  int32_t Finish(int32_t* items) {
    Shrink();
    for (int64_t i = 0; i < size_; ++i) items[i] = items_[i];
    return static_cast<int32_t>(size_);
  }

 private:
  int64_t Capacity() const { return 2 * k_ + 2 * kRunMax; }

  void Shrink() {
    if (size_ <= k_) return;
    size_ = kernels_->keep_best(orders_, items_, size_, k_, &floor_);
  }

  const Kernels* kernels_;
  int64_t k_;
  uint32_t* orders_;  // scores as unsigned numbers of the same order
  int32_t* items_;
  int64_t size_ = 0;
  float floor_ = NAN;  // the lowest score of the best k, once so many are known; a NaN lets everything in
};

}  // namespace deepinfer::backend::cpu
