// SPDX-License-Identifier: Apache-2.0
// Responses that clients may come back to: to read, cancel and delete them, and to go on from them.
//
// Each belongs to the key that made it; for all others it does not exist. Bounded by number, bytes and age: the oldest go
// first. What a later response needs of an earlier one (its items) is shared with it and counts until the last user is gone,
// so memory stays within `bytes_max` whatever is deleted in between. Nothing survives a restart.
// Thread-safe. No call waits for anything but the mutex; callbacks run outside of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace deepinfer::server {

struct ResponseStoreLimits {
  size_t count_max = 10'000;  // 0: nothing is stored
  size_t bytes_max = size_t{256} << 20;
  int64_t lifetime_seconds = 24 * 3600;
};

// Pieces of a conversation: items as JSON, comma between them, without the brackets.
using ConversationItems = std::vector<std::shared_ptr<const std::string>>;

class ResponseStore {
 public:
  using BodyFn = std::function<void(const std::string& body)>;

  explicit ResponseStore(const ResponseStoreLimits& limits) : limits_(limits), bytes_(std::make_shared<std::atomic<size_t>>(0)) {}

  struct NewResponse {
    std::string id;
    std::string owner;
    std::string body;              // while it is in progress
    ConversationItems earlier;     // of the response that it continues
    std::string input_items;       // its own, a JSON array
    std::function<void()> cancel;  // ends it soon; it calls Finish
  };
  void Begin(NewResponse response, int64_t now_seconds);
  // The end of one that is in progress; `output_items` is a JSON array. Nothing happens where it has been dropped meanwhile,
  // but those who wait for its end hear of it.
  void Finish(const std::string& id, std::string body, const std::string& output_items);

  std::optional<std::string> Body(const std::string& id, const std::string& owner, int64_t now_seconds);
  // Its own input, a JSON array.
  std::optional<std::string> InputItems(const std::string& id, const std::string& owner, int64_t now_seconds);
  // All items up to and with its output; nothing also while it is in progress.
  std::optional<ConversationItems> Items(const std::string& id, const std::string& owner, int64_t now_seconds);
  // False: there is no such response. One in progress is cancelled.
  bool Delete(const std::string& id, const std::string& owner, int64_t now_seconds);
  // Cancels it if it is in progress; `then` hears the body at its end, at once where it has ended. False: there is none.
  bool Cancel(const std::string& id, const std::string& owner, int64_t now_seconds, BodyFn then);

  size_t count() const;
  size_t bytes() const;

 private:
  struct Entry {
    std::string owner;
    int64_t expires_at = 0;
    bool in_progress = true;
    std::shared_ptr<const std::string> body;
    ConversationItems items;
    size_t own_input = 0;  // index in items
    std::function<void()> cancel;
    std::list<std::string>::iterator age;
    size_t cost = 0;  // bytes beside the pieces
  };
  using Entries = std::unordered_map<std::string, Entry>;

  std::shared_ptr<const std::string> Counted(std::string text);
  Entry* Find(const std::string& id, const std::string& owner, int64_t now_seconds);
  void Erase(Entries::iterator it);
  void DropOld(int64_t now_seconds);

  const ResponseStoreLimits limits_;
  const std::shared_ptr<std::atomic<size_t>> bytes_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::list<std::string> by_age_;  // ids, the oldest first
  size_t entry_bytes_ = 0;         // sum of costs
  std::unordered_map<std::string, std::vector<BodyFn>> waiters_;
};

// Pieces as one JSON array.
std::string JoinItems(const ConversationItems& items);

}  // namespace deepinfer::server
