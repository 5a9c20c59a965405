// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/piece_cache.h"

#include <algorithm>

namespace deepinfer {
PieceCache::PieceCache() : short_(kShortSets * 2), long_(kLongSlots), arena_(kLongBytes) {}

void PieceCache::InsertShort(const ShortPiece& piece, uint64_t hash, std::span<const TokenId> ids) {
  ShortEntry* set = &short_[ShortSet(hash)];
  if (set[1].num_ids != 0) {
    // Three that want one set would push each other out for ever: the last one moves to the long pieces.
    char bytes[16];
    std::memcpy(bytes, &set[1].piece, sizeof(bytes));
    const std::string_view text(bytes, set[1].piece.size());
    InsertLong(text, HashLong(text), std::span(set[1].ids, set[1].num_ids));
  }
  set[1] = set[0];
  set[0].piece = piece;
  std::ranges::copy(ids, set[0].ids);
  set[0].num_ids = static_cast<uint32_t>(ids.size());
}

uint64_t PieceCache::HashLong(std::string_view piece) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  uint64_t hash = piece.size();
  size_t i = 0;
  for (; i + 8 <= piece.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, piece.data() + i, 8);
    hash = MixWords(hash ^ word, kMultiplier);
  }
  uint64_t tail = 0;
  std::memcpy(&tail, piece.data() + i, piece.size() - i);
  return MixWords(hash ^ tail, kMultiplier);
}

size_t PieceCache::LongSlot(std::string_view piece, uint64_t hash) const {
  for (size_t slot = hash & (kLongSlots - 1);; slot = (slot + 1) & (kLongSlots - 1)) {
    const LongEntry& entry = long_[slot];
    if (entry.text_bytes == 0) return slot;
    if (entry.hash != hash || entry.text_bytes != piece.size()) continue;
    const char* text = arena_.data() + entry.offset + entry.num_ids * sizeof(TokenId);
    if (std::memcmp(text, piece.data(), piece.size()) == 0) return slot;
  }
}

std::span<const TokenId> PieceCache::FindLong(std::string_view piece, uint64_t hash) const {
  const LongEntry& entry = long_[LongSlot(piece, hash)];
  return {reinterpret_cast<const TokenId*>(arena_.data() + entry.offset), entry.num_ids};
}

void PieceCache::InsertLong(std::string_view piece, uint64_t hash, std::span<const TokenId> ids) {
  if (piece.size() > kLongPieceMax || ids.empty()) return;
  const size_t id_bytes = ids.size() * sizeof(TokenId);
  const size_t bytes = (id_bytes + piece.size() + 7) & ~size_t{7};
  if (arena_used_ + bytes > kLongBytes || num_long_ >= kLongSlots / 2) {
    std::ranges::fill(long_, LongEntry());
    arena_used_ = 0;
    num_long_ = 0;
  }
  char* place = arena_.data() + arena_used_;
  std::memcpy(place, ids.data(), id_bytes);
  std::memcpy(place + id_bytes, piece.data(), piece.size());
  LongEntry& entry = long_[LongSlot(piece, hash)];
  if (entry.text_bytes == 0) ++num_long_;
  entry = {hash, static_cast<uint32_t>(arena_used_), static_cast<uint16_t>(piece.size()),
           static_cast<uint16_t>(ids.size())};
  arena_used_ += bytes;
}

}  // namespace deepinfer
