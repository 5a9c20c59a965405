// SPDX-License-Identifier: Apache-2.0
// One io thread with its connections. A connection lives on one loop for life, so its state needs no lock.
// Engine and worker threads reach a loop through Schedule alone: answers with something to send are put on a list, and
// the loop is woken only if the list was empty. So the tokens of one engine step for a thousand streams cost one
// wake-up, and what piles up for a stream while the loop is busy goes out in one write.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace deepinfer::server {

class Connection;
class Exchange;

// Milliseconds of the steady clock.
int64_t SteadyMs();

class IoLoop : public std::enable_shared_from_this<IoLoop> {
 public:
  IoLoop();
  ~IoLoop();
  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;

  void Start();
  // Closes all connections and ends the thread. Idempotent; not from the loop's own thread.
  void Stop();

  boost::asio::io_context& context() { return context_; }

  // Any thread: `exchange` has something for its connection. Ignored after Stop.
  void Schedule(std::shared_ptr<Exchange> exchange);

  // ----- on the io thread -----
  void Add(const std::shared_ptr<Connection>& connection);
  void Remove(Connection* connection);
  // No further requests: idle connections are closed, others when their answer is sent.
  void BeginDrain();
  bool draining() const { return draining_; }
  void CloseAll();
  // "Sun, 06 Nov 1994 08:49:37 GMT", at most a second old.
  const std::string& HttpDate() const { return http_date_; }
  // The time as of the last tick (SteadyMs without asking the clock).
  int64_t now_ms() const { return now_ms_; }

  // Any thread.
  size_t connections() const { return connections_count_.load(std::memory_order_relaxed); }

 private:
  void DrainReady();
  void ArmTick();
  void Tick();

  boost::asio::io_context context_;
  boost::asio::steady_timer tick_;
  std::thread thread_;
  std::string http_date_;
  int64_t http_date_second_ = 0;
  int64_t now_ms_ = 0;
  bool draining_ = false;
  bool ticking_ = true;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::atomic<size_t> connections_count_{0};

  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> ready_;  // guarded
  bool woken_ = false;                            // guarded: DrainReady is on its way
  bool stopped_ = false;                          // guarded
  std::vector<std::shared_ptr<Exchange>> taken_;  // the io thread's share of ready_
  size_t taken_done_ = 0;
};

}  // namespace deepinfer::server
