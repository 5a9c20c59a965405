// SPDX-License-Identifier: Apache-2.0
// The k best of a stream of scored items, exactly, in bounded memory: items are kept in a buffer of 2 k + slack places;
// when it is full, all but the best k are dropped, and from then on only items that beat the worst of those enter.
// Scores are compared as numbers (-0 equals +0; a NaN is worse than everything), ties go to the lower item.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace deepinfer::backend::cpu {

class TopK {
 public:
  static int64_t BufferSize(int64_t k) { return 2 * k + 256; }

  // REQUIRES: buffer has BufferSize(k) places.
  TopK(int64_t k, uint64_t* buffer) : k_(k), buffer_(buffer) {}

  // Items in any order, each at most once.
  void Add(float score, int32_t item) {
    if (score < floor_score_) return;  // nearly all of a long stream
    const uint64_t key = Key(score, item);
    if (key <= floor_) return;
    buffer_[size_++] = key;
    if (size_ == BufferSize(k_)) Shrink();
  }

  // Writes the best items, ascending, and returns how many there are.
  int32_t Finish(int32_t* items) {
    Shrink();
    for (int64_t i = 0; i < size_; ++i) items[i] = static_cast<int32_t>(~buffer_[i] & 0x7FFFFFFF);
    std::sort(items, items + size_);
    return static_cast<int32_t>(size_);
  }

 private:
  // Larger is better. Float bits become an order of unsigned numbers when negative ones are complemented.
  static uint64_t Key(float score, int32_t item) {
    const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 + 0 = +0
    uint32_t order = bits ^ (bits >> 31 != 0 ? 0xFFFFFFFFu : 0x80000000u);
    if (std::isnan(score)) order = 0;
    return uint64_t{order} << 32 | (~static_cast<uint32_t>(item) & 0xFFFFFFFFu);
  }

  // The score of a key; a NaN for one of a NaN, and below it nothing is.
  static float Score(uint64_t key) {
    const auto order = static_cast<uint32_t>(key >> 32);
    return std::bit_cast<float>(order ^ (order >> 31 != 0 ? 0x80000000u : 0xFFFFFFFFu));
  }

  void Shrink() {
    if (size_ <= k_) return;
    std::nth_element(buffer_, buffer_ + k_, buffer_ + size_, [](uint64_t a, uint64_t b) { return a > b; });
    size_ = k_;
    floor_ = k_ == 0 ? ~uint64_t{0} : *std::min_element(buffer_, buffer_ + k_);
    floor_score_ = Score(floor_);
  }

  int64_t k_;
  uint64_t* buffer_;
  int64_t size_ = 0;
  uint64_t floor_ = 0;  // keys at or below it cannot be among the best
  float floor_score_ = -INFINITY;
};

}  // namespace deepinfer::backend::cpu
