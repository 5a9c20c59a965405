// SPDX-License-Identifier: Apache-2.0
// What compiling and stepping may cost: memory, steps, CPU time of the thread (what else runs on the machine must not end a
// request), and a flag by which another thread cancels. Code deep inside the automata calls Spend() and goes on with a
// harmless answer once it is false; whoever owns the budget asks `failure()` at the end. Only `cancel` may be touched by
// another thread.
#pragma once

#include <time.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/status.h"

namespace deepinfer::grammar {

class Budget {
 public:
  // Starts a new allowance; `cancel` may be nullptr; without `time` no clock is asked.
  void Start(uint64_t steps, std::optional<std::chrono::milliseconds> time, size_t memory_bytes, const std::atomic<bool>* cancel) {
    steps_left_ = steps;
    time_ = time;
    started_ = kNotYet;
    memory_bytes_ = memory_bytes;
    cancel_ = cancel;
    failure_ = Status();
    next_check_ = steps > kCheckEvery ? steps - kCheckEvery : 0;
  }

  // False once the allowance is used up.
  bool Spend(uint64_t steps = 1) {
    if (!failure_.ok()) return false;
    if (steps_left_ < steps) {
      failure_ = Error(Code::kResourceExhausted, "grammar: too complex (step limit reached)");
      return false;
    }
    steps_left_ -= steps;
    if (steps_left_ <= next_check_) return Check();
    return true;
  }
  void Fail(Status status) {
    if (failure_.ok()) failure_ = std::move(status);
  }
  // Asked from time to time what the owner holds.
  void SetMeter(std::function<size_t()> bytes_held) { meter_ = std::move(bytes_held); }
  void Holds(size_t bytes) {
    if (bytes > memory_bytes_) {
      Fail(Error(Code::kResourceExhausted, "grammar: too complex (memory limit of {} bytes reached)", memory_bytes_));
    }
  }
  uint64_t left() const { return steps_left_; }
  bool ok() const { return failure_.ok(); }
  const Status& failure() const { return failure_; }

 private:
  static constexpr uint64_t kCheckEvery = 256, kMeterEvery = 8;
  bool Check() {
    next_check_ = steps_left_ > kCheckEvery ? steps_left_ - kCheckEvery : 0;
    if (cancel_ != nullptr && cancel_->load(std::memory_order_relaxed)) {
      failure_ = Error(Code::kCancelled, "grammar: cancelled");
    } else if (time_ && TimeIsUp()) {
      failure_ = Error(Code::kResourceExhausted, "grammar: too complex (time limit reached)");
    } else if (++checks_ % kMeterEvery == 0 && meter_) {
      Holds(meter_());
    }
    return failure_.ok();
  }

  // The clock starts with the first check: most calls are over before it.
  bool TimeIsUp() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    const std::chrono::nanoseconds spent = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
    if (started_ == kNotYet) started_ = spent;
    return spent - started_ > *time_;
  }

  static constexpr std::chrono::nanoseconds kNotYet{-1};
  uint64_t steps_left_ = UINT64_MAX;
  uint64_t next_check_ = 0;
  std::optional<std::chrono::nanoseconds> time_;
  std::chrono::nanoseconds started_ = kNotYet;
  size_t memory_bytes_ = SIZE_MAX;
  const std::atomic<bool>* cancel_ = nullptr;
  std::function<size_t()> meter_;
  uint64_t checks_ = 0;
  Status failure_;
};

}  // namespace deepinfer::grammar
