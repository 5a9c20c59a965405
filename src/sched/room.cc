// SPDX-License-Identifier: Apache-2.0
// Memory goes by order. Who is short of it preempts those behind, last first. What a preempted request holds comes back
// when its steps in flight are done; until then nobody else is preempted, and nobody behind the one that waits may
// grow, so that the room which is being made is not taken by others.
#include "sched/scheduler.h"

namespace deepinfer::sched {
namespace {

// Plans in a row that found nothing to do while nothing was in flight: more than it takes to let somebody in.
constexpr int32_t kEmptyPlansMax = 4;

}  // namespace

bool Scheduler::Grow(uint32_t index, int64_t block_end, PageEnds page_ends) {
  const Request& r = requests_[index];
  const int32_t slot = r.slot();
  if (cache_.Covers(slot, block_end, page_ends)) return true;
  return !HeldBack(r) && cache_.Reserve(slot, block_end, page_ends);
}

// Somebody ahead waits for memory.
bool Scheduler::HeldBack(const Request& r) const {
  return (starved_.has_value() && *starved_ < r.key) || (stalled_.has_value() && *stalled_ < r.key);
}

bool Scheduler::MakeRoom(uint32_t index, int64_t block_end, PageEnds page_ends) {
  const Request& r = requests_[index];
  while (!Grow(index, block_end, page_ends)) {
    // Its own steps in flight may give pages back: wait for them first.
    const bool may_preempt = r.in_flight == 0 && room_on_its_way_ == 0 && !HeldBack(r);
    if (!may_preempt || !PreemptOneBehind(r, false)) {
      NoteStalled(r);
      return false;
    }
  }
  return true;
}

void Scheduler::NoteStalled(const Request& r) {
  ++stats_.stalls;
  if (!stalled_.has_value() || r.key < *stalled_) stalled_ = r.key;
}

// A request that began at a hit under kBounded cannot be run again to the same bits: its blocks may be gone. Swapping
// it to host memory would make it one that can be preempted; here is where that would be decided.
bool Scheduler::CanPreempt(const Request& r) const {
  if (std::holds_alternative<state::Draining>(r.state)) return false;
  return r.replay != Replay::kBounded || r.hit <= config_.layers.window;
}

bool Scheduler::PreemptOneBehind(const Request& r, bool lower_priority_only) {
  for (size_t i = running_.size(); i-- > 0;) {
    const Request& victim = requests_[running_[i]];
    if (victim.key <= r.key) return false;
    if (!CanPreempt(victim) || (lower_priority_only && victim.priority >= r.priority)) continue;
    Preempt(running_[i]);
    return true;
  }
  return false;
}

void Scheduler::Preempt(uint32_t index) {
  Request& r = requests_[index];
  ++stats_.preemptions;
  ++room_on_its_way_;
  SlotLease lease = r.TakeLease();
  r.state = state::Draining{std::move(lease), true, true, EndReason::kFinished};
  if (r.drained()) FinishDraining(index);
}

// Nothing is in flight and nothing can be planned: somebody waits for memory that others hold whom he cannot preempt,
// and they wait for him. Then order does not count: the last that can be preempted makes room.
void Scheduler::BreakStall() {
  if (flights_used_ > 0 || (running_.empty() && queue_.empty())) {
    empty_plans_ = 0;
    return;
  }
  if (++empty_plans_ < kEmptyPlansMax) return;
  empty_plans_ = 0;
  for (size_t i = running_.size(); i-- > 0;) {
    if (!CanPreempt(requests_[running_[i]])) continue;
    ++stats_.yields;
    return Preempt(running_[i]);
  }
  End(running_.empty() ? queue_.front() : running_.back(), EndReason::kNoRoom);
}

}  // namespace deepinfer::sched
