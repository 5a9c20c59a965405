// SPDX-License-Identifier: Apache-2.0
#include "yardstick.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>

namespace deepinfer::bench {
namespace {

// Sums 64-bit words in eight chains, in a form that the compiler turns into vectors.
uint64_t Sum(const uint8_t* p, size_t n) {
  typedef uint64_t Words __attribute__((vector_size(64), aligned(1), may_alias));
  Words sum[4] = {};
  for (size_t i = 0; i + 256 <= n; i += 256) {
    for (size_t j = 0; j < 4; ++j) sum[j] += *reinterpret_cast<const Words*>(p + i + 64 * j);
  }
  const Words all = sum[0] + sum[1] + sum[2] + sum[3];
  uint64_t total = 0;
  for (int i = 0; i < 8; ++i) total += all[i];
  return total;
}

double Now(Time time) {
  timespec t;
  clock_gettime(time == Time::kWall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

size_t LastLevelCacheBytes() {
  const long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  const long best = std::max(l3, l2);
  return best > 0 ? static_cast<size_t>(best) : 32u << 20;
}

double MedianRate(Time time, size_t pieces, double bytes, const std::function<void(size_t)>& work) {
  std::vector<double> seconds;
  for (size_t i = 0; i < pieces; ++i) {
    const double start = Now(time);
    work(i);
    seconds.push_back(Now(time) - start);
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<int64_t>(pieces / 2), seconds.end());
  return bytes / seconds[pieces / 2];
}

Bandwidth MeasureBandwidth(std::vector<uint8_t>& bytes, ThreadPool& pool) {
  constexpr size_t kPiece = 8 << 20;
  const size_t pieces = bytes.size() / kPiece, half = pieces / 2 * kPiece;
  std::atomic<uint64_t> keep{0};
  const auto each = [&](const auto& work) {
    pool.For(kPiece, 4096, [&](int, int64_t begin, int64_t end) {
      work(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    });
  };
  const Time time = pool.size() == 1 ? Time::kThread : Time::kWall;
  Bandwidth result;
  result.read = MedianRate(time, pieces, kPiece, [&](size_t i) {
    each([&](size_t begin, size_t n) { keep += Sum(bytes.data() + i * kPiece + begin, n); });
  });
  result.copy = MedianRate(time, pieces / 2, 2 * kPiece, [&](size_t i) {
    each([&](size_t begin, size_t n) {
      std::memcpy(bytes.data() + half + i * kPiece + begin, bytes.data() + i * kPiece + begin, n);
    });
  });
  return result;
}

}  // namespace deepinfer::bench
