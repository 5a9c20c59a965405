// SPDX-License-Identifier: Apache-2.0
// Property: the index answers as a std::map of names would, through any sequence of announcements, publications,
// withdrawals and evictions; chains lose their tail first.
#include "kv/prefix/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace deepinfer::kv {
namespace {

// Few distinct homes, so that probe runs are long and wrap around.
BlockName Name(uint32_t i) {
  BlockName name;
  name.bytes[0] = static_cast<uint8_t>(i % 3 * 15);
  name.bytes[8] = static_cast<uint8_t>(i);
  return name;
}

TEST(PrefixIndex, AnnouncedThenPublishedThenCachedThenEvicted) {
  BlockPool pool(1);
  PrefixIndex index(&pool);
  BlockId evicted;
  const BlockId id = index.TakeBlock(&evicted);
  EXPECT_TRUE(index.Announce(Name(1), id, 42));
  EXPECT_FALSE(index.Find(Name(1)).ready);
  EXPECT_EQ(index.Find(Name(1)).owner, 42u);
  EXPECT_TRUE(index.Publish(Name(1), id));
  EXPECT_TRUE(index.Find(Name(1)).ready);
  EXPECT_EQ(index.TakeBlock(&evicted), kNoBlock);  // held
  pool.Unref(id);
  EXPECT_EQ(index.Find(Name(1)).block, id);
  EXPECT_EQ(index.TakeBlock(&evicted), id);
  EXPECT_EQ(evicted, id);
  EXPECT_EQ(index.Find(Name(1)).block, kNoBlock);
  EXPECT_EQ(index.FindViolation(), "");
}

TEST(PrefixIndex, SecondOwnerOfANameStaysPrivate) {
  BlockPool pool(2);
  PrefixIndex index(&pool);
  const BlockId a = pool.Take(), b = pool.Take();
  EXPECT_TRUE(index.Announce(Name(1), a, 1));
  EXPECT_FALSE(index.Announce(Name(1), b, 2));
  EXPECT_TRUE(index.Publish(Name(1), a));
  EXPECT_FALSE(index.Publish(Name(1), b));
  pool.Unref(b);
  EXPECT_EQ(pool.num_free(), 1);  // nobody would find it: not cached
}

TEST(PrefixIndex, WhoeverIsReadyFirstTakesTheName) {
  BlockPool pool(2);
  PrefixIndex index(&pool);
  const BlockId a = pool.Take(), b = pool.Take();
  EXPECT_TRUE(index.Announce(Name(1), a, 1));
  EXPECT_TRUE(index.Publish(Name(1), b));
  EXPECT_EQ(index.Find(Name(1)).block, b);
  EXPECT_FALSE(index.Publish(Name(1), a));
  EXPECT_EQ(index.FindViolation(), "");
}

TEST(PrefixIndex, ChainsAreEvictedFromTheirTail) {
  BlockPool pool(4);
  PrefixIndex index(&pool);
  BlockId evicted, chain[4];
  for (uint32_t i = 0; i < 4; ++i) {
    chain[i] = index.TakeBlock(&evicted);
    index.Publish(Name(i), chain[i]);
  }
  for (int i = 3; i >= 0; --i) pool.Unref(chain[i]);  // last one first, as the index asks
  pool.Ref(chain[0]);                                 // a request uses the first two again
  pool.Ref(chain[1]);
  pool.Unref(chain[1]);
  pool.Unref(chain[0]);
  for (const int expected : {3, 2, 1, 0}) {
    const BlockId taken = index.TakeBlock(&evicted);
    EXPECT_EQ(taken, chain[expected]);
  }
}

TEST(PrefixIndex, AgreesWithAMap) {
  struct Entry {
    BlockId block;
    bool ready;
  };
  std::mt19937 random(3);
  constexpr int kCapacity = 24;
  BlockPool pool(kCapacity);
  PrefixIndex index(&pool);
  std::map<uint32_t, Entry> model;
  std::vector<BlockId> held;
  const auto drop = [&](BlockId id) { std::erase_if(model, [&](const auto& e) { return e.second.block == id; }); };
  for (int step = 0; step < 100000; ++step) {
    const uint32_t name = random() % 60;
    const BlockId id = held.empty() ? kNoBlock : held[random() % held.size()];
    const auto at = model.find(name);
    switch (random() % 6) {
      case 0:
      case 1: {
        BlockId evicted;
        const BlockId taken = index.TakeBlock(&evicted);
        if (evicted != kNoBlock) drop(evicted);
        if (taken != kNoBlock) held.push_back(taken);
        break;
      }
      case 2:
        if (id == kNoBlock || index.IsNamed(id)) break;
        ASSERT_EQ(index.Announce(Name(name), id, name), at == model.end());
        if (at == model.end()) model[name] = {id, false};
        break;
      case 3:
        if (id == kNoBlock || (index.IsNamed(id) && (at == model.end() || at->second.block != id))) break;
        if (at != model.end() && at->second.block != id && at->second.ready) {
          ASSERT_FALSE(index.Publish(Name(name), id));
        } else {
          ASSERT_TRUE(index.Publish(Name(name), id));
          model[name] = {id, true};
        }
        break;
      case 4:
        if (id == kNoBlock) break;
        index.Withdraw(id);
        drop(id);
        break;
      case 5:
        if (id == kNoBlock) break;
        if (!index.IsReady(id)) index.Withdraw(id), drop(id);
        pool.Unref(id);
        held.erase(std::find(held.begin(), held.end(), id));
        break;
    }
    const PrefixIndex::Found found = index.Find(Name(name));
    const auto now = model.find(name);
    ASSERT_EQ(found.block, now == model.end() ? kNoBlock : now->second.block) << "step " << step;
    if (now != model.end()) {
      ASSERT_EQ(found.ready, now->second.ready);
    }
    if (step % 50 == 0) {
      ASSERT_EQ(index.FindViolation() + pool.FindViolation(), "") << "step " << step;
    }
  }
}

}  // namespace
}  // namespace deepinfer::kv
