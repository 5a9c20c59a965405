// SPDX-License-Identifier: Apache-2.0
// Ids of whole parts of prompts that come again with each turn: system prompts, tool lists, earlier messages.
// Bounded in bytes, least recently used out first; one instance serves all threads. A hit is compared by text, so a
// collision of hashes cannot give wrong ids.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/status.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

class SegmentCache {
 public:
  struct Stats {
    size_t hits = 0;
    size_t misses = 0;
    size_t segments = 0;
    size_t bytes = 0;  // of texts, ids and bookkeeping; never over bytes_max
  };

  // Texts under `text_bytes_min` are not kept: encoding them costs no more than looking them up.
  SegmentCache(std::shared_ptr<const Tokenizer> tokenizer, size_t bytes_max, size_t text_bytes_min = 256);

  // Appends what tokenizer.AppendEncoded(text, options, ids) does, from memory where it can.
  Status AppendEncoded(std::string_view text, const EncodeOptions& options, std::vector<TokenId>* ids);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  Stats GetStats() const;

 private:
  struct Segment {
    std::string text;
    bool added_tokens;
    std::vector<TokenId> ids;
  };
  // Segments are shared so that a hit is copied out after the lock is given back.
  using SegmentPtr = std::shared_ptr<const Segment>;
  using List = std::list<SegmentPtr>;
  struct Key {
    std::string_view text;  // of the segment itself, or of a look-up
    bool added_tokens;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return std::hash<std::string_view>()(key.text) * 2 + key.added_tokens; }
  };

  SegmentPtr Find(const Key& key);
  void Insert(SegmentPtr segment);
  static size_t Bytes(const Segment& segment);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const size_t bytes_max_;
  const size_t text_bytes_min_;

  mutable std::mutex mutex_;
  List recent_;  // guarded by mutex_, as all below; the most recently used first
  std::unordered_map<Key, List::iterator, KeyHash> by_text_;
  Stats stats_;
};

}  // namespace deepinfer
