// SPDX-License-Identifier: Apache-2.0
#include "engine/mask_worker.h"

#include "core/check.h"

namespace deepinfer::engine {

MaskWorker::~MaskWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wakes_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void MaskWorker::Start(std::span<const Work> work) {
  if (work.empty()) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  {
    const std::lock_guard lock(mutex_);
    DI_CHECK(!busy_);
    work_.assign(work.begin(), work.end());
    busy_ = true;
  }
  wakes_.notify_one();
}

void MaskWorker::Wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return !busy_; });
}

void MaskWorker::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    wakes_.wait(lock, [this] { return stop_ || busy_; });
    if (stop_) return;
    lock.unlock();
    for (const Work& work : work_) work.choice->PrepareMasks(work.drafts);
    lock.lock();
    busy_ = false;
    done_.notify_one();
  }
}

}  // namespace deepinfer::engine
