// SPDX-License-Identifier: Apache-2.0
// Threads for handlers that take longer than an io thread may, behind a queue of stated length.
// TryPost from any thread. Jobs must not throw.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace deepinfer::server {

class WorkerPool {
 public:
  WorkerPool(int threads, size_t queue_max);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False: the queue is full, or the pool stopped; `job` is dropped.
  bool TryPost(std::function<void()> job);
  // Drops what waits, and joins. Idempotent.
  void Stop();
  size_t waiting() const;

 private:
  void Work();

  const size_t queue_max_;
  mutable std::mutex mutex_;
  std::condition_variable wakes_;
  std::deque<std::function<void()>> jobs_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace deepinfer::server
