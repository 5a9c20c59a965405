// SPDX-License-Identifier: Apache-2.0
// Property: seeding, raw words and bounded integers equal numpy's, bit for bit. The vectors were drawn with
// numpy 1.24.2.
#include "checkpoint/numpy_random.h"

#include <gtest/gtest.h>

#include <vector>

namespace deepinfer::checkpoint {
namespace {

constexpr int64_t kPublishedBound = 46539438283891;

struct Vector {
  uint64_t seed;
  std::array<uint32_t, 4> pool;
  std::array<uint64_t, 4> state;
  uint64_t first_word;
  std::vector<int64_t> published_bound;  // integers(0, kPublishedBound)
  std::vector<int64_t> bound_ten;        // integers(0, 10): the 32-bit path
};

const std::vector<Vector>& Vectors() {
  static const std::vector<Vector> kVectors = {
      {0,
       {0xfe40eb07, 0x4f363a36, 0x4eb2009d, 0xc89a7aa7},
       {0xdb2cd7e7b0f478be, 0xabf4641a2c71ba49, 0x20c6ed6d9d7b8d41, 0x2c4099de223c39d4},
       0xa30febcfd9c2825f,
       {29643839136299, 12555722115027, 1906884788502, 769186873658},
       {8, 6, 5, 2}},
      {1,
       {0xa137e185, 0x0de2fab1, 0x950eae78, 0x54dd0a81},
       {0x672d8ee56d6791ff, 0x8ae19ca14eb1072c, 0x4915796d1322fc4a, 0xd0cc2bdcaba049bd},
       0x8306bdf37922e4ff,
       {23819890915098, 44234046536239, 6709107399195, 44149612398091},
       {4, 5, 7, 9}},
      {42,
       {0x631d3606, 0x07ae90ae, 0x6fc4be28, 0x2ced5c75},
       {0x9f1e2e6dcd540ab7, 0xd57873dc79fb94b6, 0x7d282a1b64d420b7, 0x336579714692d5ff},
       0xc621fbcd16d92688,
       {36019479756214, 20425156060971, 39958664904392, 32455116349566},
       {0, 7, 6, 4}},
      {10007,
       {0xf1a1018d, 0xa7c60c02, 0xfd15d50a, 0x03b81232},
       {0x77d32a348ad70d07, 0x993ed609b84a4fa5, 0xd5f972dec8698e49, 0x7d79ebaebcf148de},
       0xd2c3f84026661e33,
       {38316048023122, 2419938046656, 17979836159674, 36993668729195},
       {1, 8, 6, 0}},
      {140098,
       {0x7097f09f, 0xc71373b7, 0x148492af, 0x9681c6c4},
       {0xdb5869feeeccf2be, 0xad465727d9cf3645, 0x5155d26378b6bab4, 0x9f9e49df66ff1c85},
       0xba3ecc29cf07c111,
       {33858405369630, 25755403400457, 15460673601360, 41309613242795},
       {8, 7, 0, 5}},
      {4294967301,
       {0x73d34ef0, 0xda919992, 0x5c469880, 0x2789f14b},
       {0xf9c15bd6e249d9ac, 0xb2021b4036320ed7, 0x9388b47fe6dcf739, 0x5eeba8d9ad6439e1},
       0xc6323ec321deb8d1,
       {36031027671640, 21907169263059, 32385880338482, 38001203375182},
       {1, 7, 7, 4}},
  };
  return kVectors;
}

std::vector<int64_t> Draw(uint64_t seed, int64_t bound) {
  NumpyRandom random(seed);
  std::vector<int64_t> draws;
  for (int i = 0; i < 4; ++i) draws.push_back(random.Integer(bound));
  return draws;
}

TEST(NumpyRandom, EqualsNumpy) {
  for (const Vector& vector : Vectors()) {
    SCOPED_TRACE(vector.seed);
    EXPECT_EQ(NumpyRandom::SeedPool(vector.seed), vector.pool);
    EXPECT_EQ(NumpyRandom::SeedState(vector.seed), vector.state);
    EXPECT_EQ(NumpyRandom(vector.seed).Next64(), vector.first_word);
    EXPECT_EQ(Draw(vector.seed, kPublishedBound), vector.published_bound);
    EXPECT_EQ(Draw(vector.seed, 10), vector.bound_ten);
  }
}

TEST(NumpyRandom, RejectsAsNumpyDoes) {
  EXPECT_EQ(Draw(0, (int64_t{1} << 62) + 12345),
            (std::vector<int64_t>{1244171615822316234, 188957027462249511, 76220265684581587, 3750546991323003782}));
}

TEST(NumpyRandom, TwoTo32IsTheRawHalves) {
  EXPECT_EQ(Draw(0, int64_t{1} << 32), (std::vector<int64_t>{3653403231, 2735729615, 2195314465, 1158725112}));
}

TEST(NumpyRandom, BoundOfOneDrawsNothing) {
  NumpyRandom random(0);
  EXPECT_EQ(random.Integer(1), 0);
  EXPECT_EQ(random.Next64(), 0xa30febcfd9c2825f);
}

}  // namespace
}  // namespace deepinfer::checkpoint
