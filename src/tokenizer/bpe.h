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

#include "tokenizer/tokenizer_json.h"

namespace deepinfer {

// Working memory of BpeModel::Encode, kept between calls. Not shared between threads.
struct BpeScratch {
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
  struct Rule {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = kNoRank;
    TokenId merged = -1;
  };

  const Rule& Find(TokenId left, TokenId right) const;
  void AddRule(uint64_t pair, uint32_t rank, TokenId merged);
  void MergeByScan(BpeScratch* scratch) const;
  void MergeByHeap(BpeScratch* scratch) const;

  std::array<TokenId, 256> byte_ids_;
  // Open addressing, at most half full; the last entry of a probe sequence is an empty one.
  std::vector<Rule> rules_;
  unsigned shift_ = 0;
  // Only with ignore_merges: pieces that are entries.
  std::unordered_map<std::string, TokenId> whole_pieces_;
};

}  // namespace deepinfer
