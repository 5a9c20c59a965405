// SPDX-License-Identifier: Apache-2.0
// Remembers the ids of pieces that were encoded before: text repeats its words. Bounded to 12 MB, and a hit is
// always compared by text, so a collision of hashes costs time and never gives wrong ids. Not shared between threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "tokenizer/huge_pages.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// Both halves of the product: every bit of the words reaches every bit of the result.
inline uint64_t MixWords(uint64_t a, uint64_t b) {
  __extension__ using Product = unsigned __int128;
  const Product product = static_cast<Product>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// A piece of at most kSizeMax bytes as two words, its length in the last byte.
struct ShortPiece {
  static constexpr size_t kSizeMax = 15;

  // REQUIRES: 1 <= size <= kSizeMax. `readable` bytes may be read at `text`, at least `size`.
  static ShortPiece Of(const char* text, size_t size, size_t readable) {
    ShortPiece piece;
    if (readable >= 16) [[likely]] {
      std::memcpy(&piece, text, 16);
      piece.low &= kMasks[size % 16].low;
      piece.high &= kMasks[size % 16].high;
    } else {
      std::memcpy(&piece, text, size);
    }
    piece.high |= uint64_t{size} << 56;
    return piece;
  }

  size_t size() const { return high >> 56; }
  uint64_t Hash() const { return MixWords(low ^ 0x9E3779B97F4A7C15u, high ^ 0xD6E8FEB86659FD93u); }
  bool operator==(const ShortPiece&) const = default;

  uint64_t low = 0;
  uint64_t high = 0;

 private:
  struct Mask {
    uint64_t low = 0;
    uint64_t high = 0;
  };
  static constexpr std::array<Mask, kSizeMax + 1> MakeMasks() {
    std::array<Mask, kSizeMax + 1> masks;
    for (size_t size = 1; size <= kSizeMax; ++size) {
      masks[size].low = size >= 8 ? ~uint64_t{0} : (uint64_t{1} << size * 8) - 1;
      masks[size].high = size > 8 ? (uint64_t{1} << (size - 8) * 8) - 1 : 0;
    }
    return masks;
  }
  static const std::array<Mask, kSizeMax + 1> kMasks;
};
static_assert(sizeof(ShortPiece) == 16);
inline constexpr std::array<ShortPiece::Mask, ShortPiece::kSizeMax + 1> ShortPiece::kMasks = ShortPiece::MakeMasks();

class PieceCache {
 public:
  // Ids that a short piece may have to be kept; longer ones are kept as long pieces are.
  static constexpr size_t kShortIds = 3;
  struct ShortEntry {
    ShortPiece piece;  // high == 0: empty
    TokenId ids[kShortIds] = {};
    uint32_t num_ids = 0;
  };
  static_assert(sizeof(ShortEntry) == 32);

  PieceCache();

  void Prefetch(uint64_t hash) const { __builtin_prefetch(&short_[ShortSet(hash)]); }
  // nullptr where it is not known.
  const ShortEntry* FindShort(const ShortPiece& piece, uint64_t hash) const {
    const ShortEntry* set = &short_[ShortSet(hash)];
    if (set[0].piece == piece) [[likely]] return &set[0];
    return set[1].piece == piece ? &set[1] : nullptr;
  }
  // REQUIRES: ids.size() <= kShortIds.
  void InsertShort(const ShortPiece& piece, uint64_t hash, std::span<const TokenId> ids);

  void PrefetchLong(uint64_t hash) const { __builtin_prefetch(&long_[hash & (kLongSlots - 1)]); }
  static uint64_t HashLong(std::string_view piece);
  // Empty where it is not known.
  std::span<const TokenId> FindLong(std::string_view piece, uint64_t hash) const;
  void InsertLong(std::string_view piece, uint64_t hash, std::span<const TokenId> ids);

 private:
  static constexpr size_t kShortSets = size_t{1} << 15;  // of two entries: one cache line
  static constexpr size_t kLongSlots = size_t{1} << 17;
  static constexpr size_t kLongBytes = size_t{6} << 20;
  static constexpr size_t kLongPieceMax = 512;  // a page of one class would push out everything else

  struct LongEntry {
    uint64_t hash = 0;
    uint32_t offset = 0;
    uint16_t text_bytes = 0;  // 0: empty
    uint16_t num_ids = 0;
  };

  static size_t ShortSet(uint64_t hash) { return (hash & (kShortSets - 1)) * 2; }
  // Where the piece is, or the empty slot for it.
  size_t LongSlot(std::string_view piece, uint64_t hash) const;

  HugePageVector<ShortEntry> short_;
  HugePageVector<LongEntry> long_;  // open addressing
  // Ids and texts of the long entries. When it is full, or half the slots are, all of them are forgotten.
  HugePageVector<char> arena_;
  size_t arena_used_ = 0;
  size_t num_long_ = 0;
};

}  // namespace deepinfer
