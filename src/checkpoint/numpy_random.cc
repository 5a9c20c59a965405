// SPDX-License-Identifier: Apache-2.0
// After numpy's documentation of SeedSequence and of "Permuted congruential generator (64-bit, PCG64)", and O'Neill,
// "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random Number Generation" (2014);
// bounded integers: Lemire, "Fast Random Integer Generation in an Interval" (2019).
#include "checkpoint/numpy_random.h"

#include <cstddef>

#include "core/check.h"

namespace deepinfer::checkpoint {
namespace {

constexpr size_t kPoolWords = 4;

// The mixing step of SeedSequence: its multiplier changes with every call.
class Hashmix {
 public:
  Hashmix(uint32_t start, uint32_t factor) : constant_(start), factor_(factor) {}
  uint32_t operator()(uint32_t value) {
    value ^= constant_;
    constant_ *= factor_;
    value *= constant_;
    return value ^ (value >> 16);
  }

 private:
  uint32_t constant_;
  uint32_t factor_;
};

uint32_t Mix(uint32_t x, uint32_t y) {
  const uint32_t mixed = 0xca01f9ddU * x - 0x4973f715U * y;
  return mixed ^ (mixed >> 16);
}

}  // namespace

std::array<uint32_t, 4> NumpyRandom::SeedPool(uint64_t seed) {
  Hashmix hashmix(0x43b0d7e5U, 0x931e8875U);
  // A 64-bit seed is at most two words of entropy; missing words count as zero.
  std::array<uint32_t, kPoolWords> pool = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
  for (uint32_t& word : pool) word = hashmix(word);
  for (size_t source = 0; source < kPoolWords; ++source) {
    for (size_t target = 0; target < kPoolWords; ++target) {
      if (source != target) pool[target] = Mix(pool[target], hashmix(pool[source]));
    }
  }
  return pool;
}

std::array<uint64_t, 4> NumpyRandom::SeedState(uint64_t seed) {
  const std::array<uint32_t, kPoolWords> pool = SeedPool(seed);
  Hashmix hashmix(0x8b51f9ddU, 0x58f38dedU);
  std::array<uint64_t, 4> state = {};
  for (size_t i = 0; i < 2 * state.size(); ++i) {
    state[i / 2] |= static_cast<uint64_t>(hashmix(pool[i % kPoolWords])) << (32 * (i % 2));
  }
  return state;
}

NumpyRandom::NumpyRandom(uint64_t seed) {
  const std::array<uint64_t, 4> words = SeedState(seed);
  increment_ = (((static_cast<uint128>(words[2]) << 64) | words[3]) << 1) | 1;
  Step();
  state_ += (static_cast<uint128>(words[0]) << 64) | words[1];
  Step();
}

void NumpyRandom::Step() {
  constexpr uint128 kMultiplier = (static_cast<uint128>(2549297995355413924ULL) << 64) | 4865540595714422341ULL;
  state_ = state_ * kMultiplier + increment_;
}

uint64_t NumpyRandom::Next64() {
  Step();
  const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  const auto turn = static_cast<unsigned>(state_ >> 122);
  return (folded >> turn) | (folded << ((64 - turn) & 63));
}

uint32_t NumpyRandom::Next32() {
  if (has_kept_half_) {
    has_kept_half_ = false;
    return kept_half_;
  }
  const uint64_t next = Next64();
  kept_half_ = static_cast<uint32_t>(next >> 32);
  has_kept_half_ = true;
  return static_cast<uint32_t>(next);
}

int64_t NumpyRandom::Integer(int64_t bound) {
  DI_CHECK(bound >= 1);
  const auto count = static_cast<uint64_t>(bound);
  if (count == 1) return 0;  // numpy draws nothing
  constexpr uint64_t kTwoTo32 = uint64_t{1} << 32;
  if (count == kTwoTo32) return Next32();
  if (count < kTwoTo32) {
    uint64_t product = uint64_t{Next32()} * count;
    const uint64_t threshold = (kTwoTo32 - count) % count;
    while (static_cast<uint32_t>(product) < threshold) product = uint64_t{Next32()} * count;
    return static_cast<int64_t>(product >> 32);
  }
  uint128 product = static_cast<uint128>(Next64()) * count;
  const uint64_t threshold = (0 - count) % count;
  while (static_cast<uint64_t>(product) < threshold) product = static_cast<uint128>(Next64()) * count;
  return static_cast<int64_t>(product >> 64);
}

}  // namespace deepinfer::checkpoint
