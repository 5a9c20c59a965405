// SPDX-License-Identifier: Apache-2.0
// Property: whatever arrives, forks, fails and is cancelled, in whatever cache: no block is lost or used twice, every
// row reads the rows of its own sequence, tokens are those that the request gives alone, budgets are kept, the first in
// order always moves, everybody ends and all memory comes back.
//
//   scheduler_sim                 the everyday seeds
//   scheduler_sim --seed=N        one seed again
//   scheduler_sim --seeds=N       seeds 1 .. N
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "simulation.h"

namespace deepinfer::sim {
namespace {

uint64_t first_seed = 1;
uint64_t last_seed = 10000;

TEST(SchedulerSim, HoldsItsPromisesForEverySeed) {
  Report total;
  for (uint64_t seed = first_seed; seed <= last_seed; ++seed) {
    const Report report = RunSimulation(seed);
    ASSERT_EQ(report.error, "") << "\nrepeat with: " DI_BINARY_DIR "/tests/" DI_TEST_NAME " --seed=" << seed;
    total.Add(report);
  }
  const auto& stats = total.stats;
  const auto seeds = static_cast<double>(last_seed - first_seed + 1);
  fmt::print("{} seeds, {:.0f} requests and {:.0f} steps each\n", seeds, static_cast<double>(total.requests) / seeds,
             static_cast<double>(stats.steps) / seeds);
  fmt::print(
      "preemptions {}, forks {} (queued {}), followed blocks {}, takeovers {}, bypasses {}, stalls {}, yields {}\n",
      stats.preemptions, stats.forks, stats.forks_queued, stats.blocks_followed, stats.takeovers, stats.bypasses,
      stats.stalls, stats.yields);
  fmt::print("cached {} of {} prompt tokens, replayed rows {}, snapshot hits {}, evictions {}, late results {}\n",
             stats.cached_tokens, stats.prompt_tokens, stats.replayed_rows, stats.snapshot_hits, total.evictions,
             stats.late_results);
  fmt::print("cancelled while queued {}, forking {}, following {}, prefilling {}, decoding {}, draining {}\n",
             stats.cancels[0], stats.cancels[1], stats.cancels[2], stats.cancels[3], stats.cancels[4],
             stats.cancels[5]);
  fmt::print("finished {}, cancelled {}, failed {}, no room {}; longest wait {} turns\n", stats.ended[0],
             stats.ended[1], stats.ended[2], stats.ended[3], total.longest_wait_steps);
  if (last_seed - first_seed < 100) return;  // too few to have met everything
  for (const int64_t count : stats.cancels) EXPECT_GT(count, 0);
  for (const int64_t count : {stats.preemptions, stats.forks, stats.forks_queued, stats.blocks_followed,
                              stats.takeovers, stats.bypasses, stats.stalls, stats.late_results, stats.snapshot_hits,
                              stats.replayed_rows, total.evictions, stats.ended[1], stats.ended[2]}) {
    EXPECT_GT(count, 0);
  }
  EXPECT_GE(static_cast<double>(total.requests) / seeds, 200);
  EXPECT_GE(static_cast<double>(stats.steps) / seeds, 1000);
}

}  // namespace
}  // namespace deepinfer::sim

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--seed=", 7) == 0) {
      deepinfer::sim::first_seed = deepinfer::sim::last_seed = std::strtoull(argv[i] + 7, nullptr, 10);
    } else if (std::strncmp(argv[i], "--seeds=", 8) == 0) {
      deepinfer::sim::last_seed = std::strtoull(argv[i] + 8, nullptr, 10);
    } else {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
