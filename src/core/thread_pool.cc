// SPDX-License-Identifier: Apache-2.0
#include "core/thread_pool.h"

#include <algorithm>

#include "core/check.h"

namespace deepinfer {
namespace {

// Rounds of spinning before a thread sleeps: some ten microseconds, longer than the gap between two kernels.
constexpr int kSpinRounds = 4000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  DI_CHECK(num_threads >= 1);
  threads_.reserve(static_cast<size_t>(num_threads - 1));
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { Work(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(FunctionRef<void(int)> task) {
  if (threads_.empty()) return task(0);
  const std::lock_guard lock(mutex_);
  task_ = &task;
  pending_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1);
  generation_.notify_all();
  task(0);
  for (int round = 0; pending_.load(std::memory_order_acquire) != 0; ++round) {
    if (round < kSpinRounds) {
      Pause();
    } else if (const int left = pending_.load(std::memory_order_acquire); left != 0) {
      pending_.wait(left);
    }
  }
}

void ThreadPool::For(int64_t n, int64_t grain, FunctionRef<void(int, int64_t, int64_t)> task) {
  const int64_t grains = (n + grain - 1) / grain;
  const int64_t parts = std::min<int64_t>(size(), grains);
  if (parts <= 0) return;
  if (parts == 1) return task(0, 0, n);
  Run([&](int thread) {
    if (thread >= parts) return;
    const int64_t begin = grains * thread / parts * grain;
    const int64_t end = std::min(n, grains * (thread + 1) / parts * grain);
    if (begin < end) task(thread, begin, end);
  });
}

void ThreadPool::Work(int thread) {
  uint32_t seen = 0;
  while (true) {
    uint32_t now = generation_.load(std::memory_order_acquire);
    for (int round = 0; now == seen && round < kSpinRounds; ++round) {
      Pause();
      now = generation_.load(std::memory_order_acquire);
    }
    if (now == seen) {
      generation_.wait(seen);
      continue;
    }
    seen = now;
    if (stop_) return;
    (*task_)(thread);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

}  // namespace deepinfer
