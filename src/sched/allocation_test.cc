// SPDX-License-Identifier: Apache-2.0
// Property: planning, completing, cancelling and ending allocate nothing, whatever happens in them: prefix hits,
// followers, forks, preemption, snapshots. Counted by an operator new of our own; only Submit may allocate.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <random>

#include "sched/null_executor.h"
#include "sched/scheduler.h"

namespace {

int64_t g_allocations = 0;

}  // namespace

[[gnu::noinline]] void* operator new(size_t size) {
  ++g_allocations;
  if (void* memory = std::malloc(size)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace deepinfer::sched {
namespace {

TEST(Scheduler, AllocatesNothingInItsSteps) {
  Config config;
  config.layers = {6, 128, {1, 3}};
  config.blocks = 24;
  config.pages = {50, 50};
  config.snapshot_pages = {10, 10};
  config.snapshot_every_blocks = 2;
  config.slots = 8;
  config.prefill_rows_max = 200;
  config.step_rows_max = 300;
  config.draft_rows = 3;
  auto scheduler = *Scheduler::Create(config);
  NullExecutor executor(config);
  StepPlan plan = scheduler->MakePlan();
  std::vector<Ended> ended;
  ended.reserve(256);
  std::vector<RequestId> ids;
  std::mt19937 random(1);
  int64_t in_steps = 0;
  for (int turn = 0; turn < 20000; ++turn) {
    if (random() % 16 == 0) {
      RequestSpec spec;
      spec.prompt.assign(1 + random() % 700, static_cast<int32_t>(random() % 3));
      spec.names = kv::NamePrompt(kv::BlockNamer("m", "n", ""), spec.prompt, {});
      spec.length_max = static_cast<int64_t>(spec.prompt.size()) + 1 + random() % 200;
      spec.choices = random() % 4 ? 1 : 3;
      spec.drafts = static_cast<int32_t>(random() % 4);
      spec.replay = random() % 3 ? Replay::kExact : Replay::kDecoder;
      auto submitted = scheduler->Submit(std::move(spec), turn);
      if (submitted.ok()) ids.insert(ids.end(), submitted->begin(), submitted->end());
    }
    const int64_t before = g_allocations;
    if (!ids.empty() && random() % 50 == 0) scheduler->Cancel(ids[random() % ids.size()]);
    if (scheduler->Plan(&plan)) executor.Launch(plan);
    if (executor.steps() == 2 || (executor.steps() == 1 && random() % 2)) scheduler->Complete(executor.Finish());
    scheduler->TakeEnded(&ended);
    in_steps += g_allocations - before;
  }
  EXPECT_EQ(in_steps, 0);
  const Stats& stats = scheduler->stats();
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_GT(stats.forks, 0);
  EXPECT_GT(stats.blocks_followed, 0);
  EXPECT_GT(stats.snapshot_hits, 0);
  EXPECT_GT(stats.cached_tokens, 0);
  EXPECT_GT(stats.ended[0], 0);
  EXPECT_GT(stats.ended[1], 0);
  EXPECT_GT(scheduler->cache().evictions(), 0);
}

}  // namespace
}  // namespace deepinfer::sched
