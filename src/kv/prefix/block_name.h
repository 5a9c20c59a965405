// SPDX-License-Identifier: Apache-2.0
// Names of blocks: what a block's content is a function of, as a SHA-256 chain, so that equal names mean equal bytes
// and no crafted prompt can fetch another's cache.
//
//   root    = SHA-256(domain, model identity, numeric identity, salt), each with its length in front
//   chain_i = SHA-256(chain_{i-1}, the 128 token ids of block i, 3 bytes each, little-endian,
//                     for every image span that overlaps it: key, grid, first position of the block - begin of
//                     the span, length of the span)
//   name    = chain_i for pure blocks, its complement for replayed ones
//
// The class stands outside the chain, because a request with a replay may sit on blocks of either class.
// Cost: seven SHA-256 blocks a name, 3 ms for a million tokens with SHA extensions. A namer is a plain value: copy it,
// use one from one thread at a time; different ones are independent.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "kv/block/block_pool.h"

namespace deepinfer::kv {

// Ids are hashed as 3 bytes.
inline constexpr int32_t kTokenIdMax = (1 << 24) - 1;

struct BlockName {
  std::array<uint8_t, 32> bytes{};

  bool operator==(const BlockName&) const = default;
  // A digest is uniform: any 8 bytes of it are a hash.
  uint64_t Hash() const {
    uint64_t hash;
    std::memcpy(&hash, bytes.data(), sizeof(hash));
    return hash;
  }
};

// How the global rows of a block came about. Exact requests take pure blocks only.
enum class BlockClass : uint8_t {
  kPure,      // every row was computed with complete windows
  kReplayed,  // a bounded encoder-side replay lies below it
};

// `chain` as the name of a block of that class.
BlockName NameOf(const BlockName& chain, BlockClass block_class);

// Token positions [begin, end) that stand for an image.
struct ImageSpan {
  int64_t begin = 0;
  int64_t end = 0;
  std::array<uint8_t, 32> key{};  // digest of the pixels as the model sees them
  int32_t grid_height = 0;
  int32_t grid_width = 0;
};

class BlockNamer {
 public:
  // The identities are opaque bytes; both empty only in tests. `salt` separates callers that must not share.
  BlockNamer(std::string_view model_identity, std::string_view numeric_identity, std::string_view salt);

  // Chain value of the next block, the first call being for positions [0, 128). Spans that do not overlap the block
  // are ignored. REQUIRES: ids in 0 .. kTokenIdMax; spans ascending and without overlap.
  BlockName Next(std::span<const int32_t, kBlockTokens> ids, std::span<const ImageSpan> images);

  // Blocks named so far.
  int64_t blocks() const { return blocks_; }

 private:
  BlockName chain_;
  int64_t blocks_ = 0;
};

// The chain values of all whole blocks of a prompt, and the namer that goes on behind them.
struct PromptNames {
  BlockNamer namer{"", "", ""};
  std::vector<BlockName> chain;
};
// REQUIRES: ids in 0 .. kTokenIdMax; spans ascending and without overlap.
PromptNames NamePrompt(BlockNamer namer, std::span<const int32_t> ids, std::span<const ImageSpan> images);

}  // namespace deepinfer::kv
