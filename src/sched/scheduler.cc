// SPDX-License-Identifier: Apache-2.0
// Records of requests, their order, and how they end. The other parts of the class: admit.cc, plan.cc, room.cc,
// complete.cc.
#include "sched/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer::sched {
namespace {

constexpr int32_t kPriorityMax = 100;

Status CheckImages(const RequestSpec& spec) {
  int64_t end = 0;
  for (size_t i = 0; i < spec.images.size(); ++i) {
    const kv::ImageSpan& image = spec.images[i];
    if (image.begin < end || image.end <= image.begin || image.end > static_cast<int64_t>(spec.prompt.size())) {
      return Error(Code::kInvalidArgument, "images[{}]: positions {}..{} do not ascend within the prompt", i,
                   image.begin, image.end);
    }
    end = image.end;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::Create(const Config& config) {
  DI_RETURN_IF_ERROR(config.Validate());
  return std::unique_ptr<Scheduler>(new Scheduler(config));
}

Scheduler::Scheduler(const Config& config) : config_(config), cache_(config) {
  const auto slots = static_cast<size_t>(config.slots);
  const size_t records = static_cast<size_t>(config.queue_max) + slots;
  requests_.resize(records);
  free_records_.reserve(records);
  for (size_t i = records; i-- > 0;) free_records_.push_back(static_cast<uint32_t>(i));
  queue_.reserve(records);
  running_.reserve(slots);
  ended_.reserve(2 * records);
  candidates_.reserve(slots);
  flights_.resize(static_cast<size_t>(config.steps_in_flight));
  for (Flight& flight : flights_) {
    flight.entries.reserve(slots);
    flight.forks.reserve(slots);
  }
  const auto layers = static_cast<size_t>(config.layers.num_layers) + 1;
  starts_.resize(slots * layers);
  starts_scratch_.resize(layers);
}

Scheduler::~Scheduler() {
  for (const uint32_t index : running_) cache_.Release(requests_[index].TakeLease());
}

Status Scheduler::CheckSpec(const RequestSpec& spec) const {
  const auto length = static_cast<int64_t>(spec.prompt.size());
  if (length == 0) return Error(Code::kInvalidArgument, "prompt: expected at least one token");
  for (size_t i = 0; i < spec.prompt.size(); ++i) {
    if (spec.prompt[i] < 0 || spec.prompt[i] > kv::kTokenIdMax) {
      return Error(Code::kInvalidArgument, "prompt[{}]: token id {} is not in 0..{}", i, spec.prompt[i],
                   kv::kTokenIdMax);
    }
  }
  if (spec.length_max <= length || spec.length_max > config_.length_max) {
    return Error(Code::kInvalidArgument, "length_max: {} tokens for a prompt of {}; expected {}..{}", spec.length_max,
                 length, length + 1, config_.length_max);
  }
  const int64_t blocks = (spec.length_max - 1 + kv::kBlockTokens - 1) / kv::kBlockTokens;
  if (blocks > config_.blocks) {
    return Error(Code::kInvalidArgument, "length_max: {} tokens need {} cache blocks, there are {}", spec.length_max,
                 blocks, config_.blocks);
  }
  if (static_cast<int64_t>(spec.names.chain.size()) != length / kv::kBlockTokens ||
      spec.names.namer.blocks() != length / kv::kBlockTokens) {
    return Error(Code::kInvalidArgument, "names: expected those of {} blocks, found {}", length / kv::kBlockTokens,
                 spec.names.chain.size());
  }
  if (spec.choices < 1 || spec.choices > config_.choices_max) {
    return Error(Code::kInvalidArgument, "choices: expected 1..{}, found {}", config_.choices_max, spec.choices);
  }
  if (spec.drafts < 0 || spec.drafts > config_.draft_rows) {
    return Error(Code::kInvalidArgument, "drafts: expected 0..{}, found {}", config_.draft_rows, spec.drafts);
  }
  if (spec.firm_drafts && config_.step_rows_max <= config_.slots * (1 + config_.draft_rows)) {
    return Error(Code::kInvalidArgument, "firm_drafts: they need steps of more than {} rows, these have {}",
                 config_.slots * (1 + config_.draft_rows), config_.step_rows_max);
  }
  if (spec.priority < -kPriorityMax || spec.priority > kPriorityMax) {
    return Error(Code::kInvalidArgument, "priority: expected {}..{}, found {}", -kPriorityMax, kPriorityMax,
                 spec.priority);
  }
  return CheckImages(spec);
}

Result<std::vector<RequestId>> Scheduler::Submit(RequestSpec spec, int64_t now_ms) {
  DI_RETURN_IF_ERROR(CheckSpec(spec));
  if (static_cast<size_t>(spec.choices) > free_records_.size()) {
    return Error(Code::kResourceExhausted, "the queue is full: {} requests wait or run",
                 requests_.size() - free_records_.size());
  }
  std::vector<RequestId> ids;
  ids.reserve(static_cast<size_t>(spec.choices));
  for (int32_t choice = 0; choice < spec.choices; ++choice) {
    const uint32_t index = NewRecord(spec, spec.names, now_ms);
    ids.push_back(IdOf(index));
    if (choice == 0) {
      InsertOrdered(&queue_, index);
      continue;
    }
    requests_[index].state = state::Forking{ids[0].index};
    requests_[ids[0].index].forking.push_back(index);
  }
  return ids;
}

uint32_t Scheduler::NewRecord(const RequestSpec& spec, kv::PromptNames names, int64_t now_ms) {
  const uint32_t index = free_records_.back();
  free_records_.pop_back();
  Request& r = requests_[index];
  const uint32_t generation = r.generation;
  r = Request{};
  r.live = true;
  r.generation = generation;
  r.key = {now_ms - spec.priority * config_.priority_head_start_ms, next_sequence_++};
  r.priority = spec.priority;
  r.replay = spec.replay;
  r.drafts = spec.drafts;
  r.firm_drafts = spec.firm_drafts;
  r.prompt_length = static_cast<int64_t>(spec.prompt.size());
  r.length_max = spec.length_max;
  r.tokens.reserve(static_cast<size_t>(spec.length_max));
  r.tokens.assign(spec.prompt.begin(), spec.prompt.end());
  r.images = spec.images;
  r.namer = names.namer;
  r.chain.reserve(static_cast<size_t>(spec.length_max / kv::kBlockTokens));
  r.chain.assign(names.chain.begin(), names.chain.end());
  return index;
}

Request* Scheduler::Find(RequestId id) {
  if (id.index >= requests_.size()) return nullptr;
  Request& r = requests_[id.index];
  return r.live && r.generation == id.generation ? &r : nullptr;
}

const Request* Scheduler::Find(RequestId id) const { return const_cast<Scheduler*>(this)->Find(id); }

void Scheduler::InsertOrdered(std::vector<uint32_t>* list, uint32_t index) {
  list->insert(
      std::lower_bound(list->begin(), list->end(), index, [this](uint32_t a, uint32_t b) { return Before(a, b); }),
      index);
}

void Scheduler::EraseOrdered(std::vector<uint32_t>* list, uint32_t index) {
  const auto at =
      std::lower_bound(list->begin(), list->end(), index, [this](uint32_t a, uint32_t b) { return Before(a, b); });
  DI_CHECK(at != list->end() && *at == index);
  list->erase(at);
}

bool Scheduler::Cancel(RequestId id) {
  Request* r = Find(id);
  if (r == nullptr) return false;
  const auto* draining = std::get_if<state::Draining>(&r->state);
  if (draining != nullptr && !draining->preempted) return false;
  ++stats_.cancels[r->state.index()];
  End(id.index, EndReason::kCancelled);
  return true;
}

void Scheduler::SetDrafts(RequestId id, int32_t drafts) {
  DI_CHECK(drafts >= 0 && drafts <= config_.draft_rows);
  if (Request* r = Find(id)) r->drafts = drafts;
}

void Scheduler::End(uint32_t index, EndReason reason) {
  Request& r = requests_[index];
  QueueForks(&r);
  if (std::holds_alternative<state::Queued>(r.state)) {
    EraseOrdered(&queue_, index);
    return Retire(index, reason);
  }
  if (const auto* forking = std::get_if<state::Forking>(&r.state)) {
    std::erase(requests_[forking->leader].forking, index);
    return Retire(index, reason);
  }
  const auto* draining = std::get_if<state::Draining>(&r.state);
  const bool makes_room = draining != nullptr && draining->makes_room;
  if (reason != EndReason::kFailed) KeepWindows(r, r.computed);
  SlotLease lease = r.TakeLease();
  r.state = state::Draining{std::move(lease), false, makes_room, reason};
  if (r.drained()) FinishDraining(index);
}

void Scheduler::FinishDraining(uint32_t index) {
  Request& r = requests_[index];
  const auto& draining = std::get<state::Draining>(r.state);
  const bool preempted = draining.preempted;
  const EndReason reason = draining.reason;
  if (draining.makes_room) --room_on_its_way_;
  if (preempted) KeepWindows(r, r.computed);
  ReleaseCache(index);
  if (!preempted) return Retire(index, reason);
  r.state = state::Queued{};
  r.refused_step = -1;
  InsertOrdered(&queue_, index);
}

void Scheduler::ReleaseCache(uint32_t index) {
  EraseOrdered(&running_, index);
  cache_.Release(requests_[index].TakeLease());
}

void Scheduler::Retire(uint32_t index, EndReason reason) {
  Request& r = requests_[index];
  ++stats_.ended[static_cast<size_t>(reason)];
  ended_.push_back({IdOf(index), reason});
  r.live = false;
  ++r.generation;
  r.state = state::Queued{};
  r.tokens = {};
  r.chain = {};
  r.images = {};
  free_records_.push_back(index);
}

void Scheduler::QueueForks(Request* leader) {
  for (const uint32_t index : leader->forking) {
    requests_[index].state = state::Queued{};
    InsertOrdered(&queue_, index);
    ++stats_.forks_queued;
  }
  leader->forking.clear();
}

void Scheduler::TakeEnded(std::vector<Ended>* ended) {
  ended->assign(ended_.begin(), ended_.end());
  ended_.clear();
}

std::span<const int32_t> Scheduler::Tokens(RequestId id) const {
  const Request* r = Find(id);
  if (r == nullptr) return {};
  return r->tokens;
}

std::optional<size_t> Scheduler::StateOf(RequestId id) const {
  const Request* r = Find(id);
  if (r == nullptr) return std::nullopt;
  return r->state.index();
}

int64_t Scheduler::CachedTokens(RequestId id) const {
  const Request* r = Find(id);
  return r == nullptr ? 0 : r->cached;
}

std::string Scheduler::FindViolation() const {
  const auto ordered = [this](uint32_t a, uint32_t b) { return Before(a, b); };
  if (!std::is_sorted(queue_.begin(), queue_.end(), ordered)) return "the queue is out of order";
  if (!std::is_sorted(running_.begin(), running_.end(), ordered)) return "the running list is out of order";
  std::vector<int32_t> in_flight(requests_.size(), 0);
  for (int32_t i = 0; i < flights_used_; ++i) {
    const Flight& flight = flights_[static_cast<size_t>((flights_first_ + i) % config_.steps_in_flight)];
    for (const FlightEntry& entry : flight.entries) ++in_flight[entry.request];
    for (const FlightEntry& entry : flight.forks) ++in_flight[entry.request];
  }
  int32_t live = 0, with_slot = 0, room = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    const Request& r = requests_[i];
    if (r.in_flight != in_flight[i])
      return fmt::format("request {}: {} steps in flight, not {}", i, in_flight[i], r.in_flight);
    if (!r.live) continue;
    ++live;
    with_slot += r.slot() >= 0;
    const auto* draining = std::get_if<state::Draining>(&r.state);
    room += draining != nullptr && draining->makes_room;
    if (r.in_flight > 0 && r.slot() < 0) return fmt::format("request {} is in flight without a slot", i);
    if (draining != nullptr && r.in_flight == 0) return fmt::format("request {} drains for ever", i);
    if (r.published * kv::kBlockTokens > std::max(r.computed, r.cached))
      return fmt::format("request {} published too much", i);
    if (r.pending_min < 0 || r.pending_max < r.pending_min) return fmt::format("request {}: pending tokens", i);
  }
  if (room != room_on_its_way_) return "room on its way is miscounted";
  if (static_cast<size_t>(with_slot) != running_.size()) return "slots and running requests differ";
  if (static_cast<size_t>(live) + free_records_.size() != requests_.size()) return "records are lost";
  return cache_.FindViolation();
}

}  // namespace deepinfer::sched
