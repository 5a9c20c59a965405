// SPDX-License-Identifier: Apache-2.0
// numpy.random.default_rng(seed), bit for bit, as far as integers(0, bound) goes: SeedSequence, PCG64 (XSL-RR
// 128/64) and numpy's bounded integers. Verified against stored draws (numpy_random_test.cc).
// Not thread-safe.
#pragma once

#include <array>
#include <cstdint>

namespace deepinfer::checkpoint {

class NumpyRandom {
 public:
  explicit NumpyRandom(uint64_t seed);

  // The next of integers(0, bound), dtype int64. REQUIRES: bound >= 1.
  int64_t Integer(int64_t bound);

  // The raw streams, for tests.
  uint64_t Next64();
  uint32_t Next32();
  // numpy.random.SeedSequence(seed).pool, and the four words of generate_state(4, uint64).
  static std::array<uint32_t, 4> SeedPool(uint64_t seed);
  static std::array<uint64_t, 4> SeedState(uint64_t seed);

 private:
  using uint128 = unsigned __int128;
  void Step();

  uint128 state_ = 0;
  uint128 increment_ = 0;
  uint32_t kept_half_ = 0;  // the high half of a Next64 that Next32 has still to return
  bool has_kept_half_ = false;
};

}  // namespace deepinfer::checkpoint
