// SPDX-License-Identifier: Apache-2.0
// Decides which rows of which requests run in the next step, and which cache memory they use. Knows neither model nor
// backend: it takes requests and results and makes plans (plan.h), which are data.
//
// Use. One thread:
//   for (;;) {
//     submit and cancel as the world wants;
//     if (scheduler.Plan(&plan)) execute it, without waiting;     // plan n+1 while step n runs
//     when the result of the oldest step is there: scheduler.Complete(result);
//     scheduler.TakeEnded(&ended);
//   }
// Up to Config::steps_in_flight plans may be made before the first is completed; results come in the order of the
// plans.
//
// Promises (docs/scheduling.md has the arguments, tests/sim holds the scheduler against them):
// - What a request computes depends on it alone, not on its neighbours, except which hit a kBounded request finds.
// - Every running decode is in every plan, unless its room is being made. Prompts get at least half of the rows that
//   decodes leave (all of them without drafts), up to prefill_rows_max: half by order, half shortest first.
// - Order is arrival, less the head start of the priority. A request that waits for room is passed by at most
// bypass_max
//   later ones; memory is given by order.
// - A block or page is in use by nobody else until the last step in flight that may write to it is completed.
// - The first in order can always go on: all behind it are preempted, if need be. So everybody finishes.
// - After Submit no memory is allocated: not in Plan, not in Complete, not in Cancel.
//
// Preempted requests are run again from their tokens. A kBounded request that began at a hit cannot be (its blocks may
// be gone, and with them its bits): it is never preempted, and kBounded requests are let in only with room for all that
// they may become. Swapping to host memory will lift that.
//
// Not thread-safe. Nothing blocks. Cost: O(requests running) a plan and a completion, O(blocks of the prompt) an
// admission.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "sched/cache.h"
#include "sched/config.h"
#include "sched/plan.h"
#include "sched/request.h"

namespace deepinfer::sched {

struct RequestSpec {
  std::vector<int32_t> prompt;  // at least one token; ids in 0 .. kv::kTokenIdMax
  kv::PromptNames names;        // kv::NamePrompt of the prompt; made by the caller, so that no step waits for it
  std::vector<kv::ImageSpan> images;
  int64_t length_max = 0;  // tokens, prompt and answer: the request ends there at the latest
  Replay replay = Replay::kExact;
  int32_t priority = 0;  // -100 .. 100, higher goes first
  int32_t choices = 1;   // answers to the same prompt
  int32_t drafts = 0;    // drafts per verify step, at most Config::draft_rows
  // The answer depends on how many drafts a step verifies: no step of it has fewer for want of rows or memory, and when it
  // is resumed its newest token runs as a decode does. REQUIRES: step_rows_max > slots x (1 + draft_rows).
  bool firm_drafts = false;
};

struct Ended {
  RequestId request;
  EndReason reason = EndReason::kFinished;
};

// Counters since construction.
struct Stats {
  int64_t steps = 0;
  int64_t rows = 0;
  int64_t prompt_tokens = 0;  // of admissions, resumed ones included
  int64_t cached_tokens = 0;  // of those: global rows came from the cache
  int64_t replayed_rows = 0;  // rows run again below a hit
  int64_t snapshot_hits = 0;  // admissions that began at a window snapshot
  int64_t preemptions = 0;
  int64_t forks = 0;            // choices that began with their leader's prompt
  int64_t forks_queued = 0;     // choices that had to begin by themselves
  int64_t blocks_followed = 0;  // blocks shared that somebody was just computing
  int64_t takeovers = 0;        // times a follower went on because nobody computed the next block any more
  int64_t bypasses = 0;
  int64_t stalls = 0;                         // requests left out of a plan for want of memory
  int64_t yields = 0;                         // requests preempted for one behind them that cannot be
  int64_t late_results = 0;                   // entries whose request had ended meanwhile
  std::array<int64_t, kNumStates> cancels{};  // by the state that it met (index of State)
  std::array<int64_t, 4> ended{};             // by EndReason
};

class Scheduler {
 public:
  static Result<std::unique_ptr<Scheduler>> Create(const Config& config);
  ~Scheduler();

  // Takes a request in; one id per choice, the first being the leader's. Only Submit allocates.
  // kInvalidArgument (names the field), kResourceExhausted (the queue is full). `now_ms` never decreases.
  Result<std::vector<RequestId>> Submit(RequestSpec spec, int64_t now_ms);

  // The request ends as soon as no step in flight uses its cache. False if it has ended already. Other choices go on.
  bool Cancel(RequestId id);

  // Drafts per verify step from the next plan on, as drafting goes well or not. REQUIRES: 0 .. Config::draft_rows.
  void SetDrafts(RequestId id, int32_t drafts);

  // The next step. False: nothing can run now, or steps_in_flight plans are out. `plan` is overwritten; make one with
  // MakePlan and use it again, so that it need not grow. The tables are as the plan's step must see them until the next
  // call of any other function: copy what the step needs before.
  bool Plan(StepPlan* plan);
  StepPlan MakePlan() const;

  // The result of the oldest step out. REQUIRES: one result for each entry and fork of its plan, within their bounds.
  void Complete(const StepResult& result);

  // Requests that ended and hold nothing any more, since the last call. Their ids are dead.
  void TakeEnded(std::vector<Ended>* ended);

  // Committed tokens of a live request, prompt first; valid until the next Complete. Empty for one that is gone.
  std::span<const int32_t> Tokens(RequestId id) const;
  // Where a live request stands, as an index of State.
  std::optional<size_t> StateOf(RequestId id) const;
  // Tokens of the prompt whose blocks came from the cache at its last admission; 0 before.
  int64_t CachedTokens(RequestId id) const;

  const Config& config() const { return config_; }
  const Stats& stats() const { return stats_; }
  const Cache& cache() const { return cache_; }
  bool idle() const { return queue_.empty() && running_.empty() && flights_used_ == 0; }
  int32_t num_running() const { return static_cast<int32_t>(running_.size()); }
  int32_t num_queued() const { return static_cast<int32_t>(queue_.size()); }
  int32_t steps_out() const { return flights_used_; }

  // For tests: "" or what is wrong, the cache included.
  std::string FindViolation() const;

 private:
  struct FlightEntry {
    uint32_t request;
    EntryKind kind;      // forks: kPrefill
    int32_t tokens_max;  // that it commits; 0: a prefill that does not sample
    int64_t end;         // prefill: rows computed when it is done
  };
  struct Flight {
    int64_t step = 0;
    std::vector<FlightEntry> entries;
    std::vector<FlightEntry> forks;
  };
  struct Candidate {  // a prompt that wants rows
    uint32_t request;
    int64_t remaining;
    int64_t granted;
  };

  explicit Scheduler(const Config& config);

  // scheduler.cc: records, order, ends.
  Status CheckSpec(const RequestSpec& spec) const;
  uint32_t NewRecord(const RequestSpec& spec, kv::PromptNames names, int64_t now_ms);
  Request* Find(RequestId id);
  const Request* Find(RequestId id) const;
  RequestId IdOf(uint32_t index) const { return {index, requests_[index].generation}; }
  bool Before(uint32_t a, uint32_t b) const { return requests_[a].key < requests_[b].key; }
  void InsertOrdered(std::vector<uint32_t>* list, uint32_t index);
  void EraseOrdered(std::vector<uint32_t>* list, uint32_t index);
  void End(uint32_t index, EndReason reason);
  void FinishDraining(uint32_t index);
  void ReleaseCache(uint32_t index);
  void Retire(uint32_t index, EndReason reason);
  void QueueForks(Request* leader);

  // admit.cc: from the queue to the first row.
  void Admit();
  bool TryAdmit(uint32_t index);
  int64_t BlocksToAdmit(const Request& r) const;
  bool PagesToAdmit(const Request& r) const;
  int64_t FreeForAdmission() const;
  int64_t HitBlocksMax(const Request& r) const;
  bool TakeHits(Request* r, state::Following* following);
  void Follow(uint32_t index);
  int64_t ChooseHit(const Request& r, int32_t slot);
  ReplayStarts StartsAt(const Request& r, int32_t slot, int64_t hit, std::span<int32_t> run_from);
  void BeginPrefill(uint32_t index);
  std::span<int32_t> RunFrom(int32_t slot);

  // plan.cc: rows of a step.
  using PageEnds = std::array<int64_t, kv::kLayerGroups>;
  Flight& NewestFlight();
  void PlanDecodes(StepPlan* plan);
  int32_t DraftBudget() const;
  int32_t PlanDecode(uint32_t index, int32_t drafts, StepPlan* plan);
  void PlanPrefills(StepPlan* plan);
  void GrantRows(int64_t rows);
  void PlanPrefill(uint32_t index, int64_t rows, StepPlan* plan);
  int64_t ReservePrefill(uint32_t index, int64_t rows);
  void AnnounceAhead(uint32_t index);
  void Announce(uint32_t index, int64_t first_block);
  void PlanForks(uint32_t leader, StepPlan* plan);

  // room.cc: memory by order.
  bool Grow(uint32_t index, int64_t block_end, PageEnds page_ends);
  bool HeldBack(const Request& r) const;
  bool MakeRoom(uint32_t index, int64_t block_end, PageEnds page_ends);
  bool PreemptOneBehind(const Request& r, bool lower_priority_only);
  bool CanPreempt(const Request& r) const;
  void Preempt(uint32_t index);
  void NoteStalled(const Request& r);
  void BreakStall();

  // complete.cc: results.
  void Apply(const FlightEntry& entry, const EntryResult& result, std::span<const int32_t> tokens);
  void Commit(Request* r, const FlightEntry& entry, std::span<const int32_t> tokens);
  void Publish(Request* r);
  void KeepWindows(const Request& r, int64_t position);

  const Config config_;
  Cache cache_;
  Stats stats_;
  std::vector<Request> requests_;
  std::vector<uint32_t> free_records_;
  std::vector<uint32_t> queue_;    // by key
  std::vector<uint32_t> running_;  // those with a slot, by key
  std::vector<Flight> flights_;    // ring
  int32_t flights_first_ = 0;
  int32_t flights_used_ = 0;
  int64_t next_step_ = 0;
  uint64_t next_sequence_ = 0;
  int32_t room_on_its_way_ = 0;  // preempted requests that still drain
  // First in order of those that the last (this) plan left out for want of memory: nobody behind it may grow.
  std::optional<OrderKey> starved_, stalled_;
  int32_t empty_plans_ = 0;  // in a row, with nothing in flight
  std::vector<Ended> ended_;
  std::vector<Candidate> candidates_;
  std::vector<int32_t> starts_;          // [slots, num_layers + 1]
  std::vector<int32_t> starts_scratch_;  // num_layers + 1
};

}  // namespace deepinfer::sched
