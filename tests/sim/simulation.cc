// SPDX-License-Identifier: Apache-2.0
#include "simulation.h"

#include <algorithm>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "fake_executor.h"

namespace deepinfer::sim {
namespace {

using kv::kEarly;
using kv::kLate;
using sched::Replay;
using sched::RequestId;

constexpr int kRequests = 210;
constexpr int kTemplates = 5;
constexpr int64_t kTemplateTokens = 900;
constexpr int64_t kStepMs = 10;
// Plan calls within which the first in order must get rows: its own steps in flight and those of whoever it preempts
// run out, a few plans find nothing, and one admits it.
constexpr int64_t kProgressPlans = 40;

// Stands for the state of a request that the scheduler has let go.
constexpr size_t kGone = 99;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // 0 .. n - 1.
  int64_t Below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  int64_t Between(int64_t min, int64_t max) { return min + Below(max - min + 1); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Below(static_cast<int64_t>(values.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

sched::Config RandomConfig(Random* random) {
  sched::Config config;
  config.layers.num_layers = static_cast<int32_t>(random->Between(1, 4));
  config.layers.window = random->Pick({2, 16, 100, 128, 128, 128, 200});
  for (int32_t layer = 0; layer < config.layers.num_layers; ++layer) {
    if (random->OneIn(2)) config.layers.kv_sources.push_back(layer);
  }
  config.slots = static_cast<int32_t>(random->Between(1, 8));
  config.queue_max = 64;
  config.choices_max = 6;
  config.length_max = 1 << 14;
  config.draft_rows = random->OneIn(2) ? 0 : static_cast<int32_t>(random->Between(1, 6));
  config.steps_in_flight = static_cast<int32_t>(random->Between(1, 3));
  config.prefill_rows_max = static_cast<int32_t>(random->Pick({16, 100, 128, 256, 512}));
  config.step_rows_max = config.slots + static_cast<int32_t>(random->Between(1, config.prefill_rows_max + 20));
  config.blocks = static_cast<int32_t>(random->Between(10, random->OneIn(2) ? 16 : 60));
  const int32_t window_pages = config.pages_per_request_min();
  const bool has_group[] = {config.layers.first_late() > 0,
                            config.layers.first_late() < config.layers.num_layers || config.draft_rows > 0};
  for (const auto group : {kEarly, kLate}) {
    if (!has_group[group]) continue;
    config.pages[group] = window_pages + static_cast<int32_t>(random->Below(window_pages * config.slots + 10));
    config.snapshot_pages[group] = static_cast<int32_t>(random->Below(config.pages[group] / 2 + 1));
  }
  config.snapshot_every_blocks = static_cast<int32_t>(random->Pick({0, 0, 1, 2}));
  config.bypass_max = static_cast<int32_t>(random->Pick({0, 2, 64}));
  config.priority_head_start_ms = random->Pick({0, 100, 2000});
  return config;
}

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed), config_(RandomConfig(&random_)) {
    bounded_ = random_.OneIn(2);
    cancels_ = random_.Pick({0, 20, 60});
    gap_steps_ = random_.Pick({1, 3, 6});
    for (auto& tokens : templates_) {
      for (int64_t i = 0; i < kTemplateTokens; ++i) tokens.push_back(static_cast<int32_t>(random_.Below(1000)));
    }
    auto scheduler = sched::Scheduler::Create(config_);
    DI_CHECK(scheduler.ok());
    scheduler_ = std::move(*scheduler);
    executor_ = std::make_unique<FakeExecutor>(scheduler_.get(), seed);
    plan_ = scheduler_->MakePlan();
  }

  Report Run() {
    while (report_.error.empty() && !(submitted_ >= kRequests && scheduler_->idle())) {
      clock_ms_ += kStepMs;
      if (submitted_ < kRequests && random_.OneIn(gap_steps_)) Submit();
      if (cancels_ > 0 && random_.OneIn(cancels_)) CancelOne();
      // The host is ahead of the device by as many steps as it likes.
      if (random_.OneIn(3) || executor_->steps() == 0) Plan();
      if (random_.OneIn(2) || executor_->steps() == static_cast<size_t>(config_.steps_in_flight)) Complete();
      TakeEnded();
      Check();
      if (++turns_ > 400000) Fail("{} requests do not come to an end", live_.size());
    }
    if (report_.error.empty()) CheckDrained();
    report_.stats = scheduler_->stats();
    report_.requests = submitted_;
    report_.evictions = scheduler_->cache().evictions();
    return report_;
  }

 private:
  struct Client {
    RequestId id;
    std::vector<int32_t> tokens;  // prompt and what was streamed
    int64_t prompt_length = 0;
    int64_t stop_length = 0;
    uint32_t choice = 0;
    bool fails = false;
    bool bounded = false;
    bool done = false;  // it finished, failed or was cancelled: what arrives later is late
    sched::OrderKey key;
    int64_t submitted_turn = 0;
    bool started = false;
    size_t state_before = 0;
    int32_t passes = 0;
  };

  template <typename... Args>
  void Fail(fmt::format_string<Args...> format, Args&&... args) {
    if (report_.error.empty())
      report_.error = fmt::format("turn {}: ", turns_) + fmt::format(format, std::forward<Args>(args)...);
  }

  std::vector<int32_t> RandomPrompt() {
    if (!last_prompt_.empty() && random_.OneIn(4)) return last_prompt_;  // bursts of the same
    return last_prompt_ = FreshPrompt();
  }

  std::vector<int32_t> FreshPrompt() {
    const auto& shared = templates_[static_cast<size_t>(random_.Below(kTemplates))];
    const int64_t longest = std::min<int64_t>(kTemplateTokens, config_.blocks * kv::kBlockTokens / 2);
    const int64_t length = random_.OneIn(3)   ? random_.Pick<int64_t>({1, 2, 127, 128, 129, 255, 256, 257, 384})
                           : random_.OneIn(2) ? random_.Between(1, 200)
                                              : random_.Between(1, longest);
    std::vector<int32_t> prompt(shared.begin(), shared.begin() + std::min(length, longest));
    // Most prompts leave their template somewhere.
    if (!random_.OneIn(3)) {
      for (auto i = static_cast<size_t>(random_.Below(static_cast<int64_t>(prompt.size()))); i < prompt.size(); ++i) {
        prompt[i] = static_cast<int32_t>(random_.Below(1000));
      }
    }
    return prompt;
  }

  void Submit() {
    sched::RequestSpec spec;
    spec.prompt = RandomPrompt();
    spec.names = kv::NamePrompt(kv::BlockNamer("m", "n", ""), spec.prompt, {});
    const auto length = static_cast<int64_t>(spec.prompt.size());
    const int64_t room = int64_t{config_.blocks} * kv::kBlockTokens;
    spec.length_max = std::min(room, length + random_.Between(1, random_.OneIn(8) ? 300 : 60));
    spec.replay = random_.OneIn(4)               ? Replay::kDecoder
                  : bounded_ && random_.OneIn(4) ? Replay::kBounded
                  : random_.OneIn(12)            ? Replay::kNone
                                                 : Replay::kExact;
    spec.priority = static_cast<int32_t>(random_.Pick({0, 0, 0, -1, 1}));
    spec.choices = random_.OneIn(8) ? static_cast<int32_t>(random_.Between(2, config_.choices_max)) : 1;
    spec.drafts = static_cast<int32_t>(random_.Between(0, config_.draft_rows));
    spec.firm_drafts = spec.drafts > 0 && config_.step_rows_max > config_.slots * (1 + config_.draft_rows) && random_.OneIn(3);
    const std::vector<int32_t> prompt = spec.prompt;
    const int64_t length_max = spec.length_max;
    const bool bounded = spec.replay == Replay::kBounded;
    const int32_t priority = spec.priority;
    const Replay replay = spec.replay;
    auto ids = scheduler_->Submit(std::move(spec), clock_ms_);
    if (!ids.ok()) {
      if (ids.status().code() != Code::kResourceExhausted) Fail("{}", ids.status().message());
      return;
    }
    for (uint32_t choice = 0; choice < ids->size(); ++choice) {
      Client client;
      client.id = (*ids)[choice];
      client.tokens = prompt;
      client.prompt_length = length;
      client.stop_length = random_.OneIn(2) ? length_max : random_.Between(length + 1, length_max);
      client.choice = choice;
      client.fails = random_.OneIn(30);
      client.bounded = bounded;
      client.key = {clock_ms_ - priority * config_.priority_head_start_ms, sequence_++};
      client.submitted_turn = turns_;
      executor_->Add(client.id, prompt, replay, choice, client.stop_length, client.fails);
      live_.emplace(client.id.index, std::move(client));
      ++submitted_;
    }
  }

  void CancelOne() {
    if (live_.empty()) return;
    auto it = live_.begin();
    std::advance(it, random_.Below(static_cast<int64_t>(live_.size())));
    if (scheduler_->Cancel(it->second.id)) it->second.done = true;
  }

  void Plan() {
    const bool full = scheduler_->steps_out() == config_.steps_in_flight;
    for (auto& [index, client] : live_) client.state_before = scheduler_->StateOf(client.id).value_or(kGone);
    const int64_t preemptions = scheduler_->stats().preemptions;
    const bool planned = scheduler_->Plan(&plan_);
    // Where somebody was preempted, who waits now may have been let in just before.
    if (scheduler_->stats().preemptions == preemptions) CountPasses();
    if (planned && full) Fail("a plan beyond steps_in_flight");
    if (!full) WatchFirst(planned);
    if (!planned) return;
    for (const sched::PlanEntry& entry : plan_.entries) {
      Client& client = live_.at(entry.request.index);
      if (!client.started)
        report_.longest_wait_steps = std::max(report_.longest_wait_steps, turns_ - client.submitted_turn);
      client.started = true;
    }
    PlannedIds& ids = planned_[static_cast<size_t>(plan_.step) % planned_.size()];
    ids.entries.clear();
    ids.forks.clear();
    for (const sched::PlanEntry& entry : plan_.entries) ids.entries.push_back(entry.request);
    for (const sched::Fork& fork : plan_.forks) ids.forks.push_back(fork.request);
    executor_->Launch(plan_);
  }

  // In all its life nobody is passed, while it waits, by more than bypass_max that come later in order.
  void CountPasses() {
    for (const auto& [index, admitted] : live_) {
      if (admitted.state_before != 0 || scheduler_->StateOf(admitted.id).value_or(0) < 2) continue;
      for (auto& [other_index, client] : live_) {
        const bool waits = client.state_before == 0 && scheduler_->StateOf(client.id) == size_t{0};
        if (waits && client.key < admitted.key && ++client.passes > config_.bypass_max) {
          Fail("request {} was passed by {}", client.id.index, client.passes);
        }
      }
    }
  }

  // The first in order of those that run gets rows again and again, whatever the others do; and if nobody runs, the
  // first that waits is let in.
  void WatchFirst(bool planned) {
    const Client* first = nullptr;
    bool first_runs = false;
    for (const auto& [index, client] : live_) {
      if (client.bounded) return;  // those may hold memory that nobody can take from them
      const size_t state = scheduler_->StateOf(client.id).value_or(kGone);
      if (client.done || state == kGone) continue;
      const bool runs = state > 1;
      if (first == nullptr || (runs && !first_runs) || (runs == first_runs && client.key < first->key)) first = &client;
      first_runs = first_runs || runs;
    }
    if (first == nullptr) return;
    bool served = !(first->key == watched_);
    watched_ = first->key;
    if (planned) {
      for (const sched::PlanEntry& entry : plan_.entries) served = served || entry.request == first->id;
    }
    unserved_plans_ = served ? 0 : unserved_plans_ + 1;
    if (unserved_plans_ > kProgressPlans) Fail("request {} is first in order and gets nothing", first->id.index);
  }

  void Complete() {
    if (executor_->steps() == 0) return;
    const sched::StepResult& result = executor_->Finish();
    const PlannedIds& ids = planned_[static_cast<size_t>(result.step) % planned_.size()];
    for (size_t i = 0; i < result.entries.size(); ++i) Stream(ids.entries[i], result.entries[i], result.tokens);
    for (size_t i = 0; i < result.forks.size(); ++i) Stream(ids.forks[i], result.forks[i], result.tokens);
    scheduler_->Complete(result);
    for (const RequestId id : ids.entries) CompareTokens(id);
  }

  void Stream(RequestId id, const sched::EntryResult& result, std::span<const int32_t> tokens) {
    const auto it = live_.find(id.index);
    if (it == live_.end() || it->second.id != id) return Fail("a result for request {}, which is gone", id.index);
    Client& client = it->second;
    if (client.done) return;
    if (result.failed) {
      client.done = true;
      return;
    }
    const auto begin = tokens.begin() + result.first_token;
    client.tokens.insert(client.tokens.end(), begin, begin + result.num_tokens);
    client.done = result.finished;
  }

  void CompareTokens(RequestId id) {
    const Client& client = live_.at(id.index);
    const auto tokens = scheduler_->Tokens(id);
    if (client.done || tokens.empty()) return;
    if (!std::equal(tokens.begin() + client.prompt_length, tokens.end(), client.tokens.begin() + client.prompt_length,
                    client.tokens.end())) {
      Fail("request {}: the scheduler and its caller disagree about the tokens", id.index);
    }
  }

  void TakeEnded() {
    scheduler_->TakeEnded(&ended_);
    for (const sched::Ended& ended : ended_) {
      const auto it = live_.find(ended.request.index);
      if (it == live_.end() || it->second.id != ended.request) {
        Fail("request {} ended twice", ended.request.index);
        continue;
      }
      CheckEnd(it->second, ended.reason);
      live_.erase(it);
    }
  }

  void CheckEnd(const Client& client, sched::EndReason reason) {
    if (scheduler_->Tokens(client.id).size() != 0) Fail("request {} ended and is still there", client.id.index);
    if (reason == sched::EndReason::kNoRoom) Fail("request {} found no room", client.id.index);
    if (reason == sched::EndReason::kFailed && !client.fails) Fail("request {} failed", client.id.index);
    uint64_t signature = FakeExecutor::kEmpty;
    for (size_t i = 0; i < client.tokens.size(); ++i) {
      const int32_t token = client.tokens[i];
      if (i >= static_cast<size_t>(client.prompt_length) &&
          token != FakeExecutor::NextToken(signature, client.choice)) {
        return Fail("request {}: token {} is not the one that it gives alone", client.id.index, i);
      }
      signature = FakeExecutor::Extend(signature, token);
    }
    const bool whole = static_cast<int64_t>(client.tokens.size()) == client.stop_length;
    if (reason == sched::EndReason::kFinished && !whole) {
      Fail("request {} finished with {} of {} tokens", client.id.index, client.tokens.size(), client.stop_length);
    }
  }

  void Check() {
    if (!executor_->violation().empty()) Fail("{}", executor_->violation());
    std::string violation = scheduler_->FindViolation();
    if (!violation.empty()) Fail("{}", violation);
  }

  void CheckDrained() {
    if (!live_.empty()) Fail("{} requests never ended", live_.size());
    const sched::Cache& cache = scheduler_->cache();
    if (cache.block_pool().num_held() != 0) Fail("{} blocks leaked", cache.block_pool().num_held());
    for (const auto group : {kEarly, kLate}) {
      // Each reference was accounted for by Check; snapshots side by side may share pages.
      if (cache.page_pool(group).num_held() > cache.snapshots().pages_held(group)) Fail("pages leaked");
    }
  }

  struct PlannedIds {
    std::vector<RequestId> entries, forks;
  };

  Random random_;
  sched::Config config_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::unique_ptr<FakeExecutor> executor_;
  sched::StepPlan plan_;
  std::array<std::vector<int32_t>, kTemplates> templates_;
  std::vector<int32_t> last_prompt_;
  std::unordered_map<uint32_t, Client> live_;
  std::array<PlannedIds, 8> planned_;
  std::vector<sched::Ended> ended_;
  bool bounded_ = false;
  int64_t cancels_ = 0, gap_steps_ = 1;
  int64_t clock_ms_ = 0, turns_ = 0, submitted_ = 0, unserved_plans_ = 0;
  uint64_t sequence_ = 0;
  sched::OrderKey watched_;
  Report report_;
};

}  // namespace

void Report::Add(const Report& other) {
  const auto add = [](int64_t& to, int64_t from) { to += from; };
  add(stats.steps, other.stats.steps);
  add(stats.rows, other.stats.rows);
  add(stats.prompt_tokens, other.stats.prompt_tokens);
  add(stats.cached_tokens, other.stats.cached_tokens);
  add(stats.replayed_rows, other.stats.replayed_rows);
  add(stats.snapshot_hits, other.stats.snapshot_hits);
  add(stats.preemptions, other.stats.preemptions);
  add(stats.forks, other.stats.forks);
  add(stats.forks_queued, other.stats.forks_queued);
  add(stats.blocks_followed, other.stats.blocks_followed);
  add(stats.takeovers, other.stats.takeovers);
  add(stats.bypasses, other.stats.bypasses);
  add(stats.stalls, other.stats.stalls);
  add(stats.yields, other.stats.yields);
  add(stats.late_results, other.stats.late_results);
  for (size_t i = 0; i < stats.cancels.size(); ++i) add(stats.cancels[i], other.stats.cancels[i]);
  for (size_t i = 0; i < stats.ended.size(); ++i) add(stats.ended[i], other.stats.ended[i]);
  add(requests, other.requests);
  add(evictions, other.evictions);
  longest_wait_steps = std::max(longest_wait_steps, other.longest_wait_steps);
}

Report RunSimulation(uint64_t seed) { return Simulation(seed).Run(); }

}  // namespace deepinfer::sim
