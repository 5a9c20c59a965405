// SPDX-License-Identifier: Apache-2.0
// Property: a request's tokens and log-probabilities are a function of the request alone. The same requests (mixed lengths,
// settings, seeds) run alone one by one, all at once in random orders and arrival times, with other chunk sizes, with a
// cache so small that requests are preempted, and on warm prefixes; every bit must be equal.
//   engine_determinism_test [REQUESTS [BACKEND [ACTIVATIONS]]]      (default 12, cpu, fp32; tests/long.sh takes 300)
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/engine/least_memory.h"
#include "tests/engine/soak.h"

namespace deepinfer {
namespace {

using namespace soak;

size_t g_requests = 12;

class Determinism : public testing::TestWithParam<ReplaySetting> {};

TEST_P(Determinism, TheSameTokensAlways) {
  const auto requests = MakeRequests(g_requests, GetParam());
  const size_t n = requests.size();
  // REF: alone, nothing cached (a salt of its own for each), no drafts, replay as asked.
  auto alone = requests;
  for (size_t i = 0; i < n; ++i) alone[i].cache_salt = std::to_string(i);
  EngineOptions plain = Options();
  plain.drafts = "off";
  const auto expected = RunAll(*Open(plain), alone, Order(n, 0), /*one_by_one=*/true);

  for (const uint32_t seed : {1U, 2U, 3U}) {
    if (seed == 3 && g_requests < 100) continue;
    const auto engine = Open(Options());
    ExpectEqual(RunAll(*engine, requests, Order(n, seed), false, seed), expected, "all at once, order " + std::to_string(seed));
    if (seed == 1) {  // once more on what is cached now
      ExpectEqual(RunAll(*engine, requests, Order(n, seed + 10), true), expected, "warm");
      EXPECT_EQ(engine->Stats().cached_tokens > 0, GetParam() != ReplaySetting::kNone);
    }
  }
  for (const int rows : {16, 100, 512}) {
    if (rows != 16 && g_requests < 100) continue;
    EngineOptions options = Options();
    options.requests_running_max = 8;
    options.step_rows_max = rows;
    ExpectEqual(RunAll(*Open(options), requests, Order(n, 4), false), expected, "rows " + std::to_string(rows));
  }
  EngineOptions small = Options();
  small.context_max = 1100;
  small.requests_running_max = 8;
  small.snapshot_share = 0.02;
  SetLeastMemory(&small);
  small.own_thread = false;
  int64_t preemptions = 0;
  for (const uint32_t seed : {5U, 6U, 7U, 8U}) {
    const auto engine = Open(small);
    ExpectEqual(RunByHand(*engine, requests, Order(n, seed)), expected, "small cache, order " + std::to_string(seed));
    preemptions += engine->Stats().preemptions;
  }
  EXPECT_GT(preemptions, 0);
  EngineOptions one_thread = Options();
  one_thread.num_threads = 1;
  ExpectEqual(RunAll(*Open(one_thread), requests, Order(n, 6), false), expected, "one thread");
}

std::string NameOf(const testing::TestParamInfo<ReplaySetting>& instance) {
  static const char* const kNames[] = {"none", "exact", "decoder", "bounded"};
  return kNames[static_cast<size_t>(instance.param)];
}

INSTANTIATE_TEST_SUITE_P(Replay, Determinism,
                         testing::Values(ReplaySetting::kExact, ReplaySetting::kDecoder, ReplaySetting::kNone), NameOf);

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) deepinfer::g_requests = static_cast<size_t>(std::atoi(argv[1]));
  if (argc > 2) deepinfer::engine::test_backend = argv[2];
  if (argc > 3) deepinfer::engine::test_activations = argv[3];
  if (const int skipped = deepinfer::engine::SkipWithoutBackend(); skipped != 0) return skipped;
  return RUN_ALL_TESTS();
}
