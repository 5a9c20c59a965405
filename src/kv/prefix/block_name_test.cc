// SPDX-License-Identifier: Apache-2.0
// Property: a name is the SHA-256 chain that the header states (recomputed here byte by byte through EVP), and it
// changes with everything a block's content depends on and with nothing else.
#include "kv/prefix/block_name.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <numeric>
#include <set>
#include <string>

namespace deepinfer::kv {
namespace {

std::string Sha256(const std::string& bytes) {
  unsigned char digest[32];
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr);
  return {reinterpret_cast<char*>(digest), size};
}

std::string Uint64(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

std::string Field(const std::string& text) { return Uint64(text.size()) + text; }

std::string Bytes(const BlockName& name) { return {reinterpret_cast<const char*>(name.bytes.data()), 32}; }

std::vector<int32_t> Ids(size_t n, int32_t first = 1) {
  std::vector<int32_t> ids(n);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

ImageSpan Image(int64_t begin, int64_t end, uint8_t key) {
  ImageSpan image;
  image.begin = begin;
  image.end = end;
  image.key.fill(key);
  image.grid_height = 3;
  image.grid_width = 4;
  return image;
}

TEST(BlockName, IsTheChainOfTheHeader) {
  std::vector<int32_t> ids = Ids(300, kTokenIdMax - 299);
  const std::vector<ImageSpan> images = {Image(100, 130, 9)};
  const PromptNames names = NamePrompt(BlockNamer("model", "cpu/avx512", "salt"), ids, images);
  ASSERT_EQ(names.chain.size(), 2u);
  std::string chain = Sha256(Field("deepinfer block names 1") + Field("model") + Field("cpu/avx512") + Field("salt"));
  for (size_t block = 0; block < 2; ++block) {
    std::string message = chain;
    for (size_t i = 0; i < 128; ++i) {
      const auto id = static_cast<uint32_t>(ids[block * 128 + i]);
      for (int byte = 0; byte < 3; ++byte) message.push_back(static_cast<char>(id >> (8 * byte)));
    }
    message += std::string(32, 9) + Uint64(3) + Uint64(4) + Uint64(block * 128 - 100) + Uint64(30);
    chain = Sha256(message);
    EXPECT_EQ(Bytes(names.chain[block]), chain) << "block " << block;
  }
}

TEST(BlockName, ChangesWithAllThatContentDependsOn) {
  const std::vector<int32_t> ids = Ids(256);
  std::set<std::string> last;
  const auto add = [&](const BlockNamer& namer, std::vector<int32_t> tokens, std::vector<ImageSpan> images) {
    const BlockName name = NamePrompt(namer, tokens, images).chain.at(1);
    EXPECT_TRUE(last.insert(Bytes(name)).second);
    EXPECT_TRUE(last.insert(Bytes(NameOf(name, BlockClass::kReplayed))).second);
  };
  const BlockNamer namer("m", "n", "s");
  add(namer, ids, {});
  add(BlockNamer("M", "n", "s"), ids, {});
  add(BlockNamer("m", "N", "s"), ids, {});
  add(BlockNamer("m", "n", "S"), ids, {});
  add(BlockNamer("mn", "", "s"), ids, {});  // fields do not run into each other
  std::vector<int32_t> other = ids;
  other[0] += 1 << 16;  // the first token of the prompt, third byte
  add(namer, other, {});
  add(namer, ids, {Image(120, 140, 1)});
  add(namer, ids, {Image(120, 140, 2)});
  add(namer, ids, {Image(121, 140, 1)});
  add(namer, ids, {Image(120, 141, 1)});
  ImageSpan image = Image(120, 140, 1);
  image.grid_width = 5;
  add(namer, ids, {image});
  add(namer, ids, {Image(10, 20, 1)});  // in the block before: inherited through the chain
}

TEST(BlockName, DependsOnNothingBehindTheBlock) {
  std::vector<int32_t> ids = Ids(300);
  const BlockNamer namer("m", "n", "");
  const PromptNames a = NamePrompt(namer, ids, {});
  ids[256] = 77;
  const std::vector<ImageSpan> later = {Image(256, 290, 1)};
  const PromptNames b = NamePrompt(namer, ids, later);
  EXPECT_EQ(a.chain, b.chain);
  EXPECT_EQ(NamePrompt(namer, std::span(ids).first(127), {}).chain.size(), 0u);
}

TEST(BlockName, NamerGoesOnBehindThePrompt) {
  const std::vector<int32_t> ids = Ids(512);
  PromptNames half = NamePrompt(BlockNamer("m", "n", ""), std::span(ids).first(300), {});
  ASSERT_EQ(half.namer.blocks(), 2);
  const BlockName third = half.namer.Next(std::span(ids).subspan(256).first<128>(), {});
  EXPECT_EQ(third, NamePrompt(BlockNamer("m", "n", ""), ids, {}).chain[2]);
}

TEST(BlockNameDeathTest, RefusesIdsThatDoNotFit) {
  std::vector<int32_t> ids = Ids(128);
  ids[5] = kTokenIdMax + 1;
  EXPECT_DEATH(NamePrompt(BlockNamer("m", "n", ""), ids, {}), "check failed");
  ids[5] = -1;
  EXPECT_DEATH(NamePrompt(BlockNamer("m", "n", ""), ids, {}), "check failed");
}

}  // namespace
}  // namespace deepinfer::kv
