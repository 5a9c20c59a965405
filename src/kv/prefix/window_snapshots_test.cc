// SPDX-License-Identifier: Apache-2.0
// Property: snapshots hold their pages and nothing more, never exceed their share, and leave by last use.
#include "kv/prefix/window_snapshots.h"

#include <gtest/gtest.h>

#include <random>

namespace deepinfer::kv {
namespace {

struct Fixture {
  BlockPool early{8};
  BlockPool late{8};
  WindowSnapshots snapshots{{.blocks = 16, .pages_per_point = 2, .pages_max = {4, 2}}, {&early, &late}};

  // Keeps fresh pages for the block; the snapshot alone holds them afterwards.
  void Keep(BlockId block, LayerGroup group) {
    BlockPool& pool = group == kEarly ? early : late;
    const BlockId pages[2] = {pool.Take(), pool.Take()};
    snapshots.Keep(block, group, pages);
    for (const BlockId page : pages) pool.Unref(page);
  }
};

TEST(WindowSnapshots, HoldTheirPagesUntilDropped) {
  Fixture f;
  f.Keep(3, kEarly);
  f.Keep(3, kLate);
  EXPECT_TRUE(f.snapshots.Has(3, kEarly));
  EXPECT_EQ(f.snapshots.Use(3, kLate).size(), 2u);
  EXPECT_EQ(f.early.num_held(), 2);
  f.snapshots.Drop(3);
  EXPECT_EQ(f.early.num_free() + f.late.num_free(), 16);
  EXPECT_FALSE(f.snapshots.Has(3, kLate));
  f.snapshots.Drop(3);
}

TEST(WindowSnapshots, KeepTheirShareByLastUse) {
  Fixture f;
  f.Keep(1, kEarly);
  f.Keep(2, kEarly);
  EXPECT_EQ(f.snapshots.Use(1, kEarly).size(), 2u);
  f.Keep(3, kEarly);  // 2 is the oldest now
  EXPECT_TRUE(f.snapshots.Has(1, kEarly) && f.snapshots.Has(3, kEarly));
  EXPECT_FALSE(f.snapshots.Has(2, kEarly));
  EXPECT_EQ(f.snapshots.pages_held(kEarly), 4);
  f.Keep(3, kLate);
  f.Keep(1, kLate);
  EXPECT_FALSE(f.snapshots.Has(3, kLate));
  EXPECT_TRUE(f.snapshots.Has(3, kEarly));  // groups come and go by themselves
}

TEST(WindowSnapshots, EvictionIsSafeWhereNothingIsKept) {
  Fixture f;
  EXPECT_FALSE(f.snapshots.EvictOldest(kEarly));
  f.Keep(1, kEarly);
  EXPECT_TRUE(f.snapshots.EvictOldest(kEarly));
  EXPECT_FALSE(f.snapshots.EvictOldest(kEarly));
  EXPECT_EQ(f.early.num_free(), 8);
}

TEST(WindowSnapshots, ShareOfNothingKeepsNothing) {
  BlockPool pool(4), none(0);
  WindowSnapshots snapshots({.blocks = 4, .pages_per_point = 1, .pages_max = {0, 0}}, {&pool, &none});
  const BlockId page = pool.Take();
  snapshots.Keep(0, kEarly, std::span(&page, 1));
  EXPECT_FALSE(snapshots.Has(0, kEarly));
  EXPECT_EQ(pool.refs(page), 1);
}

TEST(WindowSnapshots, RandomUseKeepsTheCounts) {
  Fixture f;
  std::mt19937 random(5);
  for (int step = 0; step < 20000; ++step) {
    const auto block = static_cast<BlockId>(random() % 16);
    const LayerGroup group = random() % 2 ? kEarly : kLate;
    switch (random() % 4) {
      case 0:
      case 1:
        f.Keep(block, group);
        ASSERT_TRUE(f.snapshots.Has(block, group));
        break;
      case 2:
        f.snapshots.Drop(block);
        break;
      case 3:
        f.snapshots.EvictOldest(group);
        break;
    }
    int held[2] = {0, 0};
    for (const LayerGroup g : {kEarly, kLate}) f.snapshots.ForEachPage(g, [&](BlockId) { ++held[g]; });
    ASSERT_EQ(held[kEarly], f.early.num_held());
    ASSERT_EQ(held[kLate], f.late.num_held());
    ASSERT_LE(held[kEarly], 4);
    ASSERT_LE(held[kLate], 2);
  }
}

}  // namespace
}  // namespace deepinfer::kv
