// SPDX-License-Identifier: Apache-2.0
// How a slot is handed out: its claim holds the number of the last call that began it, and is raised to the current
// number by compare-and-swap. A worker that was late, and still thinks of an earlier call, finds every claim of that
// call taken, since the call could not end otherwise; so it can neither run a task that is gone nor take a slot of a
// newer call under the wrong number. That is why number and slot count travel in one word.
#include "core/thread_pool.h"

#include <algorithm>
#include <chrono>

#include "core/check.h"

namespace deepinfer {
namespace {

constexpr int kSlotBits = 16;

// How long to spin before sleeping: longer than the gap between two parallel ops of a decode step.
constexpr std::chrono::microseconds kSpinTime{100};

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins until done() or kSpinTime has passed; returns the last done().
template <typename Done>
bool SpinUntil(const Done& done) {
  constexpr int kRoundsPerLook = 64;  // the clock is not free
  for (int round = 0; round < kRoundsPerLook; ++round) {
    if (done()) return true;
    Pause();
  }
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  while (std::chrono::steady_clock::now() < end) {
    for (int round = 0; round < kRoundsPerLook; ++round) {
      if (done()) return true;
      Pause();
    }
  }
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) : claims_(static_cast<size_t>(num_threads)) {
  DI_CHECK(num_threads >= 1 && num_threads < 1 << kSlotBits);
  threads_.reserve(static_cast<size_t>(num_threads - 1));
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { Work(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  bell_.fetch_add(1);
  bell_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::RunSlots(int slots, FunctionRef<void(int)> task) {
  if (threads_.empty()) return task(0);
  const std::lock_guard lock(mutex_);
  const uint64_t state = ++call_ << kSlotBits | static_cast<uint64_t>(slots);
  task_.store(&task, std::memory_order_relaxed);
  pending_.store(slots, std::memory_order_relaxed);
  state_.store(state, std::memory_order_release);
  bell_.fetch_add(1);
  bell_.notify_all();
  TakeSlots(state, 0);
  const auto done = [this] { return pending_.load(std::memory_order_acquire) == 0; };
  while (!SpinUntil(done)) {
    const int left = pending_.load(std::memory_order_acquire);
    if (left != 0) pending_.wait(left);
  }
}

void ThreadPool::TakeSlots(uint64_t state, int first) {
  const uint64_t call = state >> kSlotBits;
  const int slots = static_cast<int>(state & ((1 << kSlotBits) - 1));
  for (int i = 0; i < slots; ++i) {
    const int slot = (first + i) % slots;
    std::atomic<uint64_t>& claim = claims_[static_cast<size_t>(slot)].call;
    uint64_t last = claim.load(std::memory_order_relaxed);
    if (last >= call || !claim.compare_exchange_strong(last, call, std::memory_order_acq_rel)) continue;
    (*task_.load(std::memory_order_relaxed))(slot);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

void ThreadPool::For(int64_t n, int64_t grain, FunctionRef<void(int, int64_t, int64_t)> task) {
  const int64_t grains = (n + grain - 1) / grain;
  const int64_t parts = std::min<int64_t>(size(), grains);
  if (parts <= 0) return;
  if (parts == 1) return task(0, 0, n);
  RunSlots(static_cast<int>(parts), [&](int slot) {
    const int64_t begin = grains * slot / parts * grain;
    const int64_t end = std::min(n, grains * (slot + 1) / parts * grain);
    if (begin < end) task(slot, begin, end);
  });
}

void ThreadPool::Work(int thread) {
  uint64_t seen = 0;
  while (true) {
    const uint32_t bell = bell_.load(std::memory_order_acquire);
    const bool called = SpinUntil([&] {
      return state_.load(std::memory_order_acquire) != seen || stop_.load(std::memory_order_relaxed);
    });
    if (stop_.load(std::memory_order_relaxed)) return;
    if (called) {
      seen = state_.load(std::memory_order_acquire);
      TakeSlots(seen, thread);
    } else {
      bell_.wait(bell);
    }
  }
}

}  // namespace deepinfer
