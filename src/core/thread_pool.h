// SPDX-License-Identifier: Apache-2.0
// A fixed set of threads that run one function together, again and again, with little delay: what the kernels of a
// forward pass need. The calling thread is thread 0 and takes part. Between calls the others spin for a short while
// and then sleep.
// Thread safety: Run may be called from any thread; calls from several threads are served one after the other.
// Functions must not call Run of the same pool. The pool owns its threads and joins them in its destructor.
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
  // REQUIRES: num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls task(thread) once for each thread 0 .. size()-1, at the same time, and returns when all are done.
  void Run(FunctionRef<void(int thread)> task);

  // Cuts [0, n) into at most size() runs of whole multiples of `grain` and calls task(thread, begin, end) for each that
  // is not empty. Which thread gets what depends on n, grain and size() alone.
  void For(int64_t n, int64_t grain, FunctionRef<void(int thread, int64_t begin, int64_t end)> task);

 private:
  void Work(int thread);

  std::mutex mutex_;  // one Run at a time
  const FunctionRef<void(int)>* task_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> pending_{0};
  alignas(64) std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace deepinfer
