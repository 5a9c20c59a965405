// SPDX-License-Identifier: Apache-2.0
// Property: every thread runs every task exactly once, For covers [0, n) exactly once in whole grains, also when Run
// is called from several threads and when the workers had time to fall asleep.
#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

namespace deepinfer {
namespace {

TEST(ThreadPool, RunsEachThreadOnce) {
  for (const int size : {1, 2, 3, 8}) {
    ThreadPool pool(size);
    EXPECT_EQ(pool.size(), size);
    std::vector<int> calls(static_cast<size_t>(size));
    for (int repeat = 0; repeat < 2000; ++repeat) pool.Run([&](int thread) { ++calls[static_cast<size_t>(thread)]; });
    for (const int n : calls) EXPECT_EQ(n, 2000);
  }
}

TEST(ThreadPool, ForCoversOnceInWholeGrains) {
  ThreadPool pool(3);
  for (const int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
    for (const int64_t grain : {1, 4, 16, 2000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
      pool.For(n, grain, [&](int, int64_t begin, int64_t end) {
        EXPECT_EQ(begin % grain, 0);
        EXPECT_TRUE(end % grain == 0 || end == n);
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const auto& count : seen) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, ManyCallersAndSleepingWorkers) {
  ThreadPool pool(2);
  std::atomic<int> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        pool.Run([&](int) { ++sum; });
        if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 200 * 2);
}

}  // namespace
}  // namespace deepinfer
