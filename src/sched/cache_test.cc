// SPDX-License-Identifier: Apache-2.0
// Property: growing and forking a slot is all or nothing, gives way to no held memory, and what a slot held comes back
// such that chains lose their tails first.
#include "sched/cache.h"

#include <gtest/gtest.h>

namespace deepinfer::sched {
namespace {

using kv::kEarly;
using kv::kLate;

Config TinyConfig() {
  Config config;
  config.layers = {2, 128, {0}};
  config.blocks = 6;
  config.pages = {6, 6};
  config.snapshot_pages = {2, 2};
  config.slots = 3;
  config.step_rows_max = 10;
  return config;
}

kv::BlockName Name(uint8_t i) {
  kv::BlockName name;
  name.bytes[0] = i;
  return name;
}

TEST(Cache, ReserveIsAllOrNothing) {
  Cache cache(TinyConfig());
  SlotLease a = cache.TakeSlot();
  EXPECT_TRUE(cache.Reserve(a.slot(), 200, {200, 100}));
  EXPECT_TRUE(cache.Covers(a.slot(), 256, {256, 128}));
  EXPECT_FALSE(cache.Covers(a.slot(), 256, {257, 128}));
  EXPECT_FALSE(cache.Reserve(a.slot(), 7 * 128, {200, 100}));
  EXPECT_FALSE(cache.Reserve(a.slot(), 300, {7 * 128, 100}));  // too many pages: no block is taken either
  EXPECT_EQ(cache.blocks().end(a.slot()), 2);
  EXPECT_EQ(cache.FindViolation(), "");
  cache.Release(std::move(a));
  EXPECT_EQ(cache.block_pool().num_free(), 6);
}

TEST(Cache, SnapshotsYieldToRunningRequests) {
  Cache cache(TinyConfig());
  SlotLease a = cache.TakeSlot();
  ASSERT_TRUE(cache.Reserve(a.slot(), 256, {256, 256}));
  for (int i = 0; i < 2; ++i) {
    const kv::BlockId block = cache.blocks().at(a.slot(), i);
    cache.index().Publish(Name(static_cast<uint8_t>(i)), block);
    cache.KeepSnapshot(a.slot(), kEarly, block, (i + 1) * 128);
  }
  cache.Release(std::move(a));
  EXPECT_EQ(cache.snapshots().pages_held(kEarly), 2);
  SlotLease b = cache.TakeSlot();
  EXPECT_TRUE(cache.Reserve(b.slot(), 256, {5 * 128, 128}));
  EXPECT_EQ(cache.snapshots().pages_held(kEarly), 1);
  EXPECT_EQ(cache.FindViolation(), "");
  cache.Release(std::move(b));
}

TEST(Cache, ReleasedChainsAreEvictedFromTheirTail) {
  Cache cache(TinyConfig());
  SlotLease a = cache.TakeSlot();
  ASSERT_TRUE(cache.Reserve(a.slot(), 3 * 128, {128, 128}));
  for (int i = 0; i < 3; ++i) cache.index().Publish(Name(static_cast<uint8_t>(i)), cache.blocks().at(a.slot(), i));
  cache.Release(std::move(a));
  SlotLease b = cache.TakeSlot();
  ASSERT_TRUE(cache.Reserve(b.slot(), 4 * 128, {128, 128}));  // three are free, one is evicted
  EXPECT_TRUE(cache.index().Find(Name(0)).ready);
  EXPECT_TRUE(cache.index().Find(Name(1)).ready);
  EXPECT_FALSE(cache.index().Find(Name(2)).ready);
  EXPECT_EQ(cache.evictions(), 1);
  cache.Release(std::move(b));
}

TEST(Cache, ForkSharesWholePiecesOrDoesNothing) {
  Cache cache(TinyConfig());
  SlotLease a = cache.TakeSlot();
  SlotLease b = cache.TakeSlot();
  SlotLease c = cache.TakeSlot();
  std::vector<Copy> copies;
  ASSERT_TRUE(cache.Reserve(a.slot(), 300, {300, 300}));
  ASSERT_TRUE(cache.Fork(a.slot(), b.slot(), 300, &copies));
  EXPECT_EQ(copies.size(), 4u);
  EXPECT_EQ(cache.block_pool().refs(cache.blocks().at(a.slot(), 0)), 2);
  EXPECT_EQ(cache.block_pool().refs(cache.blocks().at(a.slot(), 2)), 1);
  EXPECT_EQ(cache.pages(kLate).first(b.slot()), 1);           // only the window's pages go along
  ASSERT_TRUE(cache.Reserve(a.slot(), 5 * 128, {300, 300}));  // takes the last blocks
  EXPECT_FALSE(cache.Fork(a.slot(), c.slot(), 300, &copies));
  EXPECT_EQ(copies.size(), 4u);
  EXPECT_EQ(cache.FindViolation(), "");
  for (SlotLease* lease : {&a, &b, &c}) cache.Release(std::move(*lease));
  EXPECT_EQ(cache.block_pool().num_free(), 6);
}

TEST(Cache, UnfinishedBlocksLoseTheirNames) {
  Cache cache(TinyConfig());
  SlotLease a = cache.TakeSlot();
  ASSERT_TRUE(cache.Reserve(a.slot(), 128, {128, 128}));
  cache.index().Announce(Name(1), cache.blocks().at(a.slot(), 0), 7);
  cache.Release(std::move(a));
  EXPECT_EQ(cache.index().Find(Name(1)).block, kv::kNoBlock);
  EXPECT_EQ(cache.FindViolation(), "");
}

TEST(CacheDeathTest, LosingASlotIsABug) {
  Cache cache(TinyConfig());
  EXPECT_DEATH({ SlotLease lost = cache.TakeSlot(); }, "check failed");
}

}  // namespace
}  // namespace deepinfer::sched
