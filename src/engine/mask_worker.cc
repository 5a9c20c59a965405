// SPDX-License-Identifier: Apache-2.0
#include "engine/mask_worker.h"

#include <algorithm>

#include "core/check.h"
#include "core/low_priority.h"

namespace deepinfer::engine {

MaskWorker::~MaskWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  for (Queue* queue : {&quick_, &slow_}) {
    queue->wakes.notify_all();
    for (std::thread& thread : queue->threads) thread.join();
    // Their choices hold the works.
    for (const std::shared_ptr<MaskWork>& work : queue->waiting) work->items.clear();
  }
}

void MaskWorker::Start(const std::shared_ptr<MaskWork>& work) {
  Queue& queue = work->slow() ? slow_ : quick_;
  {
    const std::lock_guard lock(mutex_);
    DI_CHECK(!work->busy);
    work->busy = true;
    queue.waiting.push_back(work);
    ++queue.left;
    if (queue.threads.size() < std::min(queue.threads_max, queue.left)) queue.threads.emplace_back([this, &queue] { Loop(&queue); });
  }
  queue.wakes.notify_one();
}

void MaskWorker::Wait(const MaskWork& work) {
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [&] { return !work.busy; });
}

void MaskWorker::WaitForQuick(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  ready_.wait_until(lock, deadline, [&] { return quick_.left == 0; });
}

uint64_t MaskWorker::done() {
  const std::lock_guard lock(mutex_);
  return done_;
}

void MaskWorker::WaitForMore(uint64_t done, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  ready_.wait_until(lock, deadline, [&] { return done_ > done; });
}

void MaskWorker::Loop(Queue* queue) {
  if (queue->low_priority) LowerThreadPriority();
  std::unique_lock lock(mutex_);
  while (true) {
    queue->wakes.wait(lock, [&] { return stop_ || !queue->waiting.empty(); });
    if (stop_) return;
    const std::shared_ptr<MaskWork> work = std::move(queue->waiting.front());
    queue->waiting.pop_front();
    lock.unlock();
    if (delay_.count() > 0) std::this_thread::sleep_for(delay_);
    for (const MaskWork::Item& item : work->items) item.choice->PrepareMasks(item.drafts);
    work->items.clear();
    lock.lock();
    work->busy = false;
    --queue->left;
    ++done_;
    ready_.notify_all();
  }
}

}  // namespace deepinfer::engine
