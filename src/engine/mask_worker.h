// SPDX-License-Identifier: Apache-2.0
// A thread that computes the masks of constrained requests while the forward pass runs. Used by one thread at a time.
#pragma once

#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/choice.h"

namespace deepinfer::engine {

class MaskWorker {
 public:
  MaskWorker() = default;
  ~MaskWorker();

  struct Work {
    Choice* choice;
    std::span<const int32_t> drafts;  // as Choice::PrepareMasks
  };
  // Prepares the masks of these choices, which nobody else may touch until Wait() has returned. Returns at once; the
  // thread is started by the first call with any. REQUIRES: Wait() was called since the last Start().
  void Start(std::span<const Work> work);
  // Returns when all are prepared.
  void Wait();

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable wakes_, done_;
  std::vector<Work> work_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace deepinfer::engine
