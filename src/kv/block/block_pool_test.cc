// SPDX-License-Identifier: Apache-2.0
// Property: whatever is done with a pool, each piece is in exactly one place, reference counts are those of a plain
// model beside it, and eviction goes by last use. Random operations, the model and the invariants after each.
#include "kv/block/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>

namespace deepinfer::kv {
namespace {

TEST(BlockPool, HandsOutEveryPieceOnce) {
  BlockPool pool(3);
  EXPECT_EQ(pool.num_free(), 3);
  std::map<BlockId, int> seen;
  for (int i = 0; i < 3; ++i) ++seen[pool.Take()];
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(pool.Take(), kNoBlock);
  EXPECT_EQ(pool.EvictOldest(), kNoBlock);
}

TEST(BlockPool, EmptyPoolIsLegal) {
  BlockPool pool(0);
  EXPECT_EQ(pool.Take(), kNoBlock);
  EXPECT_EQ(pool.FindViolation(), "");
}

TEST(BlockPool, EvictsByLastUse) {
  BlockPool pool(3);
  const BlockId a = pool.Take(), b = pool.Take(), c = pool.Take();
  for (const BlockId id : {a, b, c}) pool.Keep(id);
  for (const BlockId id : {a, b, c}) pool.Unref(id);
  pool.Ref(a);  // used again: now the newest
  pool.Unref(a);
  EXPECT_EQ(pool.EvictOldest(), b);
  EXPECT_EQ(pool.EvictOldest(), c);
  EXPECT_EQ(pool.EvictOldest(), a);
  EXPECT_EQ(pool.num_free(), 3);
}

TEST(BlockPool, ForgottenWhileHeldIsFreedByTheLastHolder) {
  BlockPool pool(1);
  const BlockId id = pool.Take();
  pool.Keep(id);
  pool.Ref(id);
  pool.Forget(id);
  pool.Unref(id);
  EXPECT_EQ(pool.num_held(), 1);
  pool.Unref(id);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPool, AgreesWithAPlainModel) {
  std::mt19937 random(7);
  constexpr int kCapacity = 9;
  BlockPool pool(kCapacity);
  std::map<BlockId, int> refs;  // held
  std::map<BlockId, bool> kept;
  std::deque<BlockId> cached;  // oldest first
  for (int step = 0; step < 200000; ++step) {
    const auto id = static_cast<BlockId>(random() % kCapacity);
    const bool held = refs.count(id) != 0;
    const auto at = std::find(cached.begin(), cached.end(), id);
    switch (random() % 6) {
      case 0:
        if (const BlockId taken = pool.Take(); taken != kNoBlock) {
          ASSERT_EQ(refs.count(taken), 0u);
          refs[taken] = 1;
          kept[taken] = false;
        } else {
          ASSERT_EQ(refs.size() + cached.size(), size_t{kCapacity});
        }
        break;
      case 1:
        if (!held && at == cached.end()) break;
        pool.Ref(id);
        if (!held) cached.erase(at);
        ++refs[id];
        break;
      case 2:
      case 3:
        if (!held) break;
        pool.Unref(id);
        if (--refs[id] == 0) {
          refs.erase(id);
          if (kept[id]) cached.push_back(id);
        }
        break;
      case 4:
        if (!held) break;
        random() % 3 ? (pool.Keep(id), kept[id] = true) : (pool.Forget(id), kept[id] = false);
        break;
      case 5:
        if (random() % 4) break;
        ASSERT_EQ(pool.EvictOldest(), cached.empty() ? kNoBlock : cached.front());
        if (!cached.empty()) cached.pop_front();
        break;
    }
    ASSERT_EQ(pool.num_held(), static_cast<int>(refs.size()));
    ASSERT_EQ(pool.num_cached(), static_cast<int>(cached.size()));
    if (step % 64 == 0) {
      ASSERT_EQ(pool.FindViolation(), "") << "step " << step;
    }
    for (const auto& [block, count] : refs) ASSERT_EQ(pool.refs(block), count);
  }
}

}  // namespace
}  // namespace deepinfer::kv
