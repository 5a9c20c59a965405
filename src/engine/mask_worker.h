// SPDX-License-Identifier: Apache-2.0
// Threads that compute the masks of constrained requests beside the forward pass. A slow mask holds up its own request:
// works that were slow lately (mask_work.h) have a thread of their own, at low priority, for which no step waits; and of the
// threads for the others there are two, so that the first slow mask of a request leaves one.
// Used by one thread at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/choice.h"
#include "engine/mask_work.h"

namespace deepinfer::engine {

class MaskWorker {
 public:
  using Clock = std::chrono::steady_clock;

  MaskWorker() = default;
  ~MaskWorker();

  // Prepares the masks of the work's items, then drops the items and ends work->busy. Returns at once; threads are started
  // by the first calls. REQUIRES: the work is not busy.
  void Start(const std::shared_ptr<MaskWork>& work);
  // Returns when the work is not busy.
  void Wait(const MaskWork& work);
  // Returns when no work is left that was not slow lately, or at the deadline.
  void WaitForQuick(Clock::time_point deadline);
  // Works done so far; WaitForMore returns when they are more than `done`, or at the deadline.
  uint64_t done();
  void WaitForMore(uint64_t done, Clock::time_point deadline);
  // For tests: each work takes so much longer. REQUIRES: nothing was started yet.
  void set_delay(std::chrono::microseconds delay) { delay_ = delay; }

 private:
  struct Queue {
    size_t threads_max = 1;
    bool low_priority = false;
    std::deque<std::shared_ptr<MaskWork>> waiting;
    size_t left = 0;  // not done
    std::condition_variable wakes;
    std::vector<std::thread> threads;
  };
  void Loop(Queue* queue);

  std::mutex mutex_;
  std::condition_variable ready_;
  Queue quick_{.threads_max = 2}, slow_{.low_priority = true};
  std::chrono::microseconds delay_{0};
  uint64_t done_ = 0;
  bool stop_ = false;
};

}  // namespace deepinfer::engine
