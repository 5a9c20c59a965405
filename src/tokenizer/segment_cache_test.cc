// SPDX-License-Identifier: Apache-2.0
// The segment cache gives the ids of its tokenizer, with and without added tokens, stays within its bytes, drops the
// least recently used segment first, and serves several threads.
#include "tokenizer/segment_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

namespace deepinfer {
namespace {

std::shared_ptr<const Tokenizer> Bundled() {
  static const std::shared_ptr<const Tokenizer> tokenizer =
      *Tokenizer::Load(DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json");
  return tokenizer;
}

std::vector<TokenId> Encode(SegmentCache& cache, std::string_view text, bool added_tokens) {
  std::vector<TokenId> ids = {-1};
  EXPECT_TRUE(cache.AppendEncoded(text, {.added_tokens = added_tokens}, &ids).ok());
  EXPECT_EQ(ids[0], -1);
  ids.erase(ids.begin());
  return ids;
}

TEST(SegmentCache, HitsEqualTheTokenizer) {
  SegmentCache cache(Bundled(), 1 << 20, 0);
  const std::string text = "<｜User｜>Once upon a time<think>";
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(Encode(cache, text, true), *Bundled()->Encode(text));
    EXPECT_EQ(Encode(cache, text, false), *Bundled()->EncodePlain(text));
    EXPECT_TRUE(Encode(cache, "", true).empty());
  }
  EXPECT_EQ(cache.GetStats().hits, 3u);
  EXPECT_EQ(cache.GetStats().misses, 3u);
}

TEST(SegmentCache, DropsTheLeastRecentlyUsed) {
  const std::string a(1000, 'a'), b(1000, 'b'), c(1000, 'c');
  SegmentCache large(Bundled(), 1 << 20);
  for (const std::string& text : {a, b, c}) Encode(large, text, false);
  // One byte short of what all three take.
  SegmentCache cache(Bundled(), large.GetStats().bytes - 1);
  Encode(cache, a, false);
  Encode(cache, b, false);
  Encode(cache, a, false);  // b is the oldest now
  Encode(cache, c, false);
  EXPECT_EQ(cache.GetStats().segments, 2u);
  EXPECT_EQ(cache.GetStats().hits, 1u);
  Encode(cache, a, false);
  EXPECT_EQ(cache.GetStats().hits, 2u);
  Encode(cache, b, false);
  EXPECT_EQ(cache.GetStats().hits, 2u);
}

TEST(SegmentCache, StaysWithinItsBytes) {
  constexpr size_t kBytesMax = 40'000;
  SegmentCache cache(Bundled(), kBytesMax, 0);
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    const std::string text(random() % 3000, static_cast<char>('a' + random() % 20));
    EXPECT_EQ(Encode(cache, text, false), *Bundled()->EncodePlain(text));
    EXPECT_LE(cache.GetStats().bytes, kBytesMax);
  }
  EXPECT_GT(cache.GetStats().segments, 2u);
  // Larger than the cache: encoded, not kept.
  const std::string large(50'000, 'x');
  const size_t segments = cache.GetStats().segments;
  EXPECT_EQ(Encode(cache, large, false), *Bundled()->EncodePlain(large));
  EXPECT_EQ(cache.GetStats().segments, segments);
}

TEST(SegmentCache, ManyCallersAtOnce) {
  SegmentCache cache(Bundled(), 8'000, 0);
  std::vector<std::string> texts;
  for (int i = 0; i < 20; ++i) texts.push_back("segment " + std::string(i * 40, static_cast<char>('a' + i)));
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      std::mt19937 random(caller);
      for (int i = 0; i < 300; ++i) {
        const std::string& text = texts[random() % texts.size()];
        EXPECT_EQ(Encode(cache, text, false), *Bundled()->EncodePlain(text));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_GT(cache.GetStats().hits, 0u);
}

}  // namespace
}  // namespace deepinfer
