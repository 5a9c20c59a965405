// SPDX-License-Identifier: Apache-2.0
// Property: over all loads confidence scheduling is about as fast as the best fixed draft length or faster, clearly faster
// at high load, and verifies less at high load than at low. (Not at each load less than at the one below: while few experts
// are touched, a row costs most at 16 requests.) Prints the table (docs/drafts.md).
#include "draft_load.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace deepinfer::sim {
namespace {

TEST(DraftLoad, SchedulingBeatsEveryFixedLength) {
  std::printf("thousand tokens/s   drafts verified for each request\n%8s", "requests");
  for (int fixed = 0; fixed <= 5; ++fixed) std::printf("%8d", fixed);
  std::printf("%10s %9s %9s\n", "by conf.", "verified", "gain");
  double verified_alone = 0, gain = 0;
  for (int32_t requests = 1; requests <= 1024; requests *= 4) {
    const int32_t steps = std::max(400, std::min(20000, 60000 / requests));
    double best = 0;
    std::printf("%8d", requests);
    for (int32_t fixed = 0; fixed <= 5; ++fixed) {
      const DraftLoadResult result = RunDraftLoad({.requests = requests, .fixed = fixed, .steps = steps});
      best = std::max(best, result.tokens_per_second);
      std::printf("%8.2f", result.tokens_per_second / 1000);
      if (fixed == 5) {
        EXPECT_NEAR(result.tokens_per_step, 3.5, 0.3) << requests;
      }
    }
    const DraftLoadResult scheduled = RunDraftLoad({.requests = requests, .steps = steps});
    gain = scheduled.tokens_per_second / best - 1;
    std::printf("%10.2f %9.2f %+8.1f%%\n", scheduled.tokens_per_second / 1000, scheduled.drafts_verified, 100 * gain);
    EXPECT_GT(gain, -0.02) << requests;
    if (requests == 1) verified_alone = scheduled.drafts_verified;
    if (requests == 1024) {
      EXPECT_LT(scheduled.drafts_verified, 0.6 * verified_alone);
    }
  }
  EXPECT_GT(gain, 0.03);
}

}  // namespace
}  // namespace deepinfer::sim
