// SPDX-License-Identifier: Apache-2.0
// A fixed set of equally large pieces of cache memory, by number: blocks of global KV, or pages of window KV. The pool
// knows who is free, who is held (and how many times), and who is held by nobody but still worth finding ("cached", in
// order of last use). Where the bytes lie is the engine's business: id i is piece i of its buffers.
//
//            Take              Unref (last)                  Ref
//   free  ---------->  held  ----------------->  cached  ---------->  held
//     ^                  |        if Keep            |
//     +------------------+                           |
//     |   Unref (last)                               |
//     +----------------------------------------------+   EvictOldest
//
// Every operation is O(1) and allocates nothing after construction. Not thread-safe: one owner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace deepinfer::kv {

// Tokens per block of the global cache and per window page. Every compress ratio divides it.
inline constexpr int32_t kBlockTokens = 128;

using BlockId = int32_t;
inline constexpr BlockId kNoBlock = -1;

class BlockPool {
 public:
  // REQUIRES: capacity >= 0.
  explicit BlockPool(int32_t capacity);

  // A free piece, now held once; kNoBlock where none is free (the caller may EvictOldest first).
  BlockId Take();
  // One more holder of a held or cached piece.
  void Ref(BlockId id);
  // One holder less. After the last one the piece is cached if it was marked by Keep, else free.
  void Unref(BlockId id);
  // Marks a held piece as worth finding after its last holder is gone; Forget takes that back (a cached one is freed).
  void Keep(BlockId id);
  void Forget(BlockId id);
  // Frees the piece that has been cached for longest, and says which; kNoBlock where nothing is cached.
  BlockId EvictOldest();

  int32_t capacity() const { return static_cast<int32_t>(refs_.size()); }
  int32_t num_free() const { return num_free_; }
  int32_t num_cached() const { return num_cached_; }
  int32_t num_held() const { return capacity() - num_free_ - num_cached_; }
  // What Take could hand out, with evictions.
  int32_t num_available() const { return num_free_ + num_cached_; }
  int32_t refs(BlockId id) const { return refs_[static_cast<size_t>(id)]; }
  bool kept(BlockId id) const { return kept_[static_cast<size_t>(id)] != 0; }

  // For tests, O(capacity): "" or what is wrong with the lists and counts.
  std::string FindViolation() const;

 private:
  enum class List : uint8_t { kNone, kFree, kCached };

  void Link(List list, BlockId id);  // at the new end
  void Unlink(BlockId id);
  size_t Head(List list) const { return refs_.size() + static_cast<size_t>(list) - 1; }

  // Both lists are rings through a head node behind the pieces: next_ of the head is the oldest.
  std::vector<int32_t> refs_;
  std::vector<uint8_t> kept_;
  std::vector<List> list_;
  std::vector<BlockId> next_, prev_;
  int32_t num_free_ = 0;
  int32_t num_cached_ = 0;
};

}  // namespace deepinfer::kv
