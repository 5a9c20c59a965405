// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/segment_cache.h"

namespace deepinfer {
namespace {

// Nodes of the list and of the map with their heap blocks, roughly.
constexpr size_t kBookkeepingBytes = 256;

}  // namespace

SegmentCache::SegmentCache(std::shared_ptr<const Tokenizer> tokenizer, size_t bytes_max, size_t text_bytes_min)
    : tokenizer_(std::move(tokenizer)), bytes_max_(bytes_max), text_bytes_min_(text_bytes_min) {
  DI_CHECK(tokenizer_ != nullptr);
}

Status SegmentCache::AppendEncoded(std::string_view text, const EncodeOptions& options, std::vector<TokenId>* ids) {
  if (text.size() < text_bytes_min_) return tokenizer_->AppendEncoded(text, options, ids);
  if (const SegmentPtr known = Find({text, options.added_tokens}); known != nullptr) {
    ids->insert(ids->end(), known->ids.begin(), known->ids.end());
    return Status();
  }
  const size_t old_size = ids->size();
  DI_RETURN_IF_ERROR(tokenizer_->AppendEncoded(text, options, ids));
  Segment segment{std::string(text), options.added_tokens, {ids->begin() + old_size, ids->end()}};
  if (Bytes(segment) <= bytes_max_) Insert(std::make_shared<const Segment>(std::move(segment)));
  return Status();
}

SegmentCache::SegmentPtr SegmentCache::Find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto it = by_text_.find(key);
  if (it == by_text_.end()) {
    ++stats_.misses;
    return nullptr;
  }
  ++stats_.hits;
  recent_.splice(recent_.begin(), recent_, it->second);
  return *it->second;
}

void SegmentCache::Insert(SegmentPtr segment) {
  const std::lock_guard lock(mutex_);
  const Key key{segment->text, segment->added_tokens};
  if (by_text_.contains(key)) return;  // another thread was here meanwhile
  stats_.bytes += Bytes(*segment);
  while (stats_.bytes > bytes_max_) {
    const Segment& oldest = *recent_.back();
    stats_.bytes -= Bytes(oldest);
    by_text_.erase({oldest.text, oldest.added_tokens});
    recent_.pop_back();
  }
  recent_.push_front(std::move(segment));
  by_text_.emplace(key, recent_.begin());
}

size_t SegmentCache::Bytes(const Segment& segment) {
  return segment.text.size() + segment.ids.size() * sizeof(TokenId) + kBookkeepingBytes;
}

SegmentCache::Stats SegmentCache::GetStats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.segments = recent_.size();
  return stats;
}

}  // namespace deepinfer
