// SPDX-License-Identifier: Apache-2.0
// From the queue to the first row: room, hits, and where computing begins.
#include <algorithm>

#include "sched/scheduler.h"

namespace deepinfer::sched {
namespace {

using kv::kBlockTokens;
using kv::kEarly;
using kv::kLate;

// A refused request that is still too large for what is free is looked at again after this many steps, because others
// may have published blocks of its prompt meanwhile.
constexpr int64_t kRetrySteps = 16;
// Waiting requests that are tried, one behind the other, until one fits.
constexpr size_t kTries = 4;

}  // namespace

// Blocks that must be there to let a request in: for what is known of it and one token more; for all that it may become
// where it cannot be preempted later.
int64_t Scheduler::BlocksToAdmit(const Request& r) const {
  const int64_t rows = r.replay == Replay::kBounded ? r.length_max - 1 : std::min(r.length() + 1, r.length_max - 1);
  return (rows + kBlockTokens - 1) / kBlockTokens;
}

// The same for pages: those that cannot be preempted must all be able to go on at the same time.
bool Scheduler::PagesToAdmit(const Request& r) const {
  if (r.replay != Replay::kBounded) return true;
  int64_t requests = 1;
  for (const uint32_t index : running_) requests += requests_[index].replay == Replay::kBounded;
  for (const int32_t pages : config_.pages) {
    if (pages > 0 && requests * config_.pages_per_request_min() > pages) return false;
  }
  return true;
}

void Scheduler::Admit() {
  if (starved_.has_value()) return;
  for (size_t at = 0; at < queue_.size() && at < kTries;) {
    const uint32_t index = queue_[at];
    if (cache_.HasSlot() && TryAdmit(index)) {
      queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(at));
      stats_.bypasses += at > 0;
      bool enough = false;  // somebody ahead was passed as often as he may be
      for (size_t i = 0; i < at; ++i) enough = ++requests_[queue_[i]].bypassed >= config_.bypass_max || enough;
      if (enough) return;
      continue;
    }
    if (at == 0 && room_on_its_way_ == 0 && PreemptOneBehind(requests_[index], true) && room_on_its_way_ == 0) continue;
    if (!cache_.HasSlot() || requests_[index].bypassed >= config_.bypass_max) return;
    ++at;
  }
}

// What is free and not promised: to running prompts the rest of theirs, to decodes one block to grow into, to requests
// that cannot be preempted all that they may need.
int64_t Scheduler::FreeForAdmission() const {
  int64_t free = cache_.available_blocks();
  for (const uint32_t index : running_) {
    const Request& r = requests_[index];
    if (std::holds_alternative<state::Draining>(r.state)) continue;
    const bool decoding = std::holds_alternative<state::Decoding>(r.state) && r.replay != Replay::kBounded;
    free -= decoding ? 1 : std::max<int64_t>(0, BlocksToAdmit(r) - cache_.blocks().end(r.slot()));
  }
  return free;
}

bool Scheduler::TryAdmit(uint32_t index) {
  Request& r = requests_[index];
  if (!PagesToAdmit(r)) return false;
  const int64_t free = FreeForAdmission();
  const bool refused_lately = r.refused_step >= 0 && next_step_ - r.refused_step < kRetrySteps;
  if (refused_lately && r.blocks_wanted > free) return false;
  state::Following following{cache_.TakeSlot(), false};
  TakeHits(&r, &following);
  // Hits that were cached are free no more.
  const int64_t left = FreeForAdmission();
  const int64_t wanted = BlocksToAdmit(r) - cache_.blocks().end(following.lease.slot());
  if (wanted > left) {
    r.blocks_wanted = wanted + (free - left);
    r.refused_step = next_step_;
    cache_.Release(std::move(following.lease));
    return false;
  }
  r.state = std::move(following);
  InsertOrdered(&running_, index);
  return true;
}

// Whole blocks that it may take from others: at least one row must run, and a recipe may say less.
int64_t Scheduler::HitBlocksMax(const Request& r) const {
  const int64_t window = config_.layers.window;
  int64_t blocks = std::min((r.prefill_target() - 1) / kBlockTokens, static_cast<int64_t>(r.chain.size()));
  switch (r.replay) {
    case Replay::kNone:
      return 0;
    case Replay::kExact:
      return blocks;
    case Replay::kDecoder:
      while (!HitAllowed(config_.layers, r.replay, r.prompt_length, blocks * kBlockTokens)) --blocks;
      return blocks;
    case Replay::kBounded:
      // Resumed: only requests that began within a window of position 0 are, whose replay is exact for any such hit.
      return r.hit < 0 ? blocks : std::min(blocks, window / kBlockTokens);
  }
  return 0;
}

// Takes whatever is there of the next blocks. True: the next one is being computed by somebody ahead, worth waiting
// for. (For one behind it would not be: that one may wait for this request.)
bool Scheduler::TakeHits(Request* r, state::Following* following) {
  const int32_t slot = following->lease.slot();
  const int64_t max = HitBlocksMax(*r);
  for (int64_t block = cache_.blocks().end(slot); block < max; ++block) {
    const kv::BlockName& chain = r->chain[static_cast<size_t>(block)];
    kv::PrefixIndex::Found found = cache_.index().Find(NameOf(chain, kv::BlockClass::kPure));
    if (found.block == kv::kNoBlock && r->replay == Replay::kBounded) {
      found = cache_.index().Find(NameOf(chain, kv::BlockClass::kReplayed));
    }
    if (found.block == kv::kNoBlock) {
      stats_.takeovers += following->waited;
      return false;
    }
    if (!found.ready) {
      following->waited = requests_[found.owner].key < r->key;
      return following->waited;
    }
    cache_.ShareBlock(slot, found.block);
    stats_.blocks_followed += following->waited;
    following->waited = false;
  }
  return false;
}

void Scheduler::Follow(uint32_t index) {
  Request& r = requests_[index];
  if (!TakeHits(&r, &std::get<state::Following>(r.state))) BeginPrefill(index);
}

std::span<int32_t> Scheduler::RunFrom(int32_t slot) {
  const size_t n = starts_scratch_.size();
  return {starts_.data() + static_cast<size_t>(slot) * n, n};
}

ReplayStarts Scheduler::StartsAt(const Request& r, int32_t slot, int64_t hit, std::span<int32_t> run_from) {
  ReplayInput in;
  in.setting = r.replay;
  in.prompt_length = r.prompt_length;
  in.length = r.prefill_target();
  in.hit = hit;
  if (hit > 0 && r.replay != Replay::kBounded) {
    const kv::BlockId last = cache_.blocks().at(slot, hit / kBlockTokens - 1);
    in.early_snapshot = cache_.snapshots().Has(last, kEarly);
    in.late_snapshot = cache_.snapshots().Has(last, kLate);
  }
  const bool keeps = config_.snapshot_pages[kEarly] + config_.snapshot_pages[kLate] > 0;
  if (keeps && r.replay == Replay::kExact) in.keep_at = in.length / kBlockTokens * kBlockTokens;
  return ComputeReplay(config_.layers, in, run_from);
}

// All that was hit, or less: a snapshot further down can be cheaper than rebuilding windows at the end. Which one is
// taken changes no bit.
int64_t Scheduler::ChooseHit(const Request& r, int32_t slot) {
  int64_t hit = cache_.blocks().end(slot) * kBlockTokens;
  while (!HitAllowed(config_.layers, r.replay, r.prompt_length, hit)) hit -= kBlockTokens;
  if (r.replay != Replay::kExact && r.replay != Replay::kDecoder) return hit;
  int64_t best = hit;
  int64_t best_cost = StartsAt(r, slot, hit, starts_scratch_).token_layers;
  const int64_t early_layers = config_.layers.first_late();
  for (int64_t point = hit - kBlockTokens; point > 0; point -= kBlockTokens) {
    // The early layers run on all rows from there on, less the last one's last.
    if ((r.prefill_target() - point) * (early_layers - 1) >= best_cost) break;
    if (!cache_.snapshots().Has(cache_.blocks().at(slot, point / kBlockTokens - 1), kEarly)) continue;
    if (!HitAllowed(config_.layers, r.replay, r.prompt_length, point)) continue;
    const int64_t cost = StartsAt(r, slot, point, starts_scratch_).token_layers;
    if (cost < best_cost) {
      best = point;
      best_cost = cost;
    }
  }
  return best;
}

void Scheduler::BeginPrefill(uint32_t index) {
  Request& r = requests_[index];
  const int32_t slot = r.slot();
  const int64_t hit = ChooseHit(r, slot);
  const std::span<int32_t> run_from = RunFrom(slot);
  cache_.TruncateBlocks(slot, hit / kBlockTokens);
  r.starts = StartsAt(r, slot, hit, run_from);
  const auto late_layer = static_cast<size_t>(std::min(config_.layers.first_late(), config_.layers.num_layers - 1));
  const int64_t from[kv::kLayerGroups] = {r.starts.first_row, run_from[late_layer]};
  for (const kv::LayerGroup group : {kEarly, kLate}) {
    if (r.starts.uses_snapshot[group]) {
      cache_.SharePages(slot, group, cache_.blocks().at(slot, hit / kBlockTokens - 1), hit);
    } else {
      cache_.StartPages(slot, group, from[group]);
    }
  }
  if (r.replay == Replay::kBounded && r.hit < 0) r.hit = hit;
  r.block_class =
      r.replay == Replay::kBounded && hit > config_.layers.window ? kv::BlockClass::kReplayed : kv::BlockClass::kPure;
  r.cached = hit;
  r.computed = r.starts.first_row;
  r.published = hit / kBlockTokens;
  stats_.prompt_tokens += r.prefill_target();
  stats_.cached_tokens += hit;
  stats_.replayed_rows += std::max<int64_t>(0, hit - r.starts.first_row);
  stats_.snapshot_hits += r.starts.uses_snapshot[kEarly] || r.starts.uses_snapshot[kLate];
  SlotLease lease = r.TakeLease();
  r.state = state::Prefilling{std::move(lease), r.starts.first_row, r.prefill_target()};
  AnnounceAhead(index);
}

}  // namespace deepinfer::sched
