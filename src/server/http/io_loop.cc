// SPDX-License-Identifier: Apache-2.0
#include "server/http/io_loop.h"

#include <boost/asio/post.hpp>
#include <chrono>
#include <ctime>

#include "server/http/connection.h"
#include "server/http/exchange_impl.h"

namespace deepinfer::server {
namespace {

namespace asio = boost::asio;

// Deadlines are looked at this often, so they are kept to within it.
constexpr std::chrono::milliseconds kTick{200};
// Answers sent before other events get their turn.
constexpr size_t kExchangesPerTurn = 256;

}  // namespace

int64_t SteadyMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

IoLoop::IoLoop() : context_(1), tick_(context_) {}

IoLoop::~IoLoop() { Stop(); }

void IoLoop::Start() {
  Tick();
  thread_ = std::thread([this] {
    // Handlers' exceptions are caught where they are called; what arrives here is want of memory for the loop itself.
    for (;;) {
      try {
        context_.run();
        return;
      } catch (const std::exception&) {
        continue;
      }
    }
  });
}

void IoLoop::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  // Without connections and tick the loop has no work left and ends by itself: no coroutine is left behind.
  asio::post(context_, [this] {
    ticking_ = false;
    tick_.cancel();
    CloseAll();
  });
  thread_.join();
  const std::lock_guard lock(mutex_);
  ready_.clear();
  taken_.clear();
}

void IoLoop::Schedule(std::shared_ptr<Exchange> exchange) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    ready_.push_back(std::move(exchange));
    if (woken_) return;
    woken_ = true;
  }
  asio::post(context_, [this] { DrainReady(); });
}

void IoLoop::DrainReady() {
  if (taken_done_ == taken_.size()) {
    taken_.clear();
    taken_done_ = 0;
    const std::lock_guard lock(mutex_);
    taken_.swap(ready_);
    woken_ = !taken_.empty();
    if (!woken_) return;
  }
  const size_t end = std::min(taken_.size(), taken_done_ + kExchangesPerTurn);
  for (; taken_done_ < end; ++taken_done_) {
    const std::shared_ptr<Exchange> exchange = std::move(taken_[taken_done_]);
    try {
      exchange->FlushOnIo();
    } catch (const std::exception&) {  // want of memory: the answer is lost, the others are not
    }
  }
  // Even with an empty list: what was scheduled meanwhile did not post.
  asio::post(context_, [this] { DrainReady(); });
}

void IoLoop::Add(const std::shared_ptr<Connection>& connection) {
  connection->set_index(connections_.size());
  connections_.push_back(connection);
  connections_count_.store(connections_.size(), std::memory_order_relaxed);
}

void IoLoop::Remove(Connection* connection) {
  const size_t index = connection->index();
  const std::shared_ptr<Connection> keep = std::move(connections_[index]);
  if (index + 1 != connections_.size()) {
    connections_[index] = std::move(connections_.back());
    connections_[index]->set_index(index);
  }
  connections_.pop_back();
  connections_count_.store(connections_.size(), std::memory_order_relaxed);
}

void IoLoop::BeginDrain() {
  draining_ = true;
  const std::vector<std::shared_ptr<Connection>> all = connections_;
  for (const auto& connection : all) connection->OnDrain();
}

void IoLoop::CloseAll() {
  const std::vector<std::shared_ptr<Connection>> all = connections_;
  for (const auto& connection : all) connection->Close();
}

void IoLoop::ArmTick() {
  tick_.expires_after(kTick);
  tick_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Tick();
  });
}

void IoLoop::Tick() {
  if (ticking_) ArmTick();
  const std::time_t now = std::time(nullptr);
  if (now != http_date_second_) {
    http_date_second_ = now;
    std::tm utc{};
    gmtime_r(&now, &utc);
    char text[64];
    std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &utc);
    http_date_ = text;
  }
  now_ms_ = SteadyMs();
  // From the back: a connection that closes is replaced by one that was looked at.
  for (size_t i = connections_.size(); i-- > 0;) {
    if (i < connections_.size()) connections_[i]->OnTick();
  }
}

}  // namespace deepinfer::server
