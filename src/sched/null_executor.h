// SPDX-License-Identifier: Apache-2.0
// Executes plans by inventing a token for whoever samples one: for tests and benchmarks of the scheduler alone.
// Allocates nothing after construction. Not thread-safe.
#pragma once

#include <vector>

#include "sched/scheduler.h"

namespace deepinfer::sched {

class NullExecutor {
 public:
  explicit NullExecutor(const Config& config) : steps_(static_cast<size_t>(config.steps_in_flight)) {
    const auto slots = static_cast<size_t>(config.slots);
    for (Step& step : steps_) {
      step.entries.reserve(slots);
      step.forks.reserve(slots);
    }
    entries_.reserve(slots);
    forks_.reserve(slots);
    tokens_.reserve(2 * slots);
  }

  void Launch(const StepPlan& plan) {
    Step& step = steps_[(first_ + used_++) % steps_.size()];
    step.step = plan.step;
    step.entries.assign(plan.entries.begin(), plan.entries.end());
    step.forks.assign(plan.forks.begin(), plan.forks.end());
  }
  size_t steps() const { return used_; }

  // The result of the oldest step: a token for each entry that samples, and nobody ends. Valid until the next call.
  StepResult& Finish() {
    const Step& step = steps_[first_];
    first_ = (first_ + 1) % steps_.size();
    --used_;
    entries_.clear();
    forks_.clear();
    tokens_.clear();
    for (const PlanEntry& entry : step.entries) entries_.push_back(Token(entry.samples));
    for (size_t i = 0; i < step.forks.size(); ++i) forks_.push_back(Token(true));
    result_ = {step.step, entries_, forks_, tokens_};
    return result_;
  }
  // Of the step that Finish returned last, to change before it is handed on.
  std::vector<EntryResult>& entries() { return entries_; }

 private:
  struct Step {
    int64_t step = 0;
    std::vector<PlanEntry> entries;
    std::vector<Fork> forks;
  };

  EntryResult Token(bool samples) {
    EntryResult result;
    result.first_token = static_cast<int32_t>(tokens_.size());
    result.num_tokens = samples ? 1 : 0;
    if (samples) tokens_.push_back(static_cast<int32_t>(next_ = (next_ * 1103515245 + 12345) & 0xffff));
    return result;
  }

  std::vector<Step> steps_;
  size_t first_ = 0, used_ = 0;
  uint32_t next_ = 1;
  std::vector<EntryResult> entries_, forks_;
  std::vector<int32_t> tokens_;
  StepResult result_;
};

}  // namespace deepinfer::sched
