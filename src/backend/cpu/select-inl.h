// SPDX-License-Identifier: Apache-2.0
// The two halves of select.h's TopK, in plain loops that the compiler turns into vectors of its instruction set.
#pragma once

namespace deepinfer::backend::cpu {
namespace {

// Float bits become unsigned numbers of the same order when the negative ones are complemented; NaNs become 0.
DI_SIMD uint32_t OrderOf(float score) {
  score += 0.0f;  // -0 + 0 = +0
  uint32_t bits;
  __builtin_memcpy(&bits, &score, 4);
  const uint32_t order = bits ^ (bits >> 31 != 0 ? 0xFFFFFFFFu : 0x80000000u);
  return score == score ? order : 0;
}

// Copies what is not <= floor (a NaN floor lets everything in) and returns how many that are.
int64_t AppendAbove(const float* scores, const int32_t* items, int64_t n, float floor, uint32_t* orders, int32_t* to) {
  int64_t size = 0;
  for (int64_t first = 0; first < n; first += 16) {
    const int64_t end = n - first < 16 ? n : first + 16;
    // Nearly all of a long stream falls out here.
    if (end == first + 16 && !AnyNotAtMost(Load(scores + first), Set(floor))) continue;
    for (int64_t i = first; i < end; ++i) {
      orders[size] = OrderOf(scores[i]);
      to[size] = items[i];
      size += !(scores[i] <= floor);
    }
  }
  return size;
}

// Keeps the k highest of n > k, the first ones among equals, in their order. floor: the lowest score that was kept.
int64_t KeepBest(uint32_t* orders, int32_t* items, int64_t n, int64_t k, float* floor) {
  if (k == 0) return 0;
  // The k-th highest, bit by bit: the largest number that at least k reach.
  uint32_t limit = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const uint32_t tried = limit | 1u << bit;
    int32_t reach = 0;
    for (int64_t i = 0; i < n; ++i) reach += orders[i] >= tried ? 1 : 0;
    if (reach >= k) limit = tried;
  }
  int64_t above = 0;
  for (int64_t i = 0; i < n; ++i) above += orders[i] > limit ? 1 : 0;
  int64_t equal = k - above, size = 0;  // so many of the equal ones still fit
  for (int64_t i = 0; i < n; ++i) {
    const bool is_equal = orders[i] == limit;
    const bool keep = orders[i] > limit || (is_equal && equal > 0);
    equal -= is_equal ? 1 : 0;
    orders[size] = orders[i];
    items[size] = items[i];
    size += keep ? 1 : 0;
  }
  const uint32_t bits = limit ^ (limit >> 31 != 0 ? 0x80000000u : 0xFFFFFFFFu);
  __builtin_memcpy(floor, &bits, 4);
  return size;
}

}  // namespace
}  // namespace deepinfer::backend::cpu
