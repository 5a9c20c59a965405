// SPDX-License-Identifier: Apache-2.0
// Property: the starts are those of the written formulas, and nothing less and nothing more than what a plain
// dependency analysis, row by row and layer by layer, says has to run. (A start that is too low by a row can hide
// behind rounding in a comparison of logits, so the starts themselves are checked.)
#include "sched/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace deepinfer::sched {
namespace {

using kv::kEarly;
using kv::kLate;

// Geometry of the published model and of the golden checkpoints.
const LayerShape kPublished = {40, 128, {2, 8, 14, 20}};
const LayerShape kBase = {3, 64, {1, 2}};
const LayerShape kSources = {7, 16, {1, 3, 4}};
const LayerShape kEngram = {4, 128, {2, 3}};
const LayerShape kWindowOnly = {2, 32, {}};

struct Starts {
  std::vector<int32_t> r;
  ReplayStarts starts;
};

Starts Compute(const LayerShape& shape, const ReplayInput& input) {
  Starts run;
  run.r.resize(static_cast<size_t>(shape.num_layers) + 1);
  run.starts = ComputeReplay(shape, input, run.r);
  return run;
}

// Which rows of the stream entering layer l anybody needs, by going down from what is wanted at the top.
std::vector<int32_t> NeededFrom(const LayerShape& shape, const ReplayInput& in) {
  const auto n = static_cast<size_t>(in.length);
  const auto first_late = shape.first_late();
  std::vector<uint8_t> rows(n, 0);  // rows of the stream above layer l
  rows[n - 1] = 1;
  std::vector<int32_t> from(static_cast<size_t>(shape.num_layers) + 1, static_cast<int32_t>(in.length - 1));
  for (int32_t l = shape.num_layers - 1; l >= 0; --l) {
    const bool late = l >= first_late;
    int64_t floor = 0;
    if (late && in.setting == Replay::kDecoder) floor = std::max<int64_t>(0, in.prompt_length - shape.window);
    std::vector<uint8_t> needed = rows;
    const auto need_window = [&](int64_t lo, int64_t hi) {
      for (int64_t t = std::max({floor, int64_t{0}, lo}); t <= hi; ++t) needed[static_cast<size_t>(t)] = 1;
    };
    for (size_t t = 0; t < n; ++t) {
      if (rows[t]) need_window(static_cast<int64_t>(t) - shape.window + 1, static_cast<int64_t>(t));
    }
    if (in.keep_at > 0 && in.setting == Replay::kExact) need_window(in.keep_at - shape.window + 1, in.keep_at - 1);
    const bool source = std::count(shape.kv_sources.begin(), shape.kv_sources.end(), l) != 0;
    if (source) std::fill(needed.begin() + static_cast<ptrdiff_t>(in.hit), needed.end(), 1);
    const auto first = std::find(needed.begin(), needed.end(), 1);
    from[static_cast<size_t>(l)] = static_cast<int32_t>(first - needed.begin());
    std::fill(first, needed.end(), 1);  // rows run without gaps
    rows = needed;
  }
  return from;
}

TEST(Replay, ExactTrapezoidIsWhatTheRowsNeed) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    LayerShape shape;
    shape.num_layers = 1 + static_cast<int32_t>(random() % 8);
    shape.window = 2 + static_cast<int32_t>(random() % 127);
    for (int32_t l = 0; l < shape.num_layers; ++l) {
      if (random() % 3 == 0) shape.kv_sources.push_back(l);
    }
    ReplayInput in;
    in.setting = random() % 2 ? Replay::kExact : Replay::kDecoder;
    in.prompt_length = 1 + static_cast<int64_t>(random() % 900);
    in.length = in.prompt_length + (random() % 2 ? static_cast<int64_t>(random() % 300) : 0);
    in.hit = static_cast<int64_t>(random() % static_cast<uint32_t>((in.length - 1) / 128 + 1)) * 128;
    if (shape.kv_sources.empty()) in.hit = 0;  // nothing to hit
    const int64_t last_block_end = in.length / 128 * 128;
    if (in.setting == Replay::kExact && random() % 2) in.keep_at = last_block_end;
    const Starts run = Compute(shape, in);
    ASSERT_EQ(run.r, NeededFrom(shape, in)) << "case " << i;
    ASSERT_EQ(run.starts.first_row, run.r[0]);
    int64_t cost = 0;
    for (size_t l = 1; l < run.r.size(); ++l) cost += in.length - run.r[l];
    ASSERT_EQ(run.starts.token_layers, cost);
    if (in.keep_at > 0) {
      for (const auto group : {kEarly, kLate}) {
        ASSERT_LE(run.starts.windows_from[group], std::max<int64_t>(0, in.keep_at - shape.window + 1));
      }
    }
  }
}

TEST(Replay, ReachOfTheTrapezoidInNumbers) {
  const int64_t n = 100001, hit = 100000 / 128 * 128;
  // To continue right behind the hit: (L - l) * (W - 1) tokens before it.
  Starts run = Compute(kPublished, {.prompt_length = hit + 1, .length = hit + 1, .hit = hit});
  for (int l = 0; l <= 40; ++l) EXPECT_EQ(run.r[static_cast<size_t>(l)], hit - (40 - l) * 127) << l;
  // Cold, for the last prompt token's logits: (L - 1 - l) * (W - 1) + W tokens in the late layers, its own included.
  run = Compute(kPublished, {.prompt_length = n, .length = n});
  for (int l = 21; l < 40; ++l) EXPECT_EQ(run.r[static_cast<size_t>(l)], n - ((39 - l) * 127 + 128)) << l;
  for (int l = 0; l <= 20; ++l) EXPECT_EQ(run.r[static_cast<size_t>(l)], 0) << l;
  // "What 2,600 tokens cost in full depth": about W * L * L / 2 token-layers above the tail itself.
  run = Compute(kPublished, {.prompt_length = hit + 1, .length = hit + 1, .hit = hit});
  EXPECT_NEAR(static_cast<double>(run.starts.token_layers), 128.0 * 40 * 40 / 2, 128 * 40);
}

TEST(Replay, NoneRunsEverything) {
  const Starts run = Compute(kPublished, {.setting = Replay::kNone, .prompt_length = 500, .length = 500});
  EXPECT_EQ(run.r, std::vector<int32_t>(41, 0));
  EXPECT_EQ(run.starts.token_layers, 500 * 40);
}

TEST(Replay, DecoderRunsLateLayersOnTheLastWindowOfThePrompt) {
  // The golden case: prompt 142, window 16, hits 64 and 128, the latter behind the first late row (126).
  for (const int64_t hit : {0, 64 / 128 * 128, 128}) {
    const Starts run =
        Compute(kSources, {.setting = Replay::kDecoder, .prompt_length = 142, .length = 142, .hit = hit});
    EXPECT_EQ(run.r[5], 126);
    EXPECT_EQ(run.r[6], 126);
    EXPECT_EQ(run.r[7], 141);
    EXPECT_EQ(run.starts.floor[kLate], 126);
    EXPECT_EQ(run.starts.floor[kEarly], 0);
    EXPECT_EQ(run.r[4], std::min<int32_t>(126 - 15, static_cast<int32_t>(hit)));
  }
  // No KV source: every layer is late.
  const Starts run = Compute(kWindowOnly, {.setting = Replay::kDecoder, .prompt_length = 100, .length = 100});
  EXPECT_EQ(run.r, (std::vector<int32_t>{68, 68, 99}));
  // The first late layer's own window is all that a single late layer needs: nothing is cut.
  const LayerShape one_late = {3, 32, {1}};
  const ReplayInput exact = {.prompt_length = 200, .length = 200, .hit = 128};
  ReplayInput decoder = exact;
  decoder.setting = Replay::kDecoder;
  EXPECT_EQ(Compute(one_late, exact).r, Compute(one_late, decoder).r);
}

TEST(Replay, DecoderResumesByPositionsOfThePromptAlone) {
  // 400 generated tokens later the late layers may start above the prompt, but never below prompt - W.
  Starts run = Compute(kSources, {.setting = Replay::kDecoder, .prompt_length = 142, .length = 542, .hit = 512});
  EXPECT_EQ(run.r[6], 541 - 15);
  EXPECT_EQ(run.r[5], 541 - 30);
  run = Compute(kSources, {.setting = Replay::kDecoder, .prompt_length = 142, .length = 150});
  EXPECT_EQ(run.r[6], 134);
  EXPECT_EQ(run.r[5], 126);
  EXPECT_EQ(run.starts.floor[kLate], 126);
}

TEST(Replay, BoundedReplaysOneWindow) {
  struct Case {
    LayerShape shape;
    int64_t prompt, hit;
  };
  for (const Case& c : {Case{kBase, 292, 128},
                        {kBase, 292, 256},
                        {kSources, 142, 128},
                        {kEngram, 290, 128},
                        {kEngram, 290, 256},
                        {kPublished, 9000, 8192},
                        {kPublished, 9000, 0}}) {
    const Starts run =
        Compute(c.shape, {.setting = Replay::kBounded, .prompt_length = c.prompt, .length = c.prompt, .hit = c.hit});
    const int64_t early = std::max<int64_t>(0, c.hit - c.shape.window);
    for (int32_t l = 0; l < c.shape.num_layers; ++l) {
      const int64_t want = l < c.shape.first_late() ? early : c.prompt - c.shape.window;
      EXPECT_EQ(run.r[static_cast<size_t>(l)], want) << "layer " << l << " hit " << c.hit;
    }
    EXPECT_EQ(run.starts.floor[kEarly], early);
    EXPECT_EQ(run.starts.first_row, early);
  }
}

TEST(Replay, SnapshotsReplaceTheTrapezoid) {
  // Early pages at an interior point: the late layers still take their trapezoid, which must lie above the hit.
  ReplayInput in = {.prompt_length = 20000, .length = 20000, .hit = 8192, .early_snapshot = true};
  Starts run = Compute(kPublished, in);
  EXPECT_TRUE(run.starts.uses_snapshot[kEarly]);
  for (int l = 0; l <= 20; ++l) EXPECT_EQ(run.r[static_cast<size_t>(l)], 8192);
  EXPECT_EQ(run.r[21], 20000 - (18 * 127 + 128));
  EXPECT_EQ(run.starts.windows_from[kEarly], 8192 - 127);
  // Close to the end it does not, and early pages alone are of no use.
  in.prompt_length = in.length = 8200;
  run = Compute(kPublished, in);
  EXPECT_FALSE(run.starts.uses_snapshot[kEarly]);
  EXPECT_LT(run.r[20], 8192);
  // With late pages too nothing below the hit runs.
  in.late_snapshot = true;
  run = Compute(kPublished, in);
  EXPECT_TRUE(run.starts.uses_snapshot[kEarly] && run.starts.uses_snapshot[kLate]);
  for (int l = 0; l < 40; ++l) EXPECT_EQ(run.r[static_cast<size_t>(l)], 8192);
  EXPECT_EQ(run.starts.windows_from[kLate], 8192 - 127);
  EXPECT_EQ(run.starts.token_layers, 8 * 39 + 1);
  // Late pages are left alone where no late layer starts at the hit, and by settings that cut the late layers.
  in.prompt_length = in.length = 20000;
  EXPECT_FALSE(Compute(kPublished, in).starts.uses_snapshot[kLate]);
  in.setting = Replay::kDecoder;
  in.prompt_length = in.length = 8200;
  EXPECT_FALSE(Compute(kPublished, in).starts.uses_snapshot[kLate]);
}

TEST(Replay, WideningMakesTheLastBlockEndComplete) {
  // 300 tokens, last block end 256: windows there need rows from 256 - 127 on in every layer, 44 % 128 rows more.
  ReplayInput in = {.prompt_length = 300, .length = 300};
  const LayerShape shape = {4, 128, {1}};
  EXPECT_EQ(Compute(shape, in).r, (std::vector<int32_t>{0, 0, 45, 172, 299}));
  in.keep_at = 256;
  const Starts run = Compute(shape, in);
  EXPECT_EQ(run.r, (std::vector<int32_t>{0, 0, 2, 129, 299}));
  EXPECT_EQ(run.starts.windows_from[kLate], 129);
}

TEST(Replay, HitsUnderDecoderKeepClearOfTheLateRows) {
  EXPECT_TRUE(HitAllowed(kPublished, Replay::kExact, 1000, 896));
  EXPECT_FALSE(HitAllowed(kPublished, Replay::kNone, 1000, 128));
  EXPECT_TRUE(HitAllowed(kPublished, Replay::kNone, 1000, 0));
  EXPECT_TRUE(HitAllowed(kPublished, Replay::kDecoder, 1024, 896));
  EXPECT_FALSE(HitAllowed(kPublished, Replay::kDecoder, 1000, 896));
  EXPECT_TRUE(HitAllowed(kPublished, Replay::kDecoder, 1000, 1024));  // resumed, behind the prompt
  EXPECT_TRUE(HitAllowed(kPublished, Replay::kBounded, 1000, 896));
}

}  // namespace
}  // namespace deepinfer::sched
