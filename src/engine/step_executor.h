// SPDX-License-Identifier: Apache-2.0
// Runs the scheduler's plans on the model: rows, tables and starts into a Step, a forward pass with the copies of forks,
// then a selection, tokens for the rows that sample. Keeps, for each slot, what a plan made before the last result cannot
// know: how long the sequence is, its newest tokens, and the drafts behind them.
//
// Masks of constrained requests are computed on threads beside the forward pass; the selection draws for all others first.
// A decode whose masks are not there in time sits out: it commits nothing in that step, has no row in the next ones until
// they are there, and then runs its row again, to the same logits. So tokens do not depend on how long a mask takes. Prompts
// and choices of firm drafts wait instead; a first mask is made with the submission, so prompts seldom do.
//
// Drafts. A decode entry runs its newest token and drafts behind it. Tokens are drawn row by row, each as plain decoding
// would draw it, as long as the token drawn is the draft that the next row has run; so every token, its log-probabilities
// and all that drawing changes (penalties, masks) are those of plain decoding, and rows behind the first wrong draft leave
// nothing that is ever read: their cache rows lie behind the newest token and are written again. Then the drafts of the
// next step are made.
// One thread at a time; steps in the order of their plans.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/choice.h"
#include "engine/device_draws.h"
#include "engine/draft_judge.h"
#include "engine/drafter.h"
#include "engine/kv_memory.h"
#include "engine/loaded_model.h"
#include "engine/mask_worker.h"
#include "model/deepseek_v41/forward.h"
#include "sched/scheduler.h"
#include "spec/draft_schedule.h"

namespace deepinfer::engine {

// How the drafts of a decode entry fared.
struct Verified {
  int32_t drafts = 0;  // run
  int32_t accepted = 0;
};

// How drafting goes, after a step.
struct DraftReport {
  bool wants_rows = false;  // requests that leave it to the schedule should have rows for drafts in the next plans
  int64_t drafted = 0;      // drafts made since the start
  double gain = 0;          // expected tokens/s with drafts over those without; 0: not known
  double calibration_error = 0;
  double schedule_seconds = 0;  // spent on deciding, since the start
};

// A plan with all that it refers to: made by the engine right after Scheduler::Plan, executed later, possibly elsewhere.
struct StepJob {
  sched::StepPlan plan;
  KvMemory::Tables tables;
  std::array<std::vector<int64_t>, kv::kLayerGroups> page_ends;  // [slots]: one behind the last page mapped
  std::vector<int32_t> prefill_tokens;         // for each prefill entry its rows, with `lookback` - 1 tokens before them
  std::vector<std::shared_ptr<Choice>> entry_choices;  // [entries]
  std::vector<std::shared_ptr<Choice>> fork_choices;   // [forks]

  // Results.
  std::vector<sched::EntryResult> entry_results, fork_results;
  std::vector<int32_t> tokens;
  std::vector<Drawn> drawn;  // [tokens]
  std::vector<std::string> errors;  // [entries + forks]: of those that failed
  std::vector<Verified> verified;  // [entries]
  int64_t sat_out = 0;             // entries without their masks
  DraftReport drafts;
  Status status;  // a device or file error: every result is failed

  sched::StepResult result() const { return {plan.step, entry_results, fork_results, tokens}; }
};

class StepExecutor {
 public:
  // With drafts where config.draft_rows > 0. Errors: kNotFound (the checkpoint has no draft), kResourceExhausted.
  static Result<std::unique_ptr<StepExecutor>> Create(const LoadedModel& loaded, const sched::Config& config,
                                                      backend::Activations activations,
                                                      spec::Acceptance acceptance = spec::Acceptance::kCoupled);

  // For tests: may change the tokens of a request's drafts, which follow the token at `position`, as it likes; where drafts
  // are judged, they then count as certain for the drafter, so they may depend on nothing that was drawn for them.
  using DraftsFn = std::function<void(const ChoiceSettings& choice, int64_t position, Drafts* drafts)>;
  void set_drafts_fn(DraftsFn fn) { drafts_fn_ = std::move(fn); }
  // For tests: as if each mask took so much longer. REQUIRES: nothing ran yet.
  void set_mask_delay(std::chrono::microseconds delay) { masks_.set_delay(delay); }

  // Copies what the step needs of the scheduler's tables and requests.
  void Prepare(const sched::Scheduler& scheduler, StepJob* job) const;
  // Executes and fills the results.
  void Run(StepJob* job);

  // What lies where on the device (warm_up.h).
  const std::string& memory_plan() const { return memory_plan_; }
  int64_t cache_bytes() const { return memory_.size_bytes(); }
  int64_t scratch_bytes() const { return model_->scratch_bytes() + (drafter_ ? drafter_->scratch_bytes() : 0); }

 private:
  struct Slot {
    int64_t length = 0;           // tokens known here, the newest one not run yet
    std::vector<int32_t> newest;  // [lookback], newest first; -1 before the start
    Drafts drafts;                // behind the newest token
    int64_t draft_floor = 0;      // draft windows begin here
  };
  // The rows of an entry as they were run.
  struct EntryRows {
    int64_t begin = 0;  // position of the first
    int32_t first = 0;  // place in the batch
    int32_t count = 0;
    int32_t first_logit = 0;  // place among the logits
  };

  // A prompt's rows whose logits are wanted beside those that tokens are drawn from.
  struct PromptRows {
    Choice* choice = nullptr;
    int64_t begin = 0;  // position of the first
    int32_t first = 0;  // place in the batch
    int32_t count = 0;
  };

  StepExecutor(const LoadedModel& loaded, const sched::Config& config, spec::Acceptance acceptance, KvMemory memory);
  void BuildStep(const StepJob& job);
  void AddPrefill(const StepJob& job, const sched::PlanEntry& entry, size_t* token);
  void AddDecode(const sched::PlanEntry& entry, int32_t rows);
  void AddSegment(const sched::PlanEntry& entry, const sched::StepPlan& plan, int64_t begin, int32_t rows);
  // The most rows that a decode entry can run.
  int32_t RowsOf(const StepJob& job, size_t entry) const;
  // Decides how many drafts the decode entries verify; fills verify_.
  void ChooseDrafts(const StepJob& job);
  void StartMasks(const StepJob& job);
  // Decodes whose masks are being computed have no row in the step.
  void FindWhoSitsOut(const StepJob& job);
  void WaitOrSitOut(const StepJob& job);
  // Waits for masks for a while, then for those of whoever cannot sit out.
  void SettleMasks(const StepJob& job, std::chrono::steady_clock::time_point start);
  // Which draws the device makes, of choices with a grammar or of those without.
  void ListDraws(const StepJob& job, bool with_grammar);
  // Returns the logits, on the device.
  const float* Forward(const StepJob& job);
  // Log-probabilities of prompts: logits some rows at a time, so that memory has a limit.
  Status ScorePrompts();
  void Select(StepJob* job, std::chrono::steady_clock::time_point start);
  // Draws for the entries and forks with a grammar, or for those without.
  void DrawAll(StepJob* job, bool with_grammar);
  // Draws from up to `rows` rows of logits, while the drafts behind them hold. `error`: why it failed.
  // `places`: of the rows, in draws_.
  sched::EntryResult DrawRows(Choice* choice, int32_t slot, int32_t first_logit, std::span<const std::optional<size_t>> places,
                              StepJob* job, std::string* error);
  // The same where the drafts are judged by chance (draft_judge.h); at least one draft.
  sched::EntryResult JudgeRows(Choice* choice, int32_t slot, int32_t first_logit, size_t rows, StepJob* job, std::string* error);
  // A token of an answer, and what it means for the entry.
  void AddToken(Drawn drawn, const Choice& choice, Slot* slot, StepJob* job, sched::EntryResult* result) const;
  std::span<const float> LogitsOf(int32_t row, size_t rows = 1) const;
  void PushToken(Slot* slot, int32_t token) const;
  // What becomes of context keys: stored now, when a few rows have come together, or not at all.
  enum class Keys { kNow, kSoon, kDrop };
  // Context keys of the rows that are committed now.
  void StoreContext(const StepJob& job, sched::EntryKind kind, Keys keys);
  // key_holes_ of the page that holds a position of the slot; the spare one where none does.
  size_t KeyHole(const StepJob& job, int32_t slot, int64_t position) const;
  // No context key below it is there for drafts behind position `newest`.
  int64_t DraftFloor(const StepJob& job, int32_t slot, int64_t newest) const;
  void DropWaiting(const StepJob& job);
  // What the step taught the schedule.
  void Observe(const StepJob& job, double seconds);
  // Queues the blocks of the next step. CollectDrafts waits for them, at the latest when that step begins.
  void DraftNext(const StepJob& job);
  Status CollectDrafts();
  // Blocks that must be there in this step and are not: a prompt's last page was full, or the request was resumed.
  Status DraftMissing(const StepJob& job);
  // `planned`: drafts that the plan had room for in this step, and so probably in the next.
  void AddDraftRequest(const StepJob& job, int32_t slot, int32_t planned, const std::shared_ptr<Choice>& choice);
  // Leaves those whose drafts pay or are a probe, and says how many each gets.
  void ChooseBlocks();

  const LoadedModel& loaded_;
  const sched::Config config_;
  const spec::Acceptance acceptance_;
  KvMemory memory_;
  std::unique_ptr<model::deepseek_v41::Model> model_;
  std::unique_ptr<Drafter> drafter_;  // or none
  std::optional<spec::DraftSchedule> schedule_;
  int64_t drafted_ = 0;
  double schedule_seconds_ = 0;
  DraftsFn drafts_fn_;
  DeviceDraws draws_;
  DraftJudge judge_;
  std::string memory_plan_;
  size_t lookback_;
  std::vector<Slot> slots_;
  // [late pages, and a spare]: one behind the last position there whose context key was dropped, by whoever had the page:
  // pages are passed on.
  std::vector<int64_t> key_holes_;
  // Scratch of a step.
  std::vector<model::deepseek_v41::Segment> segments_;
  std::vector<EntryRows> entry_rows_;     // [entries]
  std::vector<std::optional<size_t>> row_draws_, fork_draws_;  // [rows of logits], [forks]: place in draws_
  std::vector<int32_t> starts_, floors_;  // [segments, layers + 1], [segments, layers]
  std::vector<int32_t> window_tokens_, ids_, logit_rows_;
  std::vector<float> logits_, prompt_logits_;
  std::vector<PromptRows> prompt_rows_;
  std::vector<DraftRequest> draft_requests_;  // of the blocks that were queued
  double draft_seconds_ = 0;                  // that queuing them took
  std::vector<const Choice*> going_on_;  // [slots]
  spec::StepShape shape_;                    // of the step in hand
  std::vector<spec::VerifyRequest> verify_;  // [decode entries that run]
  std::vector<uint8_t> sits_out_;            // [entries]
  double pass_seconds_ = 0;                  // of the last step without prompts
  std::vector<std::shared_ptr<MaskWork>> mask_works_;
  MaskWorker masks_;
};

}  // namespace deepinfer::engine
