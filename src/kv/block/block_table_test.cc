// SPDX-License-Identifier: Apache-2.0
// Property: a position is found at the address that the kernels' cache views state, while a row grows at its end and
// slides at its front.
#include "kv/block/block_table.h"

#include <gtest/gtest.h>

#include <deque>

namespace deepinfer::kv {
namespace {

TEST(BlockTable, RowsAreIndependentAndFlat) {
  BlockTable table(3, 4);
  for (BlockId id = 0; id < 4; ++id) table.Append(1, 10 + id);
  table.Append(2, 7);
  EXPECT_EQ(table.ids(0).size(), 0u);
  EXPECT_EQ(table.data()[1 * 4 + 3], 13);
  EXPECT_EQ(table.data()[2 * 4], 7);
  EXPECT_EQ(table.PopBack(1), 13);
  EXPECT_EQ(table.end(1), 3);
}

TEST(BlockTable, SlidingRowKeepsTheAddressRule) {
  BlockTable table(2, 5);
  table.Start(1, 40);
  std::deque<BlockId> pages;
  BlockId next = 100;
  for (int step = 0; step < 200; ++step) {
    table.Append(1, next);
    pages.push_back(next++);
    if (pages.size() == 5 || step % 3 == 0) {
      ASSERT_EQ(table.PopFront(1), pages.front());
      pages.pop_front();
    }
    const int64_t first = table.end(1) - static_cast<int64_t>(pages.size());
    ASSERT_EQ(table.first(1), first);
    ASSERT_EQ(table.first_entries()[1], first);
    for (size_t i = 0; i < pages.size(); ++i) {
      const int64_t position = (first + static_cast<int64_t>(i)) * kBlockTokens + 5;
      ASSERT_EQ(table.data()[1 * 5 + position / kBlockTokens - table.first(1)], pages[i]);
      ASSERT_EQ(table.at(1, position / kBlockTokens), pages[i]);
    }
    ASSERT_FALSE(table.Has(1, first - 1));
    ASSERT_FALSE(table.Has(1, table.end(1)));
  }
}

TEST(BlockTableDeathTest, RefusesToOverflowARow) {
  BlockTable table(1, 1);
  table.Append(0, 1);
  EXPECT_DEATH(table.Append(0, 2), "check failed");
}

}  // namespace
}  // namespace deepinfer::kv
