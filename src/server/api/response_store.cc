// SPDX-License-Identifier: Apache-2.0
#include "server/api/response_store.h"

#include <utility>

namespace deepinfer::server {
namespace {

constexpr size_t kEntryBytes = 512;  // of an entry beside its texts
constexpr size_t kPieceBytes = 96;   // of a piece beside its text

std::string WithoutBrackets(const std::string& array) {
  return array.size() >= 2 ? array.substr(1, array.size() - 2) : std::string();
}

}  // namespace

std::string JoinItems(const ConversationItems& items) {
  size_t size = 2;
  for (const auto& piece : items) size += piece->size() + 1;
  std::string all;
  all.reserve(size);
  all += '[';
  for (const auto& piece : items) {
    if (piece->empty()) continue;
    if (all.size() > 1) all += ',';
    all += *piece;
  }
  return all += ']';
}

// A text whose bytes count until its last user lets go.
std::shared_ptr<const std::string> ResponseStore::Counted(std::string text) {
  const size_t size = text.size() + kPieceBytes;
  *bytes_ += size;
  return {new std::string(std::move(text)), [bytes = bytes_, size](const std::string* p) {
            *bytes -= size;
            delete p;
          }};
}

void ResponseStore::DropOld(int64_t now_seconds) {
  while (!by_age_.empty()) {
    const auto it = entries_.find(by_age_.front());
    const bool full = entries_.size() > limits_.count_max || *bytes_ + entry_bytes_ > limits_.bytes_max;
    if (!full && it->second.expires_at > now_seconds) return;
    Erase(it);
  }
}

void ResponseStore::Erase(Entries::iterator it) {
  entry_bytes_ -= it->second.cost;
  by_age_.erase(it->second.age);
  entries_.erase(it);
}

ResponseStore::Entry* ResponseStore::Find(const std::string& id, const std::string& owner, int64_t now_seconds) {
  DropOld(now_seconds);
  const auto it = entries_.find(id);
  if (it == entries_.end() || it->second.owner != owner || it->second.expires_at <= now_seconds) return nullptr;
  return &it->second;
}

void ResponseStore::Begin(NewResponse response, int64_t now_seconds) {
  const std::lock_guard lock(mutex_);
  Entry entry{.owner = std::move(response.owner),
              .expires_at = now_seconds + limits_.lifetime_seconds,
              .body = Counted(std::move(response.body)),
              .items = std::move(response.earlier),
              .cancel = std::move(response.cancel)};
  entry.own_input = entry.items.size();
  entry.items.push_back(Counted(WithoutBrackets(response.input_items)));
  entry.age = by_age_.insert(by_age_.end(), response.id);
  // The output comes later as one more piece.
  entry.cost = kEntryBytes + response.id.size() + (entry.items.size() + 1) * sizeof(entry.items[0]);
  entry_bytes_ += entry.cost;
  entries_.emplace(std::move(response.id), std::move(entry));
  DropOld(now_seconds);
}

void ResponseStore::Finish(const std::string& id, std::string body, const std::string& output_items) {
  std::vector<BodyFn> waiters;
  std::shared_ptr<const std::string> text;
  {
    const std::lock_guard lock(mutex_);
    text = Counted(std::move(body));
    if (const auto it = entries_.find(id); it != entries_.end() && it->second.in_progress) {
      Entry& entry = it->second;
      entry.in_progress = false;
      entry.cancel = nullptr;
      entry.body = text;
      entry.items.push_back(Counted(WithoutBrackets(output_items)));
      DropOld(entry.expires_at - limits_.lifetime_seconds);
    }
    if (const auto it = waiters_.find(id); it != waiters_.end()) {
      waiters = std::move(it->second);
      waiters_.erase(it);
    }
  }
  for (const BodyFn& waiter : waiters) waiter(*text);
}

std::optional<std::string> ResponseStore::Body(const std::string& id, const std::string& owner, int64_t now_seconds) {
  const std::lock_guard lock(mutex_);
  const Entry* entry = Find(id, owner, now_seconds);
  return entry == nullptr ? std::nullopt : std::optional(*entry->body);
}

std::optional<std::string> ResponseStore::InputItems(const std::string& id, const std::string& owner, int64_t now_seconds) {
  const std::lock_guard lock(mutex_);
  const Entry* entry = Find(id, owner, now_seconds);
  return entry == nullptr ? std::nullopt : std::optional('[' + *entry->items[entry->own_input] + ']');
}

std::optional<ConversationItems> ResponseStore::Items(const std::string& id, const std::string& owner, int64_t now_seconds) {
  const std::lock_guard lock(mutex_);
  const Entry* entry = Find(id, owner, now_seconds);
  return entry == nullptr || entry->in_progress ? std::nullopt : std::optional(entry->items);
}

bool ResponseStore::Delete(const std::string& id, const std::string& owner, int64_t now_seconds) {
  std::function<void()> cancel;
  {
    const std::lock_guard lock(mutex_);
    Entry* entry = Find(id, owner, now_seconds);
    if (entry == nullptr) return false;
    cancel = std::move(entry->cancel);
    Erase(entries_.find(id));
  }
  if (cancel) cancel();
  return true;
}

bool ResponseStore::Cancel(const std::string& id, const std::string& owner, int64_t now_seconds, BodyFn then) {
  std::function<void()> cancel;
  std::shared_ptr<const std::string> body;
  {
    const std::lock_guard lock(mutex_);
    const Entry* entry = Find(id, owner, now_seconds);
    if (entry == nullptr) return false;
    if (entry->in_progress) {
      cancel = entry->cancel;
      waiters_[id].push_back(std::move(then));
    } else {
      body = entry->body;
    }
  }
  if (cancel) cancel();
  if (body != nullptr) then(*body);
  return true;
}

size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return *bytes_ + entry_bytes_;
}

size_t ResponseStore::count() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace deepinfer::server
