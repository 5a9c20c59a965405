// SPDX-License-Identifier: Apache-2.0
// The engine behind include/deepinfer/engine.h: the scheduler makes plans, the executor runs them on a thread of its own,
// and while step n runs, step n + 1 is planned and the tokens of step n - 1 are turned into text and delivered.
//
// Three threads meet here: callers (Submit, Cancel, Wait), the loop (scheduler, streams) and the executor. Callers leave
// messages under `mutex_`; loop and executor hand jobs back and forth under the same mutex. The scheduler and the streams
// belong to the loop alone.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "deepinfer/engine.h"
#include "engine/step_executor.h"
#include "engine/stream.h"

namespace deepinfer::engine {

class BatchEngine final : public Engine {
 public:
  static Result<std::unique_ptr<BatchEngine>> Create(const EngineOptions& options);
  // On a model that is loaded already; what `options` say about loading is not looked at.
  static Result<std::unique_ptr<BatchEngine>> Create(const EngineOptions& options, std::unique_ptr<LoadedModel> loaded);
  ~BatchEngine() override;

  GenerationId Submit(const GenerationRequest& request, OutputFn consumer, std::string* why, bool* busy = nullptr) override;
  void Cancel(GenerationId id) override { Cancel(id, kAllChoices); }
  void Cancel(GenerationId id, int choice) override;
  void Wait(GenerationId id) override;
  bool Step() override;
  EngineStats Stats() const override;
  std::vector<int32_t> Tokenize(std::string_view text) const override;
  std::optional<int32_t> FindToken(std::string_view token) const override { return loaded_->tokenizer().TokenToId(token); }
  std::shared_ptr<const grammar::Vocabulary> grammar_vocabulary() const override;
  const std::string& model_identity() const override { return model_identity_; }
  const std::string& numeric_identity() const override { return numeric_identity_; }
  int64_t context_max() const override { return config_.length_max; }
  std::string memory_plan() const override { return executor_->memory_plan(); }
  const std::vector<std::string>& warnings() const override { return warnings_; }

  const LoadedModel& loaded() const { return *loaded_; }
  // Whether Submit would take the request, were there room; else the field and its range.
  Status Check(const GenerationRequest& request) const;

  // For tests: "" or what is wrong with scheduler and cache. REQUIRES: own_thread is false.
  std::string FindViolation() const { return scheduler_->FindViolation(); }
  const sched::Cache& cache() const { return scheduler_->cache(); }
  // For tests (StepExecutor::DraftsFn). REQUIRES: nothing was submitted yet.
  void set_drafts_fn(StepExecutor::DraftsFn fn) { executor_->set_drafts_fn(std::move(fn)); }
  void set_mask_delay(std::chrono::microseconds delay) { executor_->set_mask_delay(delay); }

 private:
  static constexpr int kAllChoices = -1;

  struct Submission {
    std::shared_ptr<Generation> generation;
    sched::RequestSpec spec;
    std::vector<std::shared_ptr<Choice>> choices;
    std::vector<std::string> stop;
  };

  BatchEngine(const EngineOptions& options, std::unique_ptr<LoadedModel> loaded)
      : options_(options), loaded_(std::move(loaded)) {}
  Status Prepare();
  // Fills config_.draft_rows and drafts_ from options_.drafts.
  Status PrepareDrafts();
  ChoiceSettings SettingsOf(const GenerationRequest& request, uint64_t seed, int choice) const;
  // The request's grammar at its start, the prompt's part of the answer read.
  Result<AnswerGrammar> StartGrammar(const GenerationRequest& request) const;

  void Loop();
  void ExecutorLoop();
  // Each returns whether it did something.
  bool TakeMessages();
  bool PlanOne(StepJob** job);
  void Finish(StepJob* job);
  void NoteDrafts(const StepJob& job);
  void Deliver(const StepJob& job, sched::RequestId request, const sched::EntryResult& result, const std::string& error);
  void Accept(Submission submission);
  void EndGeneration(GenerationId id, int choice, deepinfer::FinishReason reason);
  void EndOverdue();
  void CollectEnded();
  void CloseIfDone(const std::shared_ptr<Generation>& generation);
  void UpdateStats();
  Stream* Find(sched::RequestId id);
  int64_t NowMs() const;

  const EngineOptions options_;
  std::unique_ptr<LoadedModel> loaded_;
  sched::Config config_;
  int drafts_ = 0;  // of requests that do not say: as ChoiceSettings::drafts
  spec::Acceptance acceptance_ = spec::Acceptance::kCoupled;
  std::string model_identity_, numeric_identity_;
  std::vector<std::string> warnings_;
  mutable std::once_flag vocabulary_once_;
  mutable std::shared_ptr<const grammar::Vocabulary> vocabulary_;

  // The loop's own.
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::unique_ptr<StepExecutor> executor_;
  std::vector<std::unique_ptr<StepJob>> jobs_;
  std::vector<StepJob*> free_jobs_;
  std::vector<std::unique_ptr<Stream>> streams_;  // by index of the scheduler's record
  std::unordered_map<GenerationId, std::vector<sched::RequestId>> live_;
  std::vector<sched::Ended> ended_;
  std::vector<Submission> taken_submissions_;  // messages that are being read
  std::vector<std::pair<GenerationId, int>> taken_cancels_;
  int64_t answer_tokens_ = 0, masks_late_ = 0;
  std::vector<int64_t> drafts_verified_, drafts_accepted_;  // by place in the block
  DraftReport draft_report_{.wants_rows = true};

  mutable std::mutex mutex_;
  std::condition_variable loop_wakes_, executor_wakes_, waiter_wakes_;
  std::vector<Submission> submissions_;
  std::vector<std::pair<GenerationId, int>> cancels_;  // of which choice
  std::vector<StepJob*> to_run_, done_;  // oldest first; a few
  std::unordered_map<GenerationId, bool> open_;  // requests that have not ended
  EngineStats stats_;
  GenerationId next_id_ = 1;
  bool stop_ = false;
  std::thread loop_, executor_thread_;
};

}  // namespace deepinfer::engine
