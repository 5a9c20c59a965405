// SPDX-License-Identifier: Apache-2.0
// A fixed set of threads that run one function together, again and again, with little delay: what the kernels of a
// forward pass need. A call is cut into slots; the calling thread begins with slot 0 and worker i with slot i, and who
// is done takes over slots that nobody has begun. So a call never waits for a worker that the system has not scheduled
// yet, only for one that has begun. Between calls workers spin for a short while and then sleep.
// Thread safety: Run may be called from any thread; calls from several threads are served one after the other.
// Functions must not call Run of the same pool, and slots must not wait for each other. The pool owns its threads and
// joins them in its destructor.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace deepinfer {

// A view of a callable, valid as long as the callable lives; no allocation.
template <typename Signature>
class FunctionRef;
template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
  FunctionRef(const F& f)  // NOLINT: implicit on purpose, like a reference
      : object_(&f), call_([](const void* object, Args... args) -> R {
          return (*static_cast<const F*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  const void* object_;
  R (*call_)(const void*, Args...);
};

class ThreadPool {
 public:
  // REQUIRES: 1 <= num_threads < 65536.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls task(slot) once for each slot 0 .. size()-1, as far as possible at the same time, and returns when all are
  // done. No two threads are in one slot at a time, so a slot may own scratch.
  void Run(FunctionRef<void(int slot)> task) { RunSlots(size(), task); }

  // Cuts [0, n) into at most size() runs of whole multiples of `grain` and calls task(slot, begin, end) for each that is
  // not empty. Which slot gets what depends on n, grain and size() alone.
  void For(int64_t n, int64_t grain, FunctionRef<void(int slot, int64_t begin, int64_t end)> task);

 private:
  // The last call that began this slot.
  struct alignas(64) Claim {
    std::atomic<uint64_t> call{0};
  };

  void RunSlots(int slots, FunctionRef<void(int)> task);
  // Runs the slots of the call in `state` that nobody has begun, from `first` on and around.
  void TakeSlots(uint64_t state, int first);
  void Work(int thread);

  std::mutex mutex_;                                          // one call at a time
  uint64_t call_ = 0;                                         // number of the current call
  std::atomic<const FunctionRef<void(int)>*> task_{nullptr};  // of the current call
  alignas(64) std::atomic<uint64_t> state_{0};                // call << 16 | slots
  alignas(64) std::atomic<int> pending_{0};                   // slots of the current call that are not done
  alignas(64) std::atomic<uint32_t> bell_{0};                 // sleeping workers wait for it to change
  std::atomic<bool> stop_{false};
  std::vector<Claim> claims_;  // [size()]
  std::vector<std::thread> threads_;
};

}  // namespace deepinfer
