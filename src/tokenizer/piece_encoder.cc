// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/piece_encoder.h"

#include <algorithm>
#include <array>

namespace deepinfer {
namespace {

// Pieces are looked up in groups, so that the cache lines of a group are fetched together.
constexpr size_t kGroup = 64;

// Workspaces (of at most 12 MB) that are kept for later calls; with more calls at once some start with empty caches.
constexpr size_t kIdleMax = 16;

}  // namespace

struct PieceEncoder::Workspace {
  PieceCache cache;
  BpeScratch bpe;
  std::vector<uint32_t> ends;
};

PieceEncoder::PieceEncoder(const TokenizerSpec& spec, std::unique_ptr<PreTokenizer> pre_tokenizer)
    : pre_tokenizer_(std::move(pre_tokenizer)), bpe_(spec), tokens_(spec, bpe_) {}

PieceEncoder::~PieceEncoder() = default;

Status PieceEncoder::Append(std::string_view text, std::vector<TokenId>* ids) const {
  std::unique_ptr<Workspace> workspace = Borrow();
  Status status;
  size_t position = 0;
  while (position < text.size()) {
    const size_t start = position;
    workspace->ends.clear();
    status = pre_tokenizer_->Split(text, &position, &workspace->ends);
    if (!status.ok()) break;
    AppendPieces(text, start, workspace.get(), ids);
  }
  GiveBack(std::move(workspace));
  return status;
}

// The pieces of `text` that begin at `start` and end at workspace->ends.
void PieceEncoder::AppendPieces(std::string_view text, size_t start, Workspace* workspace,
                                std::vector<TokenId>* ids) const {
  struct Lookup {
    uint32_t begin;
    uint32_t size;
    uint64_t hash;
    ShortPiece piece;
  };
  std::array<Lookup, kGroup> lookups;
  // Short pieces' ids, with room for a whole entry behind the last; copying all of an entry saves a branch.
  std::array<TokenId, kGroup * PieceCache::kShortIds + 1> buffer;
  const std::vector<uint32_t>& ends = workspace->ends;
  PieceCache& cache = workspace->cache;
  for (size_t first = 0; first < ends.size(); first += kGroup) {
    const size_t count = std::min(kGroup, ends.size() - first);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t end = ends[first + i];
      Lookup& lookup = lookups[i];
      lookup.begin = static_cast<uint32_t>(start);
      lookup.size = end - lookup.begin;
      if (lookup.size <= ShortPiece::kSizeMax) [[likely]] {
        lookup.piece = ShortPiece::Of(text.data() + start, lookup.size, text.size() - start);
        lookup.hash = lookup.piece.Hash();
        tokens_.Prefetch(lookup.hash);
        cache.Prefetch(lookup.hash);
      } else {
        lookup.hash = PieceCache::HashLong(text.substr(start, lookup.size));
        cache.PrefetchLong(lookup.hash);
      }
      start = end;
    }
    TokenId* out = buffer.data();
    for (size_t i = 0; i < count; ++i) {
      const Lookup& lookup = lookups[i];
      if (lookup.size <= TokenTable::kPieceMax) {
        const TokenId id = tokens_.Find(lookup.piece, lookup.hash);
        if (id >= 0) [[likely]] {
          *out++ = id;
          continue;
        }
      }
      if (lookup.size <= ShortPiece::kSizeMax) {
        const PieceCache::ShortEntry* known = cache.FindShort(lookup.piece, lookup.hash);
        if (known != nullptr) [[likely]] {
          std::memcpy(out, known->ids, sizeof(known->ids));
          out += known->num_ids;
          continue;
        }
      }
      ids->insert(ids->end(), buffer.data(), out);
      out = buffer.data();
      const std::string_view piece = text.substr(lookup.begin, lookup.size);
      const uint64_t hash = lookup.size > ShortPiece::kSizeMax ? lookup.hash : PieceCache::HashLong(piece);
      AppendSlowly(piece, hash, workspace, ids);
    }
    ids->insert(ids->end(), buffer.data(), out);
  }
}

// A piece that is neither one token nor in the cache of short pieces. `hash`: its HashLong().
void PieceEncoder::AppendSlowly(std::string_view piece, uint64_t hash, Workspace* workspace,
                                std::vector<TokenId>* ids) const {
  PieceCache& cache = workspace->cache;
  const std::span<const TokenId> known = cache.FindLong(piece, hash);
  if (!known.empty()) {
    ids->insert(ids->end(), known.begin(), known.end());
    return;
  }
  const size_t old_size = ids->size();
  bpe_.Encode(piece, &workspace->bpe, ids);
  const std::span<const TokenId> fresh = std::span(*ids).subspan(old_size);
  if (piece.size() <= ShortPiece::kSizeMax && fresh.size() <= PieceCache::kShortIds) {
    const ShortPiece key = ShortPiece::Of(piece.data(), piece.size(), piece.size());
    cache.InsertShort(key, key.Hash(), fresh);
  } else {
    cache.InsertLong(piece, hash, fresh);
  }
}

std::unique_ptr<PieceEncoder::Workspace> PieceEncoder::Borrow() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Workspace> workspace = std::move(idle_.back());
      idle_.pop_back();
      return workspace;
    }
  }
  return std::make_unique<Workspace>();
}

void PieceEncoder::GiveBack(std::unique_ptr<Workspace> workspace) const {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleMax) idle_.push_back(std::move(workspace));
}

}  // namespace deepinfer
