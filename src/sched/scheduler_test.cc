// SPDX-License-Identifier: Apache-2.0
// Property: each promise of scheduler.h by itself, in small scenes: what is refused, what is shared, who waits for whom
// and how long, what ends when. tests/sim mixes them all at random.
#include "sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "sched/null_executor.h"

namespace deepinfer::sched {
namespace {

using kv::kBlockTokens;
using kv::kEarly;
using kv::kLate;
using testing::HasSubstr;

Config SmallConfig() {
  Config config;
  config.layers = {4, 128, {1}};
  config.blocks = 64;
  config.pages = {64, 64};
  config.snapshot_pages = {16, 16};
  config.slots = 8;
  config.prefill_rows_max = 128;
  config.step_rows_max = 256;
  config.steps_in_flight = 1;
  return config;
}

RequestSpec Spec(int64_t prompt, int64_t answer, int32_t first_token = 7) {
  RequestSpec spec;
  for (int64_t i = 0; i < prompt; ++i) spec.prompt.push_back(static_cast<int32_t>(first_token + i % 1000));
  spec.names = kv::NamePrompt(kv::BlockNamer("m", "n", ""), spec.prompt, {});
  spec.length_max = prompt + answer;
  return spec;
}

// A scheduler under the null executor, a step at a time.
struct Scene {
  explicit Scene(const Config& config)
      : scheduler(*Scheduler::Create(config)), executor(config), plan(scheduler->MakePlan()) {}

  RequestId Submit(RequestSpec spec) { return (*scheduler->Submit(std::move(spec), ++now_ms)).front(); }
  // Plans one step; false if there is none.
  bool Plan() {
    if (!scheduler->Plan(&plan)) return false;
    executor.Launch(plan);
    return true;
  }
  void Complete() {
    scheduler->Complete(executor.Finish());
    TakeEnded();
  }
  void TakeEnded() {
    std::vector<Ended> now;
    scheduler->TakeEnded(&now);
    for (const Ended& e : now) ended[e.request.index] = e.reason;
    EXPECT_EQ(scheduler->FindViolation(), "");
  }
  bool Step() {
    const bool planned = Plan();
    if (executor.steps() > 0) Complete();
    TakeEnded();
    return planned;
  }
  // Steps until nothing is left.
  int Drain() {
    int steps = 0;
    while (!scheduler->idle() && steps < 100000) {
      Step();
      ++steps;
    }
    return steps;
  }
  const PlanEntry* Entry(RequestId id) const {
    for (const PlanEntry& entry : plan.entries) {
      if (entry.request == id) return &entry;
    }
    return nullptr;
  }

  std::unique_ptr<Scheduler> scheduler;
  NullExecutor executor;
  StepPlan plan;
  int64_t now_ms = 0;
  std::map<uint32_t, EndReason> ended;
};

TEST(Scheduler, RefusesWhatCanNeverRunAndNamesTheField) {
  Scene scene(SmallConfig());
  const auto refused = [&](RequestSpec spec, const char* field) {
    const auto result = scene.scheduler->Submit(std::move(spec), 0);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.status().message(), HasSubstr(field));
  };
  refused(Spec(0, 5), "prompt");
  RequestSpec spec = Spec(200, 5);
  spec.prompt[3] = -1;
  refused(std::move(spec), "prompt[3]");
  refused(Spec(200, 0), "length_max");
  refused(Spec(200, 64 * 128), "length_max: 8392 tokens need 66 cache blocks, there are 64");
  spec = Spec(200, 5);
  spec.names = {};
  refused(std::move(spec), "names");
  for (const int32_t n : {0, -1, 1000000}) {
    spec = Spec(200, 5);
    spec.choices = n;
    refused(std::move(spec), "choices");
  }
  spec = Spec(200, 5);
  spec.drafts = 1;
  refused(std::move(spec), "drafts");
  spec = Spec(200, 5);
  spec.priority = 101;
  refused(std::move(spec), "priority");
  spec = Spec(200, 5);
  spec.images.resize(1);
  spec.images[0].begin = 190;
  spec.images[0].end = 201;
  refused(std::move(spec), "images[0]");
  EXPECT_TRUE(scene.scheduler->idle());
}

TEST(Scheduler, RefusesConfigsByField) {
  const auto field = [](auto change) {
    Config config = SmallConfig();
    change(config);
    const auto result = Scheduler::Create(config);
    return result.ok() ? "" : result.status().message();
  };
  EXPECT_THAT(field([](Config& c) { c.slots = 0; }), HasSubstr("slots"));
  EXPECT_THAT(field([](Config& c) { c.step_rows_max = c.slots; }), HasSubstr("step_rows_max"));
  EXPECT_THAT(field([](Config& c) { c.pages[kLate] = 1; }), HasSubstr("pages[late]"));
  EXPECT_THAT(field([](Config& c) { c.layers.kv_sources = {2, 1}; }), HasSubstr("kv_sources"));
  EXPECT_THAT(field([](Config& c) { c.blocks = 0; }), HasSubstr("blocks"));
  EXPECT_EQ(field([](Config&) {}), "");
}

TEST(Scheduler, FullQueueRefusesAndRecovers) {
  Config config = SmallConfig();
  config.queue_max = 2;
  config.choices_max = 2;
  config.slots = 1;
  Scene scene(config);
  for (int i = 0; i < 3; ++i) scene.Submit(Spec(10, 2));
  EXPECT_EQ(scene.scheduler->Submit(Spec(10, 2), 9).status().code(), Code::kResourceExhausted);
  scene.Drain();
  EXPECT_TRUE(scene.scheduler->Submit(Spec(10, 2), 9).ok());
}

// A11, A25: whole prompts in the cache, and the shortest ones.
TEST(SchedulerCasesA, A11_A25_CompleteHitsLeaveOneRowToRun) {
  for (const int64_t n : {1, 2, 3, 127, 128, 129, 256, 1024}) {
    Scene scene(SmallConfig());
    scene.Submit(Spec(n, 1));
    scene.Drain();
    for (int again = 0; again < 5; ++again) {
      const RequestId id = scene.Submit(Spec(n, 1));
      ASSERT_TRUE(scene.Plan());
      EXPECT_EQ(scene.scheduler->CachedTokens(id), (n - 1) / kBlockTokens * kBlockTokens);
      EXPECT_EQ(scene.Entry(id)->position_end, std::min<int64_t>(n, scene.Entry(id)->begin + 128));
      scene.Complete();
      scene.Drain();
    }
    EXPECT_EQ(scene.scheduler->cache().block_pool().num_held(), 0);
  }
}

TEST(Scheduler, NextTurnBeginsAtTheSnapshot) {
  Scene scene(SmallConfig());
  RequestSpec first = Spec(500, 30);
  const std::vector<int32_t> prompt = first.prompt;
  const RequestId id = scene.Submit(std::move(first));
  std::vector<int32_t> all;
  while (!scene.scheduler->idle()) {
    const auto tokens = scene.scheduler->Tokens(id);
    all.assign(tokens.begin(), tokens.end());
    scene.Step();
  }
  // 529 rows were computed: four whole blocks, the last end of them a snapshot of both groups.
  RequestSpec second = Spec(600, 5);
  std::copy(all.begin(), all.end(), second.prompt.begin());
  second.names = kv::NamePrompt(kv::BlockNamer("m", "n", ""), second.prompt, {});
  const RequestId next = scene.Submit(std::move(second));
  ASSERT_TRUE(scene.Plan());
  EXPECT_EQ(scene.scheduler->CachedTokens(next), 512);
  EXPECT_EQ(scene.Entry(next)->begin, 512);  // nothing is run again
  EXPECT_EQ(scene.scheduler->stats().snapshot_hits, 1);
  scene.Complete();
  scene.Drain();
}

TEST(Scheduler, HitWithoutSnapshotRunsTheTrapezoid) {
  Config config = SmallConfig();
  config.snapshot_pages = {0, 0};
  Scene scene(config);
  scene.Submit(Spec(1000, 1));
  scene.Drain();
  const RequestId id = scene.Submit(Spec(1000, 1));
  ASSERT_TRUE(scene.Plan());
  const PlanEntry& entry = *scene.Entry(id);
  std::vector<int32_t> expected(5);
  ComputeReplay(config.layers, {.prompt_length = 1000, .length = 1000, .hit = 896}, expected);
  EXPECT_EQ(entry.begin, expected[0]);
  EXPECT_EQ(entry.global_from, 896);
  EXPECT_THAT(std::span(scene.plan.run_from).subspan(static_cast<size_t>(entry.starts)),
              testing::ElementsAreArray(expected));
  scene.Complete();
  scene.Drain();
}

TEST(Scheduler, DecoderHitsKeepClearOfTheLastWindow) {
  Scene scene(SmallConfig());
  scene.Submit(Spec(1000, 1));
  scene.Drain();
  RequestSpec spec = Spec(1000, 1);
  spec.replay = Replay::kDecoder;
  const RequestId id = scene.Submit(std::move(spec));
  scene.Plan();
  EXPECT_EQ(scene.scheduler->CachedTokens(id), 768);  // 896 > 1000 - 128
  EXPECT_EQ(scene.Entry(id)->floor[kLate], 872);
  scene.Complete();
  scene.Drain();
}

TEST(Scheduler, NoneTakesNoHitsButLeavesBlocks) {
  Scene scene(SmallConfig());
  for (int i = 0; i < 2; ++i) {
    RequestSpec spec = Spec(1000, 1);
    spec.replay = Replay::kNone;
    const RequestId id = scene.Submit(std::move(spec));
    scene.Plan();
    EXPECT_EQ(scene.scheduler->CachedTokens(id), 0);
    EXPECT_EQ(scene.Entry(id)->starts, -1);
    scene.Complete();
    scene.Drain();
  }
  const RequestId id = scene.Submit(Spec(1000, 1));
  scene.Plan();
  EXPECT_EQ(scene.scheduler->CachedTokens(id), 896);
}

TEST(Scheduler, ReplayedBlocksAreForBoundedRequestsOnly) {
  Config config = SmallConfig();
  Scene scene(config);
  scene.Submit(Spec(600, 1));
  scene.Drain();
  RequestSpec bounded = Spec(1000, 1);
  bounded.replay = Replay::kBounded;
  const RequestSpec again = bounded;
  scene.Submit(std::move(bounded));
  scene.Drain();
  const RequestId exact = scene.Submit(Spec(1000, 1));
  scene.Plan();
  EXPECT_EQ(scene.scheduler->CachedTokens(exact), 512);
  scene.Complete();
  scene.scheduler->Cancel(exact);
  scene.Drain();
  const RequestId warm = scene.Submit(again);
  scene.Plan();
  EXPECT_EQ(scene.scheduler->CachedTokens(warm), 896);
  EXPECT_EQ(scene.Entry(warm)->begin, 896 - 128);
  EXPECT_EQ(scene.Entry(warm)->floor[kEarly], 896 - 128);
}

TEST(Scheduler, FollowerSharesBlocksInFlightAndTakesOver) {
  Config config = SmallConfig();
  config.steps_in_flight = 2;
  Scene scene(config);
  const RequestId first = scene.Submit(Spec(1000, 4));
  const RequestId second = scene.Submit(Spec(1000, 4));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(scene.Plan());
    EXPECT_EQ(scene.plan.entries.size(), 1u);  // the second waits instead of computing the same
    if (i > 0) scene.Complete();
  }
  EXPECT_EQ(scene.scheduler->StateOf(second), 2u);
  EXPECT_TRUE(scene.scheduler->Cancel(first));
  scene.Drain();
  const Stats& stats = scene.scheduler->stats();
  EXPECT_GE(stats.blocks_followed, 2);
  EXPECT_EQ(stats.takeovers, 1);
  EXPECT_EQ(scene.ended[second.index], EndReason::kFinished);
  // Blocks of the first that were complete are not computed again.
  EXPECT_GE(stats.cached_tokens, 256);
}

TEST(Scheduler, NobodyWaitsForOneBehind) {
  Config config = SmallConfig();
  config.priority_head_start_ms = 1000;
  Scene scene(config);
  scene.Submit(Spec(1000, 2));
  scene.Step();
  RequestSpec urgent = Spec(1000, 2);
  urgent.priority = 1;
  const RequestId id = scene.Submit(std::move(urgent));
  scene.Step();
  ASSERT_NE(scene.Entry(id), nullptr);
  EXPECT_EQ(scene.scheduler->CachedTokens(id), 128);  // what is there it takes
  scene.Drain();
}

TEST(Scheduler, FollowersOfACompleteRunComputeOnlyTheirTails) {
  Scene scene(SmallConfig());
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(scene.Submit(Spec(1000, 2)));
  scene.Drain();
  EXPECT_EQ(scene.scheduler->stats().cached_tokens, 5 * 896);
  EXPECT_LE(scene.scheduler->stats().rows, 1000 + 5 * 104 + 6);
}

TEST(Scheduler, ForksShareWholeBlocksAndCopyTheRest) {
  for (const int64_t n : {300, 256}) {
    Config config = SmallConfig();
    config.prefill_rows_max = 512;
    config.step_rows_max = 600;
    Scene scene(config);
    RequestSpec spec = Spec(n, 5);
    spec.choices = 3;
    const auto ids = *scene.scheduler->Submit(std::move(spec), 1);
    ASSERT_TRUE(scene.Plan());
    ASSERT_EQ(scene.plan.forks.size(), 2u);
    const auto& blocks = scene.scheduler->cache().blocks();
    const int32_t leader = scene.plan.entries[0].slot;
    for (const Fork& fork : scene.plan.forks) {
      EXPECT_EQ(fork.entry, 0);
      EXPECT_EQ(blocks.at(fork.slot, 0), blocks.at(leader, 0));
      EXPECT_EQ(blocks.at(fork.slot, 1), blocks.at(leader, 1));
      if (n == 300) {
        EXPECT_NE(blocks.at(fork.slot, 2), blocks.at(leader, 2));
      }
    }
    EXPECT_EQ(scene.plan.copies.size(), n == 300 ? 2u * 4 : 2u * 1);
    scene.Complete();
    scene.Drain();
    for (const RequestId id : ids) EXPECT_EQ(scene.ended[id.index], EndReason::kFinished);
    EXPECT_EQ(scene.scheduler->cache().block_pool().num_held(), 0);
  }
}

TEST(Scheduler, ChoicesOutliveTheirLeader) {
  Scene scene(SmallConfig());
  RequestSpec spec = Spec(300, 5);
  spec.choices = 3;
  const auto ids = *scene.scheduler->Submit(std::move(spec), 1);
  scene.Step();
  EXPECT_TRUE(scene.scheduler->Cancel(ids[0]));
  EXPECT_TRUE(scene.scheduler->Cancel(ids[2]));
  scene.Drain();
  EXPECT_EQ(scene.ended[ids[0].index], EndReason::kCancelled);
  EXPECT_EQ(scene.ended[ids[1].index], EndReason::kFinished);
  EXPECT_EQ(scene.ended[ids[2].index], EndReason::kCancelled);
}

TEST(Scheduler, LateResultsOfAnEndedRequestAreDropped) {
  Config config = SmallConfig();
  config.steps_in_flight = 2;
  Scene scene(config);
  const RequestId id = scene.Submit(Spec(10, 50));
  scene.Plan();
  scene.Plan();  // decodes a token that the host has not seen
  scene.executor.Finish();
  scene.executor.entries()[0].finished = true;  // the first token stops it
  StepResult result{0, scene.executor.entries(), {}, std::vector<int32_t>{5}};
  const std::vector<int32_t> stop = {5};
  result.tokens = stop;
  scene.scheduler->Complete(result);
  scene.TakeEnded();
  EXPECT_EQ(scene.scheduler->Tokens(id).size(), 11u);
  EXPECT_TRUE(scene.ended.empty());  // the step in flight still writes to its blocks
  EXPECT_GT(scene.scheduler->cache().block_pool().num_held(), 0);
  EXPECT_FALSE(scene.scheduler->Cancel(id));  // too late
  EXPECT_FALSE(scene.Plan());
  scene.Complete();
  EXPECT_EQ(scene.ended[id.index], EndReason::kFinished);
  EXPECT_EQ(scene.scheduler->cache().block_pool().num_held(), 0);
  EXPECT_TRUE(scene.scheduler->Tokens(id).empty());
}

TEST(Scheduler, FailureEndsOnlyTheRequestConcerned) {
  Scene scene(SmallConfig());
  const RequestId bad = scene.Submit(Spec(10, 50));
  const RequestId good = scene.Submit(Spec(10, 50, 99));
  scene.Step();
  scene.Plan();
  StepResult& result = scene.executor.Finish();
  for (size_t i = 0; i < scene.plan.entries.size(); ++i) {
    scene.executor.entries()[i].failed = scene.plan.entries[i].request == bad;
  }
  scene.scheduler->Complete(result);
  scene.Drain();
  EXPECT_EQ(scene.ended[bad.index], EndReason::kFailed);
  EXPECT_EQ(scene.ended[good.index], EndReason::kFinished);
}

TEST(Scheduler, DecodesAreInEveryStepBesideALongPrompt) {
  Config config = SmallConfig();
  config.blocks = 256;
  Scene scene(config);
  std::vector<RequestId> decodes;
  for (int i = 0; i < 4; ++i) decodes.push_back(scene.Submit(Spec(20, 2000, i)));
  for (int i = 0; i < 3; ++i) scene.Step();
  const RequestId prompt = scene.Submit(Spec(9000, 2, 500));
  int chunks = 0;
  while (scene.scheduler->StateOf(prompt).value_or(4) < 4) {
    ASSERT_TRUE(scene.Step());
    for (const RequestId id : decodes) ASSERT_NE(scene.Entry(id), nullptr);
    const PlanEntry* chunk = scene.Entry(prompt);
    ASSERT_NE(chunk, nullptr);
    if (!chunk->samples) {
      ASSERT_EQ(chunk->rows, config.prefill_rows_max);
    }
    ++chunks;
  }
  EXPECT_EQ(chunks, (9000 + 127) / 128);
}

// The bound of docs/scheduling.md: a prompt waits for rows of no longer prompt than itself.
TEST(Scheduler, ShortPromptsPassLongOnes) {
  Config config = SmallConfig();
  config.blocks = 1024;
  config.slots = 16;
  config.snapshot_pages = {0, 0};
  Scene scene(config);
  for (int i = 0; i < 6; ++i) scene.Submit(Spec(20000, 2, 100 * i));
  for (int i = 0; i < 4; ++i) scene.Step();
  std::vector<RequestId> shorts;
  for (int i = 0; i < 4; ++i) shorts.push_back(scene.Submit(Spec(100, 2, 3000 + 200 * i)));
  // 400 rows of prompts this short, 64 rows a step in their lane, one step to admit.
  const int bound = (400 + 63) / 64 + 1;
  std::set<uint32_t> done;
  for (int step = 0; step < bound; ++step) {
    scene.Step();
    for (const RequestId id : shorts) {
      if (scene.scheduler->StateOf(id).value_or(4) == 4) done.insert(id.index);
    }
  }
  EXPECT_EQ(done.size(), shorts.size());
  // And the first long one still gets its half.
  EXPECT_GE(scene.scheduler->Tokens({0, 0}).size(), 20000u);
  scene.Drain();
}

TEST(Scheduler, LargeRequestIsPassedABoundedNumberOfTimes) {
  Config config = SmallConfig();
  config.bypass_max = 3;
  config.slots = 4;
  Scene scene(config);
  scene.Submit(Spec(3000, 1000, 1));  // 24 of 64 blocks at once, more as it goes on
  scene.Step();
  const RequestId large = scene.Submit(Spec(6000, 2, 50));  // 47 blocks
  scene.Step();
  EXPECT_EQ(scene.scheduler->StateOf(large), 0u);
  int admitted = 0;
  for (int i = 0; i < 40; ++i) {
    scene.Submit(Spec(20, 2, 200 + i));
    scene.Step();
    admitted = static_cast<int>(scene.scheduler->stats().bypasses);
  }
  EXPECT_EQ(admitted, 3);
  scene.Drain();
  EXPECT_EQ(scene.ended[large.index], EndReason::kFinished);
}

TEST(Scheduler, PriorityIsAHeadStart) {
  Config config = SmallConfig();
  config.slots = 1;
  config.priority_head_start_ms = 10;
  Scene scene(config);
  const RequestId running = scene.Submit(Spec(10, 30, 1));
  scene.Step();
  const RequestId waiting = scene.Submit(Spec(10, 2, 2));
  RequestSpec urgent_spec = Spec(10, 2, 3);
  urgent_spec.priority = 1;
  const RequestId urgent = scene.Submit(std::move(urgent_spec));
  scene.Step();  // the running request of lower priority is preempted, but this step was planned for it already
  scene.Step();
  EXPECT_EQ(scene.scheduler->stats().preemptions, 1);
  EXPECT_NE(scene.Entry(urgent), nullptr);
  EXPECT_EQ(scene.scheduler->StateOf(running), 0u);
  EXPECT_EQ(scene.scheduler->StateOf(waiting), 0u);
  // One that comes later than the head start does not pass.
  scene.now_ms += 20;
  RequestSpec late = Spec(10, 2, 4);
  late.priority = 1;
  const RequestId late_id = scene.Submit(std::move(late));
  while (scene.scheduler->StateOf(waiting) == 0u) {
    EXPECT_EQ(scene.scheduler->StateOf(late_id), 0u);
    scene.Step();
  }
  scene.Drain();
  EXPECT_EQ(scene.ended[running.index], EndReason::kFinished);
}

// A16: a cache for two of six.
TEST(SchedulerCasesA, A16_PreemptedRequestsFinish) {
  Config config = SmallConfig();
  config.blocks = 18;
  config.steps_in_flight = 2;
  Scene scene(config);
  for (int i = 0; i < 6; ++i) scene.Submit(Spec(600, 400, i * 37));
  scene.Drain();
  EXPECT_EQ(scene.ended.size(), 6u);
  for (const auto& [index, reason] : scene.ended) EXPECT_EQ(reason, EndReason::kFinished);
  EXPECT_GT(scene.scheduler->stats().preemptions, 0);
}

TEST(Scheduler, BoundedRequestsAreLetInWithRoomForAllAndNeverPreempted) {
  Config config = SmallConfig();
  config.blocks = 24;
  Scene scene(config);
  scene.Submit(Spec(600, 1));
  scene.Drain();
  for (int i = 0; i < 4; ++i) {
    RequestSpec spec = Spec(600, 800);
    for (size_t at = 550; at < 600; ++at) spec.prompt[at] += i;
    spec.names = kv::NamePrompt(kv::BlockNamer("m", "n", ""), spec.prompt, {});
    spec.replay = i < 3 ? Replay::kBounded : Replay::kExact;  // 11 blocks each in the end, 4 of them shared
    scene.Submit(std::move(spec));
  }
  // The exact one grows into what was promised to the others, and gives it back.
  scene.Drain();
  for (const auto& [index, reason] : scene.ended) EXPECT_EQ(reason, EndReason::kFinished);
  EXPECT_EQ(scene.scheduler->stats().ended[static_cast<size_t>(EndReason::kFinished)], 5);
}

// A17: pages that left the window come back, with drafts and cancellations.
TEST(SchedulerCasesA, A17_WindowPagesDoNotLeak) {
  Config config = SmallConfig();
  config.draft_rows = 5;
  config.steps_in_flight = 2;
  config.snapshot_pages = {0, 0};
  Scene scene(config);
  std::mt19937 random(2);
  std::vector<RequestId> ids;
  for (int i = 0; i < 500; ++i) {
    RequestSpec spec = Spec(1 + static_cast<int64_t>(random() % 600), 1 + static_cast<int64_t>(random() % 60), i);
    spec.drafts = 5;
    ids.push_back(scene.Submit(std::move(spec)));
    scene.Step();
    if (i % 10 == 0) scene.scheduler->Cancel(ids[random() % ids.size()]);
    for (const PlanEntry& entry : scene.plan.entries) {
      if (entry.kind != EntryKind::kDecode || scene.scheduler->StateOf(entry.request) != 4u) continue;
      for (const auto group : {kEarly, kLate}) {
        ASSERT_LE(scene.scheduler->cache().pages(group).ids(entry.slot).size(), 3u);
      }
    }
  }
  scene.Drain();
  for (const auto group : {kEarly, kLate}) {
    EXPECT_EQ(scene.scheduler->cache().page_pool(group).num_free(), config.pages[group]);
  }
}

// A37: a chunk larger than the whole pool.
TEST(SchedulerCasesA, A37_PromptsThatFitStartInSmallerChunks) {
  Config config = SmallConfig();
  config.blocks = 20;
  config.pages = {12, 12};
  config.snapshot_pages = {0, 0};
  config.prefill_rows_max = 10000;
  config.step_rows_max = 10100;
  for (const int64_t percent : {50, 90, 100}) {
    Scene scene(config);
    const int64_t length = 20 * kBlockTokens * percent / 100 - 1;
    const RequestId id = scene.Submit(Spec(length, 1));
    EXPECT_TRUE(scene.Plan()) << percent;
    scene.Complete();
    EXPECT_LT(scene.Drain(), 40);
    EXPECT_EQ(scene.ended[id.index], EndReason::kFinished);
  }
  Scene scene(config);
  EXPECT_EQ(scene.scheduler->Submit(Spec(20 * kBlockTokens * 11 / 10, 1), 0).status().code(), Code::kInvalidArgument);
}

TEST(Scheduler, VerifyStepsReserveTheirWorstCase) {
  Config config = SmallConfig();
  config.draft_rows = 5;
  config.steps_in_flight = 2;
  Scene scene(config);
  RequestSpec spec = Spec(125, 100);
  spec.drafts = 5;
  const RequestId id = scene.Submit(std::move(spec));
  scene.Plan();
  scene.Plan();  // the prompt's token and up to five drafts more: positions 125 .. 130
  const PlanEntry& entry = *scene.Entry(id);
  EXPECT_EQ(entry.begin, -1);
  EXPECT_EQ(entry.rows, 6);
  EXPECT_EQ(entry.position_end, 131);
  EXPECT_EQ(scene.scheduler->cache().blocks().end(entry.slot), 2);
  scene.Complete();
  scene.scheduler->SetDrafts(id, 2);
  scene.Plan();  // one token known, one to six in flight: at most 132 tokens when it begins
  EXPECT_EQ(scene.Entry(id)->position_end, 126 + 6 + 2);
  scene.Drain();
}

// Firm drafts: as many as the request wants, however full the step is; and where it is resumed, its newest token runs as a
// decode, so that it has its drafts behind it as it would have had.
TEST(Scheduler, FirmDraftsAreNeverFewer) {
  Config config = SmallConfig();
  config.draft_rows = 5;
  config.slots = 2;
  config.step_rows_max = 13;
  config.prefill_rows_max = 13;
  Scene scene(config);
  RequestSpec spec = Spec(10, 100, 1);
  spec.drafts = 5;
  spec.firm_drafts = true;
  const RequestId id = scene.Submit(std::move(spec));
  scene.Submit(Spec(200, 5, 3));
  while (scene.scheduler->Tokens(id).size() < 12) scene.Step();
  scene.Step();  // a long prompt wants rows, which leaves plain drafts half of the spare ones
  EXPECT_EQ(scene.Entry(id)->rows, 6);
  RequestSpec urgent = Spec(10, 2, 5);
  urgent.priority = 100;
  scene.Submit(std::move(urgent));
  RequestSpec other = Spec(10, 2, 6);
  other.priority = 100;
  scene.Submit(std::move(other));
  while (scene.scheduler->StateOf(id) != 0u) ASSERT_TRUE(scene.Step());
  const std::vector<int32_t> tokens(scene.scheduler->Tokens(id).begin(), scene.scheduler->Tokens(id).end());
  while (scene.Entry(id) == nullptr || scene.Entry(id)->kind == EntryKind::kDecode || scene.Entry(id)->newest < 0) scene.Step();
  const PlanEntry resumed = *scene.Entry(id);
  EXPECT_FALSE(resumed.samples);
  EXPECT_EQ(resumed.newest, tokens.back());
  EXPECT_EQ(resumed.position_end, static_cast<int64_t>(tokens.size()) - 1);
  EXPECT_EQ(scene.scheduler->Tokens(id).size(), tokens.size());
  scene.Step();
  EXPECT_EQ(scene.Entry(id)->kind, EntryKind::kDecode);
  EXPECT_EQ(scene.Entry(id)->rows, 6);
  scene.Drain();
  EXPECT_EQ(scene.ended[id.index], EndReason::kFinished);
  config.step_rows_max = 12;
  spec = Spec(10, 5);
  spec.drafts = 1;
  spec.firm_drafts = true;
  EXPECT_THAT(Scene(config).scheduler->Submit(std::move(spec), 0).status().message(), HasSubstr("firm_drafts"));
}

}  // namespace
}  // namespace deepinfer::sched
