// SPDX-License-Identifier: Apache-2.0
// Rows of a step: decodes first, then chunks of prompts.
#include <algorithm>

#include "sched/scheduler.h"

namespace deepinfer::sched {
namespace {

using kv::kBlockTokens;
using kv::kEarly;
using kv::kLate;

// Chunks are halved down to this before anybody is preempted for one.
constexpr int64_t kSmallChunk = kBlockTokens;

}  // namespace

StepPlan Scheduler::MakePlan() const {
  StepPlan plan;
  const auto slots = static_cast<size_t>(config_.slots);
  plan.entries.reserve(slots);
  plan.forks.reserve(slots);
  plan.copies.reserve(slots * 4);  // a fork copies a block, two pages and a state at most
  plan.run_from.reserve(slots * starts_scratch_.size());
  return plan;
}

bool Scheduler::Plan(StepPlan* plan) {
  plan->Clear();
  if (flights_used_ == config_.steps_in_flight) return false;
  plan->step = next_step_;
  starved_ = std::exchange(stalled_, std::nullopt);
  ++flights_used_;
  Flight& flight = NewestFlight();
  flight.step = next_step_;
  flight.entries.clear();
  flight.forks.clear();
  PlanDecodes(plan);
  Admit();
  PlanPrefills(plan);
  if (plan->entries.empty()) {
    --flights_used_;
    BreakStall();
    return false;
  }
  empty_plans_ = 0;
  ++next_step_;
  ++stats_.steps;
  stats_.rows += plan->rows;
  return true;
}

Scheduler::Flight& Scheduler::NewestFlight() {
  return flights_[static_cast<size_t>((flights_first_ + flights_used_ - 1) % config_.steps_in_flight)];
}

// Drafts get the rows that decodes leave, but half of those where prompts want them.
int32_t Scheduler::DraftBudget() const {
  int32_t decodes = 0;
  bool prompts = !queue_.empty();
  for (const uint32_t index : running_) {
    const bool decoding = std::holds_alternative<state::Decoding>(requests_[index].state);
    decodes += decoding;
    prompts = prompts || !decoding;
  }
  const int32_t spare = config_.step_rows_max - decodes;
  return prompts ? spare - std::min(config_.prefill_rows_max, (spare + 1) / 2) : spare;
}

void Scheduler::PlanDecodes(StepPlan* plan) {
  int32_t drafts = config_.draft_rows > 0 ? DraftBudget() : 0;
  // Making room may take requests behind the current one out of the list.
  for (size_t i = 0; i < running_.size(); ++i) {
    if (!std::holds_alternative<state::Decoding>(requests_[running_[i]].state)) continue;
    drafts -= PlanDecode(running_[i], drafts, plan);
  }
}

// Returns the drafts planned.
int32_t Scheduler::PlanDecode(uint32_t index, int32_t drafts_max, StepPlan* plan) {
  Request& r = requests_[index];
  // Tokens when the step begins: between shortest and longest.
  const int64_t shortest = r.length() + r.pending_min;
  const int64_t longest = r.length() + r.pending_max;
  if (shortest >= r.length_max) return 0;  // it ends with what is in flight
  const int64_t wanted = r.firm_drafts ? r.drafts : std::min(r.drafts, std::max(drafts_max, 0));
  auto drafts = static_cast<int32_t>(std::min(wanted, r.length_max - 1 - shortest));
  const auto row_end = [&](int32_t d) { return std::min(longest + d, r.length_max - 1); };
  // The draft stages may put the keys of their block into late pages, behind the newest token.
  const auto page_ends = [&](int32_t d) {
    return PageEnds{row_end(d), row_end(d) + (r.drafts > 0 ? 1 + config_.draft_rows : 0)};
  };
  if (drafts > 0 && !r.firm_drafts && !Grow(index, row_end(drafts), page_ends(drafts))) drafts = 0;
  if (!MakeRoom(index, row_end(drafts), page_ends(drafts))) return 0;

  PlanEntry& entry = plan->entries.emplace_back();
  entry.request = IdOf(index);
  entry.slot = r.slot();
  entry.kind = EntryKind::kDecode;
  entry.samples = true;
  entry.rows = 1 + drafts;
  entry.first_row = plan->rows;
  entry.position_end = row_end(drafts);
  entry.floor = r.starts.floor;
  entry.draft_floor = r.starts.windows_from[kLate];
  plan->rows += entry.rows;
  NewestFlight().entries.push_back({index, EntryKind::kDecode, 1 + drafts, 0});
  ++r.in_flight;
  r.pending_min += 1;
  r.pending_max += 1 + drafts;
  return drafts;
}

void Scheduler::PlanPrefills(StepPlan* plan) {
  const int64_t rows = std::min(config_.prefill_rows_max, config_.step_rows_max - plan->rows);
  if (rows <= 0) return;
  candidates_.clear();
  for (const uint32_t index : running_) {
    if (std::holds_alternative<state::Following>(requests_[index].state)) Follow(index);
    if (const auto* prefilling = std::get_if<state::Prefilling>(&requests_[index].state)) {
      candidates_.push_back({index, prefilling->target - prefilling->next, 0});
    }
  }
  GrantRows(rows);
  for (const Candidate& candidate : candidates_) {
    if (candidate.granted > 0) PlanPrefill(candidate.request, candidate.granted, plan);
  }
}

// Half of the rows go to the prompts with the fewest left, half (and what they leave) by order: a short prompt waits
// for no longer one, and a long one always moves.
void Scheduler::GrantRows(int64_t rows) {
  if (candidates_.size() > 1) {
    std::sort(candidates_.begin(), candidates_.end(), [this](const Candidate& a, const Candidate& b) {
      return a.remaining != b.remaining ? a.remaining < b.remaining : Before(a.request, b.request);
    });
    int64_t lane = rows / 2;
    for (Candidate& candidate : candidates_) {
      candidate.granted = std::min(candidate.remaining, lane);
      lane -= candidate.granted;
      rows -= candidate.granted;
    }
    std::sort(candidates_.begin(), candidates_.end(),
              [this](const Candidate& a, const Candidate& b) { return Before(a.request, b.request); });
  }
  for (Candidate& candidate : candidates_) {
    const int64_t more = std::min(candidate.remaining - candidate.granted, rows);
    candidate.granted += more;
    rows -= more;
  }
}

void Scheduler::PlanPrefill(uint32_t index, int64_t granted, StepPlan* plan) {
  Request& r = requests_[index];
  auto* prefilling = std::get_if<state::Prefilling>(&r.state);
  if (prefilling == nullptr) return;  // preempted meanwhile
  const int32_t slot = prefilling->lease.slot();
  const int64_t first_new = cache_.blocks().end(slot);
  const int64_t rows = ReservePrefill(index, granted);
  if (rows == 0) return;
  Announce(index, first_new);
  const int64_t begin = prefilling->next;
  const int64_t end = begin + rows;
  const bool last = end == prefilling->target;
  const bool samples = last && !r.resumes_firm();

  PlanEntry& entry = plan->entries.emplace_back();
  entry.request = IdOf(index);
  entry.slot = slot;
  entry.samples = samples;
  entry.newest = last && !samples ? r.tokens.back() : -1;
  entry.rows = static_cast<int32_t>(rows);
  entry.first_row = plan->rows;
  entry.begin = begin;
  entry.position_end = end;
  entry.global_from = r.cached;
  entry.floor = r.starts.floor;
  entry.draft_floor = r.starts.windows_from[kLate];
  if (r.replay != Replay::kNone) {
    entry.starts = static_cast<int32_t>(plan->run_from.size());
    const std::span<const int32_t> starts = RunFrom(slot);
    plan->run_from.insert(plan->run_from.end(), starts.begin(), starts.end());
  }
  plan->rows += entry.rows;
  NewestFlight().entries.push_back({index, EntryKind::kPrefill, samples ? 1 : 0, end});
  ++r.in_flight;
  prefilling->next = end;
  if (!last) return AnnounceAhead(index);
  r.pending_min += samples;
  r.pending_max += samples;
  SlotLease lease = r.TakeLease();
  r.state = state::Decoding{std::move(lease)};
  if (!r.forking.empty()) PlanForks(index, plan);
}

// Room for the next rows of a prompt: all that were granted, or fewer; preempts only for the rest of a block.
int64_t Scheduler::ReservePrefill(uint32_t index, int64_t rows) {
  const int64_t next = std::get<state::Prefilling>(requests_[index].state).next;
  for (;; rows /= 2) {
    if (Grow(index, next + rows, {next + rows, next + rows})) return rows;
    if (rows <= kSmallChunk) break;
  }
  rows = std::min(rows, kBlockTokens - next % kBlockTokens);
  return MakeRoom(index, next + rows, {next + rows, next + rows}) ? rows : 0;
}

// Tells others that these blocks of the prompt are being computed.
void Scheduler::Announce(uint32_t index, int64_t first_block) {
  const Request& r = requests_[index];
  const auto& prefilling = std::get<state::Prefilling>(r.state);
  const int32_t slot = prefilling.lease.slot();
  const int64_t end =
      std::min({cache_.blocks().end(slot), prefilling.target / kBlockTokens, static_cast<int64_t>(r.chain.size())});
  for (int64_t block = first_block; block < end; ++block) {
    cache_.index().Announce(NameOf(r.chain[static_cast<size_t>(block)], r.block_class), cache_.blocks().at(slot, block),
                            index);
  }
}

// Takes and announces the block behind what is planned, so that a follower always finds somebody to wait for as long as
// this prompt goes on, even if it gets no rows in some step.
void Scheduler::AnnounceAhead(uint32_t index) {
  const Request& r = requests_[index];
  const auto& prefilling = std::get<state::Prefilling>(r.state);
  const int32_t slot = prefilling.lease.slot();
  const int64_t block = cache_.blocks().end(slot);
  if (block != std::max(prefilling.next, r.cached) / kBlockTokens || (block + 1) * kBlockTokens > prefilling.target)
    return;
  if (Grow(index, (block + 1) * kBlockTokens, {0, 0})) Announce(index, block);
}

void Scheduler::PlanForks(uint32_t leader_index, StepPlan* plan) {
  Request& leader = requests_[leader_index];
  const auto entry = static_cast<int32_t>(plan->entries.size()) - 1;
  for (const uint32_t index : leader.forking) {
    Request& r = requests_[index];
    const int64_t blocks = BlocksToAdmit(r) - leader.length() / kBlockTokens;
    if (!cache_.HasSlot() || !PagesToAdmit(r) || FreeForAdmission() < blocks) break;
    SlotLease lease = cache_.TakeSlot();
    if (!cache_.Fork(leader.slot(), lease.slot(), leader.length(), &plan->copies)) {
      cache_.Release(std::move(lease));
      break;
    }
    plan->forks.push_back({entry, IdOf(index), lease.slot()});
    NewestFlight().forks.push_back({index, EntryKind::kPrefill, 1, leader.length()});
    r.state = state::Decoding{std::move(lease)};
    InsertOrdered(&running_, index);
    r.starts = leader.starts;
    r.hit = leader.hit;
    r.block_class = leader.block_class;
    r.cached = leader.cached;
    r.computed = leader.computed;
    r.published = leader.published;
    r.in_flight = r.pending_min = r.pending_max = 1;
    ++stats_.forks;
  }
  std::erase_if(leader.forking,
                [this](uint32_t index) { return !std::holds_alternative<state::Forking>(requests_[index].state); });
  QueueForks(&leader);  // those for whom there was no room
}

}  // namespace deepinfer::sched
