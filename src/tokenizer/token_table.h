// SPDX-License-Identifier: Apache-2.0
// Pieces that the merges turn into one token, which most pieces of most texts are: one look-up in place of a BPE run.
// Immutable after construction; threads share it.
#pragma once

#include <cstdint>

#include "tokenizer/bpe.h"
#include "tokenizer/huge_pages.h"
#include "tokenizer/piece_cache.h"
#include "tokenizer/tokenizer_json.h"

namespace deepinfer {

class TokenTable {
 public:
  static constexpr size_t kPieceMax = 11;  // bytes; what fits four entries to a cache line

  TokenTable(const TokenizerSpec& spec, const BpeModel& bpe);

  void Prefetch(uint64_t hash) const { __builtin_prefetch(&buckets_[hash & mask_]); }
  // -1 where the piece is not known: it may still be one token, for a full bucket leaves some out.
  // REQUIRES: the piece has at most kPieceMax bytes, hash is its Hash().
  TokenId Find(const ShortPiece& piece, uint64_t hash) const {
    const Bucket& bucket = buckets_[hash & mask_];
    const uint32_t high = High(piece);
    const Entry* entries = bucket.entries;
    const auto matches = [&](size_t i) { return entries[i].low == piece.low && entries[i].high == high; };
    TokenId id = matches(0) ? entries[0].id : -1;
    id = matches(1) ? entries[1].id : id;
    id = matches(2) ? entries[2].id : id;
    id = matches(3) ? entries[3].id : id;
    return id;
  }

 private:
  static constexpr size_t kBucketSize = 4;
  struct Entry {
    uint64_t low = 0;
    uint32_t high = 0;  // bytes 8 to 10, and the length; 0: empty
    TokenId id = -1;
  };
  struct alignas(64) Bucket {
    Entry entries[kBucketSize];
  };

  static uint32_t High(const ShortPiece& piece) {
    return static_cast<uint32_t>(piece.high & 0xFFFFFF) | static_cast<uint32_t>(piece.high >> 32 & 0xFF000000);
  }

  uint64_t mask_ = 0;
  HugePageVector<Bucket> buckets_;
};

}  // namespace deepinfer
