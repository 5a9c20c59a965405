// SPDX-License-Identifier: Apache-2.0
// Hash-consing helpers: a flat map from 64-bit keys to 32-bit values, and a pool of interned integer lists.
// What is interned once is compared by id ever after. Not thread-safe; owned by one engine.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace deepinfer::grammar {

inline uint64_t MixHash(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  return x;
}

// Open addressing, linear probing, no erase. Keys are arbitrary but for kNoKey.
class FlatMap {
 public:
  static constexpr uint64_t kNoKey = UINT64_MAX;

  FlatMap() : slots_(64) {}

  const uint32_t* Find(uint64_t key) const {
    for (size_t i = MixHash(key) & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == kNoKey) return nullptr;
    }
  }

  // REQUIRES: the key is not there yet, and not kNoKey.
  void Insert(uint64_t key, uint32_t value) {
    if ((size_ + 1) * 2 > slots_.size()) Grow();
    Place(key, value);
    ++size_;
  }

  size_t size() const { return size_; }
  size_t bytes() const { return slots_.size() * sizeof(Slot); }

 private:
  struct Slot {
    uint64_t key = kNoKey;
    uint32_t value = 0;
  };
  void Place(uint64_t key, uint32_t value) {
    size_t i = MixHash(key) & (slots_.size() - 1);
    while (slots_[i].key != kNoKey) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = {key, value};
  }
  void Grow() {
    std::vector<Slot> slots(slots_.size() * 2);
    slots.swap(slots_);
    for (const Slot& slot : slots) {
      if (slot.key != kNoKey) Place(slot.key, slot.value);
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

// Interned lists of 32-bit words; list 0 is the empty list. Spans stay valid until the next Intern.
class ListPool {
 public:
  ListPool() : index_(64, 0) { Intern({}); }

  uint32_t Intern(std::span<const uint32_t> list) {
    uint64_t hash = 0x9e3779b97f4a7c15ULL + list.size();
    for (uint32_t word : list) {
      hash = (hash ^ word) * 0xd6e8feb86659fd93ULL;
      hash ^= hash >> 29;
    }
    hash = MixHash(hash);
    const uint32_t tag = static_cast<uint32_t>(hash >> 32);
    size_t i = hash & (index_.size() - 1);
    for (; index_[i] != 0; i = (i + 1) & (index_.size() - 1)) {
      const Entry& entry = entries_[index_[i] - 1];
      if (entry.tag == tag && entry.size == list.size() &&
          (list.empty() || std::memcmp(&words_[entry.begin], list.data(), list.size_bytes()) == 0)) {
        return index_[i] - 1;
      }
    }
    const uint32_t id = static_cast<uint32_t>(entries_.size());
    entries_.push_back({static_cast<uint32_t>(words_.size()), static_cast<uint32_t>(list.size()), tag, hash});
    // The list may be a span of this very pool, so its storage must not move while it is read.
    if (words_.size() + list.size() > words_.capacity()) {
      const std::vector<uint32_t> copy(list.begin(), list.end());
      words_.insert(words_.end(), copy.begin(), copy.end());
    } else {
      for (size_t k = 0; k < list.size(); ++k) words_.push_back(list[k]);
    }
    index_[i] = id + 1;
    if (entries_.size() * 2 > index_.size()) Rehash();
    return id;
  }

  std::span<const uint32_t> operator[](uint32_t id) const {
    const Entry& entry = entries_[id];
    return {words_.data() + entry.begin, entry.size};
  }
  size_t size() const { return entries_.size(); }
  size_t bytes() const { return words_.capacity() * 4 + entries_.capacity() * sizeof(Entry) + index_.size() * 4; }

 private:
  struct Entry {
    uint32_t begin, size, tag;
    uint64_t hash;
  };
  void Rehash() {
    index_.assign(index_.size() * 2, 0);
    for (uint32_t id = 0; id < entries_.size(); ++id) {
      size_t i = entries_[id].hash & (index_.size() - 1);
      while (index_[i] != 0) i = (i + 1) & (index_.size() - 1);
      index_[i] = id + 1;
    }
  }

  std::vector<uint32_t> words_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> index_;
};

}  // namespace deepinfer::grammar
