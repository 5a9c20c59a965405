// SPDX-License-Identifier: Apache-2.0
// Runs the scheduler's plans on the model: rows, tables and starts into a Step, a forward pass, the copies of forks, then
// a token for every row that samples. Keeps, for each slot, what a plan made before the last result cannot know: how long
// the sequence is and its newest tokens.
// One thread at a time; steps in the order of their plans.
#pragma once

#include <memory>
#include <vector>

#include "engine/choice.h"
#include "engine/kv_memory.h"
#include "engine/loaded_model.h"
#include "model/deepseek_v41/forward.h"
#include "sched/scheduler.h"

namespace deepinfer::engine {

// A plan with all that it refers to: made by the engine right after Scheduler::Plan, executed later, possibly elsewhere.
struct StepJob {
  sched::StepPlan plan;
  KvMemory::Tables tables;
  std::vector<int32_t> prefill_tokens;         // for each prefill entry its rows, with `lookback` - 1 tokens before them
  std::vector<std::shared_ptr<Choice>> entry_choices;  // [entries]
  std::vector<std::shared_ptr<Choice>> fork_choices;   // [forks]

  // Results.
  std::vector<sched::EntryResult> entry_results, fork_results;
  std::vector<int32_t> tokens;
  std::vector<Drawn> entry_drawn, fork_drawn;  // for entries that sampled
  Status status;                               // a device or file error: every result is failed

  sched::StepResult result() const { return {plan.step, entry_results, fork_results, tokens}; }
};

class StepExecutor {
 public:
  static Result<std::unique_ptr<StepExecutor>> Create(const LoadedModel& loaded, const sched::Config& config,
                                                      backend::Activations activations);

  // Copies what the step needs of the scheduler's tables and requests.
  void Prepare(const sched::Scheduler& scheduler, StepJob* job) const;
  // Executes and fills the results.
  void Run(StepJob* job);

  int64_t cache_bytes() const { return memory_.size_bytes(); }
  int64_t scratch_bytes() const { return model_->scratch_bytes(); }

 private:
  struct Slot {
    int64_t length = 0;           // tokens known here, the newest one not run yet
    std::vector<int32_t> newest;  // [lookback], newest first; -1 before the start
  };

  StepExecutor(const LoadedModel& loaded, const sched::Config& config, KvMemory memory);
  void BuildStep(const StepJob& job);
  void AddPrefill(const StepJob& job, const sched::PlanEntry& entry, size_t* token);
  void AddDecode(const sched::PlanEntry& entry);
  void AddSegment(const sched::PlanEntry& entry, const sched::StepPlan& plan, int64_t begin);
  void DrawAll(StepJob* job);
  sched::EntryResult DrawOne(Choice* choice, int32_t slot, std::span<const float> logits, StepJob* job, Drawn* drawn);

  const LoadedModel& loaded_;
  const sched::Config config_;
  KvMemory memory_;
  std::unique_ptr<model::deepseek_v41::Model> model_;
  size_t lookback_;
  std::vector<Slot> slots_;
  // Scratch of a step.
  std::vector<model::deepseek_v41::Segment> segments_;
  std::vector<int32_t> starts_, floors_;  // [entries, layers + 1], [entries, layers]
  std::vector<int32_t> window_tokens_, ids_, logit_rows_;
  std::vector<float> logits_;
};

}  // namespace deepinfer::engine
