// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one piece: of all neighbouring pairs that have a merge rule the one with the lowest rank is
// joined, the leftmost of equals, until none is left. O(n log n) in the piece's length.
// Immutable after construction; threads share it, each with its own BpeScratch.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/huge_pages.h"
#include "tokenizer/tokenizer_json.h"

namespace deepinfer {

// Working memory of BpeModel::Encode, kept between calls. Not shared between threads.
struct BpeScratch {
  // Of short pieces, by position of the first byte.
  static constexpr size_t kShortMax = 64;
  alignas(64) std::array<int32_t, kShortMax> keys;
  std::array<TokenId, kShortMax> short_ids;
  // Of long ones.
  std::vector<TokenId> ids;
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> next;
  std::vector<uint32_t> previous;
  std::vector<uint64_t> heap;
};

class BpeModel {
 public:
  explicit BpeModel(const TokenizerSpec& spec);

  // Appends the ids of `piece`. Bytes without a token are left out, and their neighbours are neighbours then.
  void Encode(std::string_view piece, BpeScratch* scratch, std::vector<TokenId>* out) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  uint32_t Rank(TokenId left, TokenId right) const;
  void AddRule(TokenId left, TokenId right, uint32_t rank);
  void EncodeShort(std::string_view piece, BpeScratch* scratch, std::vector<TokenId>* out) const;
  void EncodeLong(std::string_view piece, BpeScratch* scratch, std::vector<TokenId>* out) const;
  void MergeByHeap(BpeScratch* scratch) const;

  std::array<TokenId, 256> byte_ids_;
  // Ranks of pairs of bytes [left * 256 + right], by which every piece begins.
  std::vector<uint32_t> byte_pair_ranks_;
  // Rules as left id | right id | rank (20, 20 and 24 bits), kEmpty where there is none: open addressing, at most
  // half full. So small because a look-up's cost is its cache miss.
  HugePageVector<uint64_t> rules_;
  unsigned shift_ = 0;
  // By id: whether any rule has it on its left or right. Most tokens are in none, and this table stays in the cache.
  std::vector<uint8_t> operands_;
  std::vector<TokenId> merged_;  // by rank
  // Only with ignore_merges: pieces that are entries.
  std::unordered_map<std::string, TokenId> whole_pieces_;
};

}  // namespace deepinfer
