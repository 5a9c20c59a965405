// SPDX-License-Identifier: Apache-2.0
// Results of a step: tokens, blocks that are complete now, windows worth keeping, pages that nobody reads any more.
#include <algorithm>

#include "sched/scheduler.h"

namespace deepinfer::sched {
namespace {

using kv::kBlockTokens;
using kv::kEarly;
using kv::kLate;

}  // namespace

void Scheduler::Complete(const StepResult& result) {
  DI_CHECK(flights_used_ > 0);
  const Flight& flight = flights_[static_cast<size_t>(flights_first_)];
  DI_CHECK(result.step == flight.step);
  DI_CHECK(result.entries.size() == flight.entries.size() && result.forks.size() == flight.forks.size());
  for (size_t i = 0; i < flight.entries.size(); ++i) Apply(flight.entries[i], result.entries[i], result.tokens);
  for (size_t i = 0; i < flight.forks.size(); ++i) Apply(flight.forks[i], result.forks[i], result.tokens);
  flights_first_ = (flights_first_ + 1) % config_.steps_in_flight;
  --flights_used_;
}

void Scheduler::Apply(const FlightEntry& entry, const EntryResult& result, std::span<const int32_t> tokens) {
  Request& r = requests_[entry.request];
  --r.in_flight;
  r.pending_min -= entry.tokens_max > 0;
  r.pending_max -= entry.tokens_max;
  const auto* draining = std::get_if<state::Draining>(&r.state);
  if (draining != nullptr && !draining->preempted) {
    ++stats_.late_results;
    if (r.drained()) FinishDraining(entry.request);
    return;
  }
  if (result.failed) return End(entry.request, EndReason::kFailed);
  Commit(&r, entry, tokens.subspan(static_cast<size_t>(result.first_token), static_cast<size_t>(result.num_tokens)));
  if (result.finished || r.length() >= r.length_max) return End(entry.request, EndReason::kFinished);
  cache_.SlidePages(r.slot(), r.computed);
  if (draining != nullptr && r.drained()) FinishDraining(entry.request);
}

void Scheduler::Commit(Request* r, const FlightEntry& entry, std::span<const int32_t> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  DI_CHECK(count <= entry.tokens_max);
  DI_CHECK(count > 0 || entry.tokens_max == 0 || entry.kind == EntryKind::kDecode);
  DI_CHECK(r->length() + count <= r->length_max);
  r->computed = entry.kind == EntryKind::kPrefill ? entry.end : r->computed + count;
  r->tokens.insert(r->tokens.end(), tokens.begin(), tokens.end());
  Publish(r);
}

void Scheduler::Publish(Request* r) {
  const int32_t slot = r->slot();
  const int64_t prompt_end = r->prompt_length / kBlockTokens;
  while ((r->published + 1) * kBlockTokens <= r->computed) {
    const int64_t block = r->published++;
    while (static_cast<int64_t>(r->chain.size()) <= block) {
      const auto ids = std::span<const int32_t>(r->tokens).subspan(r->chain.size() * kBlockTokens);
      r->chain.push_back(r->namer.Next(ids.first<kBlockTokens>(), r->images));
    }
    cache_.index().Publish(NameOf(r->chain[static_cast<size_t>(block)], r->block_class),
                           cache_.blocks().at(slot, block));
    const int64_t every = config_.snapshot_every_blocks;
    if (block + 1 == prompt_end || (every > 0 && (block + 1) % every == 0)) KeepWindows(*r, (block + 1) * kBlockTokens);
  }
}

// Keeps the windows at the last block end at or below `position` for whoever continues there. Pages are worth it if
// every row that they hold had complete windows.
void Scheduler::KeepWindows(const Request& r, int64_t position) {
  const int64_t blocks = position / kBlockTokens;
  if (r.replay == Replay::kBounded || blocks < cache_.pages_per_point() || blocks > r.published) return;
  const auto found = cache_.index().Find(NameOf(r.chain[static_cast<size_t>(blocks - 1)], kv::BlockClass::kPure));
  if (!found.ready) return;
  const int64_t point = blocks * kBlockTokens;
  const int64_t window_begin = std::max<int64_t>(0, point - (config_.layers.window - 1));
  for (const kv::LayerGroup group : {kEarly, kLate}) {
    const bool complete = r.starts.windows_from[group] <= window_begin && r.computed >= point;
    if (!complete || (group == kLate && r.replay == Replay::kDecoder)) continue;
    cache_.KeepSnapshot(r.slot(), group, found.block, point);
  }
}

}  // namespace deepinfer::sched
