// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/piece_encoder.h"

#include <algorithm>
#include <array>

namespace deepinfer {
namespace {

// Pieces are looked up in groups, so that the cache lines of a group are fetched together.
constexpr size_t kGroup = 64;

// Workspaces (of about 5 MB) that are kept for later calls; with more calls at once some start with empty caches.
constexpr size_t kIdleMax = 64;

}  // namespace

struct PieceEncoder::Workspace {
  PieceCache cache;
  BpeScratch bpe;
  std::vector<uint32_t> ends;
  std::vector<TokenId> ids;  // of the group at hand, num_ids of them
};

PieceEncoder::PieceEncoder(const TokenizerSpec& spec, std::unique_ptr<PreTokenizer> pre_tokenizer)
    : pre_tokenizer_(std::move(pre_tokenizer)), bpe_(spec) {}

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
  const std::vector<uint32_t>& ends = workspace->ends;
  PieceCache& cache = workspace->cache;
  std::vector<TokenId>& out = workspace->ids;
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
        cache.Prefetch(lookup.hash);
      }
      start = end;
    }
    out.clear();
    for (size_t i = 0; i < count; ++i) {
      const Lookup& lookup = lookups[i];
      const std::string_view piece = text.substr(lookup.begin, lookup.size);
      if (lookup.size > ShortPiece::kSizeMax) {
        AppendLong(piece, workspace);
      } else if (const PieceCache::ShortEntry* known = cache.FindShort(lookup.piece, lookup.hash)) [[likely]] {
        out.insert(out.end(), known->ids, known->ids + known->num_ids);
      } else {
        AppendUnknown(piece, workspace);
      }
    }
    ids->insert(ids->end(), out.begin(), out.end());
  }
}

// A short piece that is not in the cache of short ones.
void PieceEncoder::AppendUnknown(std::string_view piece, Workspace* workspace) const {
  std::vector<TokenId>& out = workspace->ids;
  const uint64_t long_hash = PieceCache::HashLong(piece);
  const std::span<const TokenId> known = workspace->cache.FindLong(piece, long_hash);
  if (!known.empty()) {
    out.insert(out.end(), known.begin(), known.end());
    return;
  }
  const size_t old_size = out.size();
  bpe_.Encode(piece, &workspace->bpe, &out);
  const std::span<const TokenId> ids = std::span(out).subspan(old_size);
  if (ids.size() <= PieceCache::kShortIds) {
    const ShortPiece key = ShortPiece::Of(piece.data(), piece.size(), piece.size());
    workspace->cache.InsertShort(key, key.Hash(), ids);
  } else {
    workspace->cache.InsertLong(piece, long_hash, ids);
  }
}

void PieceEncoder::AppendLong(std::string_view piece, Workspace* workspace) const {
  std::vector<TokenId>& out = workspace->ids;
  const uint64_t hash = PieceCache::HashLong(piece);
  const std::span<const TokenId> known = workspace->cache.FindLong(piece, hash);
  if (!known.empty()) {
    out.insert(out.end(), known.begin(), known.end());
    return;
  }
  const size_t old_size = out.size();
  bpe_.Encode(piece, &workspace->bpe, &out);
  workspace->cache.InsertLong(piece, hash, std::span(out).subspan(old_size));
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
