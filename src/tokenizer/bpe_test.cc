// SPDX-License-Identifier: Apache-2.0
// BPE of short pieces (by mask) and long ones (by heap) gives what the definition gives, carried out step by step, for
// random rule sets, among them ones whose ranks do not grow with the tokens; and the time of a long piece grows about
// with its length.
#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>

namespace deepinfer {
namespace {

// A vocabulary over few letters with random merges of tokens that are there already, in random order of rank.
TokenizerSpec RandomSpec(std::mt19937& random, int letters, int merges, bool shuffled) {
  TokenizerSpec spec;
  spec.byte_ids.fill(-1);
  std::map<std::string, TokenId> ids;
  const auto define = [&](const std::string& token) {
    const auto [it, is_new] = ids.emplace(token, static_cast<TokenId>(spec.bytes.size()));
    if (is_new) {
      spec.vocabulary.push_back(it->second);
      spec.bytes.push_back(token);
      spec.spellings.push_back(token);
    }
    return it->second;
  };
  for (int i = 0; i < letters; ++i) spec.byte_ids['a' + i] = define(std::string(1, static_cast<char>('a' + i)));
  for (int i = 0; i < merges; ++i) {
    const TokenId left = static_cast<TokenId>(random() % spec.bytes.size());
    const TokenId right = static_cast<TokenId>(random() % spec.bytes.size());
    if (spec.bytes[left].size() + spec.bytes[right].size() > 40) continue;
    spec.merges.push_back({left, right, define(spec.bytes[left] + spec.bytes[right])});
  }
  if (shuffled) std::shuffle(spec.merges.begin(), spec.merges.end(), random);
  return spec;
}

std::vector<TokenId> ByDefinition(const TokenizerSpec& spec, const std::string& piece) {
  std::map<std::pair<TokenId, TokenId>, size_t> ranks;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    ranks[{spec.merges[rank].left, spec.merges[rank].right}] = rank;
  }
  std::vector<TokenId> ids;
  for (const char c : piece) {
    if (const TokenId id = spec.byte_ids[static_cast<uint8_t>(c)]; id >= 0) ids.push_back(id);
  }
  while (true) {
    size_t best = SIZE_MAX;
    size_t at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = ranks.find({ids[i], ids[i + 1]});
      if (it != ranks.end() && it->second < best) {
        best = it->second;
        at = i;
      }
    }
    if (best == SIZE_MAX) return ids;
    ids[at] = spec.merges[best].merged;
    ids.erase(ids.begin() + at + 1);
  }
}

TEST(Bpe, EqualsTheDefinition) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int letters = 1 + static_cast<int>(random() % 5);
    const TokenizerSpec spec = RandomSpec(random, letters, static_cast<int>(random() % 60), round % 2 == 0);
    const BpeModel bpe(spec);
    BpeScratch scratch;
    for (int i = 0; i < 40; ++i) {
      std::string piece;
      const size_t size = i < 30 ? random() % 70 : random() % 300;
      // One letter more than the vocabulary has.
      while (piece.size() < size) piece += static_cast<char>('a' + random() % (letters + (i % 4 == 0)));
      std::vector<TokenId> ids = {-7};
      bpe.Encode(piece, &scratch, &ids);
      std::vector<TokenId> expected = ByDefinition(spec, piece);
      expected.insert(expected.begin(), -7);
      ASSERT_EQ(ids, expected) << piece;
    }
  }
}

TEST(Bpe, LongPiecesAreNotQuadratic) {
  std::mt19937 random(2);
  const TokenizerSpec spec = RandomSpec(random, 3, 200, false);
  const BpeModel bpe(spec);
  BpeScratch scratch;
  const auto seconds = [&](size_t size) {
    std::string piece;
    while (piece.size() < size) piece += static_cast<char>('a' + random() % 3);
    std::vector<TokenId> ids;
    const auto start = std::chrono::steady_clock::now();
    bpe.Encode(piece, &scratch, &ids);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  seconds(100'000);
  const double small = std::min(seconds(20'000), seconds(20'000));
  // 50 times as long: 2,500 times would be quadratic.
  EXPECT_LT(seconds(1'000'000), small * 400);
}

}  // namespace
}  // namespace deepinfer
