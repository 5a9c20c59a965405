// SPDX-License-Identifier: Apache-2.0
#include "engine/step_executor.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "core/check.h"
#include "engine/warm_up.h"

namespace deepinfer::engine {

using model::deepseek_v41::Segment;
using sched::EntryKind;
using sched::PlanEntry;

namespace {

using Clock = std::chrono::steady_clock;

// Tests changed the drafts: as if they could have been no others.
void SetCertain(size_t vocab, Drafts* drafts) {
  drafts->distributions.assign(drafts->tokens.size() * vocab, 0);
  for (size_t j = 0; j < drafts->tokens.size(); ++j) drafts->distributions[j * vocab + static_cast<size_t>(drafts->tokens[j])] = 1;
}

// How long a step waits for masks behind its pass, at least; and one without a row for the next mask.
constexpr std::chrono::duration<double> kPatienceMin{200e-6};
constexpr std::chrono::milliseconds kIdleWait{5};

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

StepExecutor::StepExecutor(const LoadedModel& loaded, const sched::Config& config, spec::Acceptance acceptance, KvMemory memory)
    : loaded_(loaded),
      config_(config),
      acceptance_(acceptance),
      memory_(std::move(memory)),
      lookback_(static_cast<size_t>(std::max<int64_t>(loaded.config().engram.ngram_max, 1))),
      slots_(static_cast<size_t>(config.slots), Slot{.newest = std::vector<int32_t>(lookback_, -1)}),
      key_holes_(static_cast<size_t>(config.pages[kv::kLate]) + 1) {}

Result<std::unique_ptr<StepExecutor>> StepExecutor::Create(const LoadedModel& loaded, const sched::Config& config,
                                                           backend::Activations activations, spec::Acceptance acceptance) {
  const bool drafts = config.draft_rows > 0;
  const int64_t stages = drafts ? loaded.config().draft.num_stages : 0;
  DI_ASSIGN_OR_RETURN(KvMemory memory, KvMemory::Create(loaded.config(), config, stages, loaded.backend()));
  std::unique_ptr<StepExecutor> executor(new StepExecutor(loaded, config, acceptance, std::move(memory)));
  DI_ASSIGN_OR_RETURN(executor->model_,
                      model::deepseek_v41::Model::Create(loaded.config(), loaded.weights(), loaded.backend(),
                                                         {.rows_max = config.step_rows_max,
                                                          .logit_rows_max = std::min(
                                                              config.step_rows_max, config.slots * (1 + config.draft_rows)),
                                                          .activations = activations,
                                                          .draft_taps = drafts}));
  // A draw for each row of logits, and for forks, which have slots of their own.
  const int64_t draws = int64_t{config.slots} * (2 + config.draft_rows);
  DI_ASSIGN_OR_RETURN(executor->draws_, DeviceDraws::Create(loaded.backend(), draws, loaded.config().vocab_size));
  if (drafts) {
    DI_ASSIGN_OR_RETURN(executor->drafter_,
                        Drafter::Create(loaded, config, activations, executor->memory_.draft_windows()));
    const bool free = acceptance == spec::Acceptance::kCoupled;
    executor->schedule_.emplace(config.slots, config.draft_rows, free ? spec::StopRule::kBest : spec::StopRule::kFirstLoss);
  }
  const Result<WarmUpResult> warm_up = WarmUp(loaded, config, &executor->memory_, executor->model_.get(), executor->drafter_.get());
  if (!warm_up.ok()) return warm_up.status().In("running the shapes of all steps once");
  executor->memory_plan_ = MemoryPlan(loaded, *warm_up, executor->cache_bytes(), executor->scratch_bytes());
  return executor;
}

void StepExecutor::Prepare(const sched::Scheduler& scheduler, StepJob* job) const {
  const auto copy = [](const kv::BlockTable& table, std::vector<int32_t>* ids) {
    ids->assign(table.data(), table.data() + static_cast<size_t>(table.slots()) * static_cast<size_t>(table.stride()));
  };
  copy(scheduler.cache().blocks(), &job->tables.blocks);
  for (const auto group : {kv::kEarly, kv::kLate}) {
    const kv::BlockTable& pages = scheduler.cache().pages(group);
    copy(pages, &job->tables.pages[group]);
    job->tables.first_pages[group].assign(pages.first_entries(), pages.first_entries() + pages.slots());
    job->page_ends[group].clear();
    for (int32_t slot = 0; slot < pages.slots(); ++slot) job->page_ends[group].push_back(pages.end(slot));
  }
  job->prefill_tokens.clear();
  const auto before = static_cast<int64_t>(lookback_) - 1;
  for (const PlanEntry& entry : job->plan.entries) {
    if (entry.kind != EntryKind::kPrefill) continue;
    const std::span<const int32_t> tokens = scheduler.Tokens(entry.request);
    for (int64_t p = entry.begin - before; p < entry.begin + entry.rows; ++p) {
      job->prefill_tokens.push_back(p < 0 ? -1 : tokens[static_cast<size_t>(p)]);
    }
  }
}

void StepExecutor::AddSegment(const PlanEntry& entry, const sched::StepPlan& plan, int64_t begin, int32_t rows) {
  const auto layers = static_cast<size_t>(config_.layers.num_layers);
  for (size_t l = 0; l <= layers; ++l) {
    starts_.push_back(entry.starts < 0 ? 0 : plan.run_from[static_cast<size_t>(entry.starts) + l]);
  }
  for (size_t l = 0; l < layers; ++l) {
    const auto group = static_cast<int32_t>(l) < config_.layers.first_late() ? kv::kEarly : kv::kLate;
    floors_.push_back(static_cast<int32_t>(entry.floor[group]));
  }
  segments_.push_back({.request = entry.slot,
                       .begin = static_cast<int32_t>(begin),
                       .end = static_cast<int32_t>(begin + rows),
                       .global_floor = static_cast<int32_t>(entry.global_from)});
}

void StepExecutor::AddPrefill(const StepJob& job, const PlanEntry& entry, size_t* token) {
  const size_t before = lookback_ - 1;
  for (int32_t r = 0; r < entry.rows; ++r) {
    for (size_t back = 0; back < lookback_; ++back) {
      window_tokens_.push_back(job.prefill_tokens[*token + before + static_cast<size_t>(r) - back]);
    }
    ids_.push_back(job.prefill_tokens[*token + before + static_cast<size_t>(r)]);
  }
  *token += before + static_cast<size_t>(entry.rows);
  // What the slot knows after this step, before a token is drawn.
  Slot& slot = slots_[static_cast<size_t>(entry.slot)];
  slot.length = entry.begin + entry.rows;
  slot.drafts.Clear();
  slot.draft_floor = entry.draft_floor;
  for (size_t back = 0; back < lookback_; ++back) slot.newest[back] = job.prefill_tokens[*token - 1 - back];
  if (entry.newest >= 0) PushToken(&slot, entry.newest);
  AddSegment(entry, job.plan, entry.begin, entry.rows);
}

int32_t StepExecutor::RowsOf(const StepJob& job, size_t i) const {
  const PlanEntry& entry = job.plan.entries[i];
  const Choice& choice = *job.entry_choices[i];
  if (sits_out_[i]) return 0;
  const Slot& slot = slots_[static_cast<size_t>(entry.slot)];
  // An answer that ended in a step that was not known when this one was planned.
  const int64_t room = choice.ended() ? 0 : entry.position_end - (slot.length - 1);
  const auto known = static_cast<int64_t>(slot.drafts.tokens.size());
  return static_cast<int32_t>(std::max<int64_t>(0, std::min({int64_t{entry.rows}, room, 1 + known})));
}

void StepExecutor::ChooseDrafts(const StepJob& job) {
  verify_.clear();
  shape_ = {};
  double sure_tokens = 0;
  for (size_t i = 0; i < job.plan.entries.size(); ++i) {
    const PlanEntry& entry = job.plan.entries[i];
    if (entry.kind == EntryKind::kPrefill) {
      shape_.prompt_rows += entry.rows;
      sure_tokens += entry.samples ? 1 : 0;
      continue;
    }
    const Choice& choice = *job.entry_choices[i];
    const Slot& slot = slots_[static_cast<size_t>(entry.slot)];
    const int32_t rows = RowsOf(job, i);
    if (rows == 0) continue;
    ++shape_.rows;
    sure_tokens += 1;
    shape_.context += static_cast<double>(slot.length);
    verify_.push_back({.confidence = slot.drafts.confidence,
                       .bucket = spec::TemperatureBucket(choice.settings().sampling.temperature),
                       .limit = rows - 1,
                       .fixed = choice.settings().drafts != kDraftsAsTheyPay});
  }
  if (!schedule_) return;
  const Clock::time_point start = Clock::now();
  schedule_->Verify(verify_, shape_, sure_tokens);
  schedule_seconds_ += SecondsSince(start);
}

// Row i runs draft i - 1, with the drafts before it in its view.
void StepExecutor::AddDecode(const PlanEntry& entry, int32_t rows) {
  Slot& slot = slots_[static_cast<size_t>(entry.slot)];
  const std::vector<int32_t>& drafts = slot.drafts.tokens;
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t back = 0; back < static_cast<int32_t>(lookback_); ++back) {
      const int32_t draft = r - 1 - back;
      window_tokens_.push_back(draft >= 0 ? drafts[static_cast<size_t>(draft)] : slot.newest[static_cast<size_t>(back - r)]);
    }
    ids_.push_back(r == 0 ? slot.newest[0] : drafts[static_cast<size_t>(r - 1)]);
  }
  if (rows > 0) AddSegment(entry, {}, slot.length - 1, rows);
}

void StepExecutor::BuildStep(const StepJob& job) {
  segments_.clear();
  entry_rows_.clear();
  prompt_rows_.clear();
  starts_.clear();
  floors_.clear();
  window_tokens_.clear();
  ids_.clear();
  logit_rows_.clear();
  ChooseDrafts(job);
  size_t token = 0, verify = 0;
  for (size_t i = 0; i < job.plan.entries.size(); ++i) {
    const PlanEntry& entry = job.plan.entries[i];
    EntryRows rows{.first = static_cast<int32_t>(ids_.size()), .first_logit = static_cast<int32_t>(logit_rows_.size())};
    if (entry.kind == EntryKind::kPrefill) {
      rows.begin = entry.begin;
      rows.count = entry.rows;
      AddPrefill(job, entry, &token);
      if (entry.samples) logit_rows_.push_back(rows.first + rows.count - 1);
      Choice* choice = job.entry_choices[i].get();
      const auto scored = static_cast<int64_t>(choice->prompt_tokens()) - 1 - rows.begin;  // the last row draws the answer
      if (choice->wants_prompt_logprobs() && scored > 0) {
        prompt_rows_.push_back({choice, rows.begin, rows.first, static_cast<int32_t>(std::min<int64_t>(rows.count, scored))});
      }
    } else {
      rows.begin = slots_[static_cast<size_t>(entry.slot)].length - 1;
      if (RowsOf(job, i) > 0) rows.count = 1 + verify_[verify++].drafts;
      AddDecode(entry, rows.count);
      for (int32_t r = 0; r < rows.count; ++r) logit_rows_.push_back(rows.first + r);
    }
    entry_rows_.push_back(rows);
  }
  const auto layers = static_cast<size_t>(config_.layers.num_layers);
  for (size_t i = 0; i < segments_.size(); ++i) {
    segments_[i].run_from = std::span(starts_).subspan(i * (layers + 1), layers + 1);
    segments_[i].window_floor = std::span(floors_).subspan(i * layers, layers);
  }
}

void StepExecutor::Run(StepJob* job) {
  Status drafts_made;
  if (drafter_ != nullptr) {
    drafts_made = CollectDrafts();
    DropWaiting(*job);
    if (drafts_made.ok()) drafts_made = DraftMissing(*job);
  }
  const Clock::time_point start = Clock::now();
  const uint64_t masks_done = masks_.done();
  FindWhoSitsOut(*job);
  BuildStep(*job);
  StartMasks(*job);
  // With nobody but such requests a step would be over at once, and the next one come.
  const bool anyone = std::find(sits_out_.begin(), sits_out_.end(), 1) != sits_out_.end();
  if (anyone && ids_.empty()) masks_.WaitForMore(masks_done, start + kIdleWait);
  draws_.Begin(logit_rows_.size());
  row_draws_.assign(logit_rows_.size(), std::nullopt);
  fork_draws_.assign(job->plan.forks.size(), std::nullopt);
  ListDraws(*job, /*with_grammar=*/false);
  const float* device_logits = Forward(*job);
  if (draws_.on()) SettleMasks(*job, start);  // the pass runs meanwhile
  ListDraws(*job, /*with_grammar=*/true);
  draws_.Queue(device_logits, &logits_);
  job->status = loaded_.backend().Synchronize();
  if (job->prefill_tokens.empty() && !ids_.empty()) pass_seconds_ = SecondsSince(start);
  if (job->status.ok()) job->status = std::move(drafts_made);
  if (job->status.ok()) job->status = ScorePrompts();
  if (job->status.ok()) job->status = loaded_.checkpoint().CheckIntact();
  Select(job, start);
  if (drafter_ == nullptr || !job->status.ok()) return;
  if (!ids_.empty()) {
    Observe(*job, SecondsSince(start));
    DraftNext(*job);
  }
  job->drafts = {.wants_rows = schedule_->wants_rows(),
                 .drafted = drafted_,
                 .gain = schedule_->expected_gain(),
                 .calibration_error = schedule_->calibration().Error(),
                 .schedule_seconds = schedule_seconds_};
}

void StepExecutor::FindWhoSitsOut(const StepJob& job) {
  sits_out_.assign(job.plan.entries.size(), 0);
  WaitOrSitOut(job);
}

// Whoever draws in this step either has its masks or sits out.
void StepExecutor::WaitOrSitOut(const StepJob& job) {
  for (size_t i = 0; i < job.plan.entries.size(); ++i) {
    const PlanEntry& entry = job.plan.entries[i];
    const Choice& choice = *job.entry_choices[i];
    if (!choice.has_grammar() || !entry.samples || !choice.mask_work()->busy) continue;
    if (entry.kind == EntryKind::kDecode && !choice.firm()) {
      sits_out_[i] = 1;
    } else {
      masks_.Wait(*choice.mask_work());
    }
  }
  for (const std::shared_ptr<Choice>& choice : job.fork_choices) {
    if (choice->has_grammar()) masks_.Wait(*choice->mask_work());
  }
}

void StepExecutor::StartMasks(const StepJob& job) {
  mask_works_.clear();
  const auto add = [&](const std::shared_ptr<Choice>& choice, std::span<const int32_t> drafts) {
    if (!choice->has_grammar() || choice->has_mask()) return;
    const std::shared_ptr<MaskWork>& work = choice->mask_work();
    if (work->items.empty()) mask_works_.push_back(work);
    work->items.push_back({choice, {drafts.begin(), drafts.end()}});
  };
  for (size_t i = 0; i < job.plan.entries.size(); ++i) {
    const PlanEntry& entry = job.plan.entries[i];
    const bool decodes = entry.kind == EntryKind::kDecode;
    if (decodes ? entry_rows_[i].count == 0 : !entry.samples) continue;
    const std::vector<int32_t>& drafts = slots_[static_cast<size_t>(entry.slot)].drafts.tokens;
    add(job.entry_choices[i], std::span(drafts).first(decodes ? static_cast<size_t>(entry_rows_[i].count) - 1 : 0));
  }
  for (const std::shared_ptr<Choice>& choice : job.fork_choices) add(choice, {});
  for (const std::shared_ptr<MaskWork>& work : mask_works_) masks_.Start(work);
}

void StepExecutor::SettleMasks(const StepJob& job, Clock::time_point start) {
  const std::chrono::duration<double> pass(pass_seconds_);
  const auto in = [](std::chrono::duration<double> time) { return std::chrono::duration_cast<Clock::duration>(time); };
  // While a device runs the pass, waiting costs nothing.
  const Clock::time_point deadline = Clock::now() + in(std::max(kPatienceMin, pass / 20));
  masks_.WaitForQuick(draws_.on() ? std::max(deadline, start + in(pass / 2)) : deadline);
  WaitOrSitOut(job);
}

const float* StepExecutor::Forward(const StepJob& job) {
  memory_.SetTables(job.tables);
  const float* device_logits = nullptr;
  if (!ids_.empty()) {
    device_logits = model_->Forward(
        {.segments = segments_,
         .tokens = window_tokens_,
         .ids = ids_,
         .logit_rows = logit_rows_,
         .more_logits = !prompt_rows_.empty()},
        memory_.caches());
    StoreContext(job, EntryKind::kPrefill, job.prefill_tokens.empty() ? Keys::kSoon : Keys::kNow);  // before forks copy it
  }
  for (const sched::Copy& copy : job.plan.copies) {
    memory_.Copy(copy);
    if (copy.kind == sched::CopyKind::kLatePage) key_holes_[static_cast<size_t>(copy.to)] = key_holes_[static_cast<size_t>(copy.from)];
    if (copy.kind == sched::CopyKind::kState) {
      slots_[static_cast<size_t>(copy.to)] = slots_[static_cast<size_t>(copy.from)];
    }
  }
  return device_logits;
}

void StepExecutor::ListDraws(const StepJob& job, bool with_grammar) {
  const auto add = [&](Choice* choice, const PlanEntry& entry, int32_t row, std::span<const int32_t> drafts,
                       std::span<std::optional<size_t>> places) {
    if (choice->has_grammar() != with_grammar) return;
    draws_.Add(choice, static_cast<uint32_t>(slots_[static_cast<size_t>(entry.slot)].length), row, drafts, places);
  };
  for (size_t i = 0; i < job.plan.entries.size(); ++i) {
    const PlanEntry& entry = job.plan.entries[i];
    const int32_t draws = entry.kind == EntryKind::kDecode ? entry_rows_[i].count : entry.samples ? 1 : 0;
    if (draws == 0 || sits_out_[i]) continue;
    Choice* choice = job.entry_choices[i].get();
    const int32_t row = entry_rows_[i].first_logit;
    const auto places = std::span(row_draws_).subspan(static_cast<size_t>(row), static_cast<size_t>(draws));
    if (draws > 1 && choice->judged()) {
      draws_.LeaveToHost(row, draws);
    } else {
      add(choice, entry, row, slots_[static_cast<size_t>(entry.slot)].drafts.tokens, places);
    }
  }
  for (size_t f = 0; f < job.plan.forks.size(); ++f) {
    const auto leader = static_cast<size_t>(job.plan.forks[f].entry);
    add(job.fork_choices[f].get(), job.plan.entries[leader], entry_rows_[leader].first_logit, {}, std::span(fork_draws_).subspan(f, 1));
  }
}

Status StepExecutor::ScorePrompts() {
  constexpr int32_t kRowsAtATime = 64;
  const auto vocab = static_cast<size_t>(loaded_.config().vocab_size);
  const int32_t at_a_time = std::min(kRowsAtATime, std::min(config_.step_rows_max, config_.slots * (1 + config_.draft_rows)));
  std::vector<int32_t> list;
  for (const PromptRows& rows : prompt_rows_) {
    for (int32_t done = 0; done < rows.count; done += at_a_time) {
      list.resize(static_cast<size_t>(std::min(at_a_time, rows.count - done)));
      std::iota(list.begin(), list.end(), rows.first + done);
      const float* device_logits = model_->Logits(list);
      prompt_logits_.resize(list.size() * vocab);
      loaded_.backend().CopyToHost(prompt_logits_.data(), device_logits, prompt_logits_.size() * sizeof(float));
      DI_RETURN_IF_ERROR(loaded_.backend().Synchronize());
      for (size_t i = 0; i < list.size(); ++i) {
        rows.choice->ScorePrompt(static_cast<size_t>(rows.begin + done) + i, std::span(prompt_logits_).subspan(i * vocab, vocab));
      }
    }
  }
  return Status();
}

void StepExecutor::Observe(const StepJob& job, double seconds) {
  size_t at = 0;
  for (size_t i = 0; i < job.plan.entries.size(); ++i) {
    if (job.plan.entries[i].kind == EntryKind::kPrefill || entry_rows_[i].count == 0) continue;
    const spec::VerifyRequest& request = verify_[at++];
    shape_.rows += request.drafts;
    if (request.drafts > 0 && !sits_out_[i]) schedule_->Observe(request, job.verified[i].accepted, job.entry_results[i].finished);
  }
  schedule_->ObserveStep(shape_, seconds);
}

void StepExecutor::PushToken(Slot* slot, int32_t token) const {
  std::rotate(slot->newest.begin(), slot->newest.end() - 1, slot->newest.end());
  slot->newest[0] = token;
  ++slot->length;
}

sched::EntryResult StepExecutor::DrawRows(Choice* choice, int32_t slot_index, int32_t first_logit,
                                          std::span<const std::optional<size_t>> places, StepJob* job, std::string* error) {
  if (places.size() > 1 && choice->judged()) return JudgeRows(choice, slot_index, first_logit, places.size(), job, error);
  Slot& slot = slots_[static_cast<size_t>(slot_index)];
  sched::EntryResult result{.failed = !job->status.ok(), .first_token = static_cast<int32_t>(job->tokens.size())};
  const auto rows = static_cast<int32_t>(places.size());
  for (int32_t r = 0; r < rows && !result.failed && !result.finished; ++r) {
    const std::optional<size_t> place = places[static_cast<size_t>(r)];
    Drawn drawn = place ? choice->Take(draws_.token(*place), draws_.logprobs(*place))
                        : choice->Draw(LogitsOf(first_logit + r), static_cast<uint32_t>(slot.length));
    if (drawn.failed) {
      // Behind accepted drafts: the next step finds the same, as it would have without drafts.
      result.failed = r == 0;
      *error = std::move(drawn.error);
      break;
    }
    const int32_t token = drawn.token;
    AddToken(std::move(drawn), *choice, &slot, job, &result);
    if (r + 1 < rows && slot.drafts.tokens[static_cast<size_t>(r)] != token) break;
  }
  return result;
}

std::span<const float> StepExecutor::LogitsOf(int32_t row, size_t rows) const {
  const auto vocab = static_cast<size_t>(loaded_.config().vocab_size);
  return std::span(logits_).subspan(static_cast<size_t>(row) * vocab, rows * vocab);
}

void StepExecutor::AddToken(Drawn drawn, const Choice& choice, Slot* slot, StepJob* job, sched::EntryResult* result) const {
  PushToken(slot, drawn.token);
  job->tokens.push_back(drawn.token);
  job->drawn.push_back(std::move(drawn));
  ++result->num_tokens;
  result->finished = choice.ended();
}

sched::EntryResult StepExecutor::JudgeRows(Choice* choice, int32_t slot_index, int32_t first_logit, size_t rows, StepJob* job,
                                           std::string* error) {
  Slot& slot = slots_[static_cast<size_t>(slot_index)];
  sched::EntryResult result{.failed = !job->status.ok(), .first_token = static_cast<int32_t>(job->tokens.size())};
  if (result.failed) return result;
  const std::vector<int32_t>& drafts = slot.drafts.tokens;
  const size_t vocab = LogitsOf(0).size();
  const DraftJudge::Outcome outcome = judge_.Judge(choice, {.drafts = std::span(drafts).first(rows - 1),
                                                            .distributions = std::span(slot.drafts.distributions).first((rows - 1) * vocab),
                                                            .logits = LogitsOf(first_logit, rows),
                                                            .position = static_cast<uint32_t>(slot.length)});
  for (int32_t r = 0; r <= outcome.verdict.accepted && !result.finished; ++r) {
    const int32_t token = r < outcome.verdict.accepted ? drafts[static_cast<size_t>(r)] : outcome.verdict.token;
    Drawn drawn = token < 0 ? Drawn{.failed = true, .error = outcome.status.message()} : choice->Put(LogitsOf(first_logit + r), token);
    if (drawn.failed) {
      result.failed = r == 0;  // else as in DrawRows
      *error = std::move(drawn.error);
      break;
    }
    AddToken(std::move(drawn), *choice, &slot, job, &result);
  }
  return result;
}

void StepExecutor::Select(StepJob* job, Clock::time_point start) {
  const sched::StepPlan& plan = job->plan;
  job->tokens.clear();
  job->drawn.clear();
  job->verified.assign(plan.entries.size(), {});
  job->entry_results.assign(plan.entries.size(), {});
  job->fork_results.assign(plan.forks.size(), {});
  job->errors.assign(plan.entries.size() + plan.forks.size(), {});
  DrawAll(job, /*with_grammar=*/false);
  if (!draws_.on()) SettleMasks(*job, start);
  DrawAll(job, /*with_grammar=*/true);
  job->sat_out = std::count(sits_out_.begin(), sits_out_.end(), 1);
}

// Forks draw from the same logits as their leader, with their own noise.
void StepExecutor::DrawAll(StepJob* job, bool with_grammar) {
  for (size_t i = 0; i < job->plan.entries.size(); ++i) {
    const PlanEntry& entry = job->plan.entries[i];
    const EntryRows& rows = entry_rows_[i];
    Choice* choice = job->entry_choices[i].get();
    if (choice->has_grammar() != with_grammar) continue;
    if (sits_out_[i]) {
      job->entry_results[i].failed = !job->status.ok();
      continue;
    }
    const int32_t draws = entry.kind == EntryKind::kDecode ? rows.count : entry.samples ? 1 : 0;
    const auto places = std::span(row_draws_).subspan(static_cast<size_t>(rows.first_logit), static_cast<size_t>(draws));
    job->entry_results[i] = DrawRows(choice, entry.slot, rows.first_logit, places, job, &job->errors[i]);
    if (entry.kind == EntryKind::kPrefill) continue;
    const sched::EntryResult& result = job->entry_results[i];
    const std::vector<int32_t>& drafts = slots_[static_cast<size_t>(entry.slot)].drafts.tokens;
    const auto verified = std::max(0, rows.count - 1);
    const auto tokens = std::span(job->tokens).subspan(static_cast<size_t>(result.first_token));
    const auto looked = std::min<size_t>(static_cast<size_t>(verified), tokens.size());
    const auto differs = std::mismatch(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(looked), drafts.begin()).first;
    job->verified[i] = {.drafts = verified, .accepted = static_cast<int32_t>(differs - tokens.begin())};
  }
  for (size_t f = 0; f < job->plan.forks.size(); ++f) {
    const sched::Fork& fork = job->plan.forks[f];
    Choice* choice = job->fork_choices[f].get();
    if (choice->has_grammar() != with_grammar) continue;
    const int32_t first_logit = entry_rows_[static_cast<size_t>(fork.entry)].first_logit;
    std::string* error = &job->errors[job->plan.entries.size() + f];
    job->fork_results[f] = DrawRows(choice, fork.slot, first_logit, std::span(fork_draws_).subspan(f, 1), job, error);
  }
}

size_t StepExecutor::KeyHole(const StepJob& job, int32_t slot, int64_t position) const {
  const std::vector<int32_t>& pages = job.tables.pages[kv::kLate];
  const auto slots = static_cast<int64_t>(job.tables.first_pages[kv::kLate].size());
  const int64_t stride = static_cast<int64_t>(pages.size()) / slots;
  const int64_t entry = position / kv::kBlockTokens - job.tables.first_pages[kv::kLate][static_cast<size_t>(slot)];
  const int32_t page = entry >= 0 && entry < stride ? pages[static_cast<size_t>(slot * stride + entry)] : -1;
  return page < 0 ? key_holes_.size() - 1 : static_cast<size_t>(page);
}

// A page that was another sequence's may have a hole of that one in the same place: then fewer keys are used than could be.
int64_t StepExecutor::DraftFloor(const StepJob& job, int32_t slot, int64_t newest) const {
  const int64_t first = int64_t{job.tables.first_pages[kv::kLate][static_cast<size_t>(slot)]} * kv::kBlockTokens;
  int64_t floor = std::max(slots_[static_cast<size_t>(slot)].draft_floor, first);
  const int64_t window = config_.layers.window;
  for (int64_t at = std::max(floor, newest - window); at < newest; at = (at / kv::kBlockTokens + 1) * kv::kBlockTokens) {
    const int64_t page_begin = at / kv::kBlockTokens * kv::kBlockTokens;
    const int64_t hole = key_holes_[KeyHole(job, slot, at)];
    if (hole > page_begin && hole <= page_begin + kv::kBlockTokens) floor = std::max(floor, hole);
  }
  return floor;
}

void StepExecutor::StoreContext(const StepJob& job, EntryKind kind, Keys keys) {
  if (drafter_ == nullptr) return;
  bool now = keys != Keys::kSoon;  // what waits is not dropped
  const model::deepseek_v41::DraftTaps taps = model_->draft_taps();
  size_t tap = 0;
  for (size_t i = 0; i < entry_rows_.size(); ++i) {
    const PlanEntry& entry = job.plan.entries[i];
    if (entry.kind != kind) continue;
    const EntryRows& rows = entry_rows_[i];
    const int32_t committed = kind == EntryKind::kPrefill ? rows.count : job.entry_results[i].num_tokens;
    while (tap < taps.rows.size() && taps.rows[tap] < rows.first) ++tap;
    for (; tap < taps.rows.size() && taps.rows[tap] < rows.first + committed; ++tap) {
      const int64_t position = rows.begin + taps.rows[tap] - rows.first;
      int64_t& hole = key_holes_[KeyHole(job, entry.slot, position)];
      if (keys == Keys::kDrop) {
        hole = position + 1;
        continue;
      }
      if (position % kv::kBlockTokens == 0) hole = 0;
      drafter_->AddContext({static_cast<int32_t>(tap), position, entry.slot, job.entry_choices[i].get()});
      now = now || (position + 1) % kv::kBlockTokens == 0;  // windows at a block's end may be passed on
    }
  }
  drafter_->StoreContext(taps, now);
}

// Rows whose context keys still wait are lost where their request has no row in this step: what it held may be another's.
void StepExecutor::DropWaiting(const StepJob& job) {
  going_on_.assign(slots_.size(), nullptr);
  for (size_t i = 0; i < job.plan.entries.size(); ++i) {
    const PlanEntry& entry = job.plan.entries[i];
    if (entry.kind == EntryKind::kDecode) going_on_[static_cast<size_t>(entry.slot)] = job.entry_choices[i].get();
  }
  drafter_->DropWaiting(going_on_, [&](const Drafter::ContextRow& row) {
    int64_t& floor = slots_[static_cast<size_t>(row.slot)].draft_floor;
    floor = std::max(floor, row.position + 1);
  });
}

void StepExecutor::AddDraftRequest(const StepJob& job, int32_t slot_index, int32_t planned, const std::shared_ptr<Choice>& choice) {
  Slot& slot = slots_[static_cast<size_t>(slot_index)];
  const auto s = static_cast<size_t>(slot_index);
  const int64_t newest = slot.length - 1;
  const int32_t set = choice->settings().drafts;
  const int32_t wanted = set == kDraftsAsTheyPay ? drafter_->block_size() : set;
  // Drafts are drawn under masks too, and these in the step.
  if (choice->has_grammar() && choice->mask_work()->slow() && !choice->firm()) return;
  // The last token that it may get is drawn from a row that is no draft's.
  const auto drafts = static_cast<int32_t>(std::min<int64_t>({wanted, planned, choice->tokens_left() - 1}));
  // The block's own keys need pages, which are there but right behind a prompt's last chunk at times.
  const int64_t block_end = newest + drafter_->block_size();
  if (drafts <= 0 || (block_end - 1) / kv::kBlockTokens >= job.page_ends[kv::kLate][s]) return;
  draft_requests_.push_back({.slot = slot_index,
                             .choice = choice,
                             .newest = slot.newest[0],
                             .position = newest,
                             .floor = DraftFloor(job, slot_index, newest),
                             .drafts = drafts,
                             .out = &slot.drafts});
}

void StepExecutor::ChooseBlocks() {
  spec::StepShape next;
  int32_t asking = 0;
  for (const DraftRequest& request : draft_requests_) {
    asking += request.choice->settings().drafts == kDraftsAsTheyPay;
    ++next.rows;
    next.context += static_cast<double>(request.position);
  }
  const int32_t depth = schedule_->Depth(asking, next);
  int32_t participants = depth > 0 ? schedule_->Participants() : 0;
  std::erase_if(draft_requests_, [&](DraftRequest& request) {
    if (request.choice->settings().drafts != kDraftsAsTheyPay) return false;
    request.drafts = std::min(request.drafts, depth);
    return participants-- <= 0;
  });
}

Status StepExecutor::DraftMissing(const StepJob& job) {
  draft_requests_.clear();
  for (size_t i = 0; i < job.plan.entries.size(); ++i) {
    const PlanEntry& entry = job.plan.entries[i];
    const std::shared_ptr<Choice>& choice = job.entry_choices[i];
    if (entry.kind == EntryKind::kPrefill || !choice->firm() || choice->ended()) continue;
    const Slot& slot = slots_[static_cast<size_t>(entry.slot)];
    if (slot.drafts.anchor != slot.length - 1) AddDraftRequest(job, entry.slot, entry.rows - 1, choice);
  }
  if (draft_requests_.empty()) return Status();
  const Clock::time_point start = Clock::now();
  memory_.SetTables(job.tables);
  drafter_->Queue(draft_requests_);
  draft_seconds_ = SecondsSince(start);
  return CollectDrafts();
}

void StepExecutor::DraftNext(const StepJob& job) {
  draft_requests_.clear();
  const auto add = [&](const sched::EntryResult& result, int32_t slot, int32_t planned,
                       const std::shared_ptr<Choice>& choice) {
    slots_[static_cast<size_t>(slot)].drafts.Clear();
    if (!result.failed && !result.finished && result.num_tokens > 0) AddDraftRequest(job, slot, planned, choice);
  };
  for (size_t i = 0; i < job.plan.entries.size(); ++i) {
    const PlanEntry& entry = job.plan.entries[i];
    const int32_t planned = entry.kind == EntryKind::kDecode ? entry.rows - 1 : config_.draft_rows;
    add(job.entry_results[i], entry.slot, planned, job.entry_choices[i]);
  }
  for (size_t f = 0; f < job.plan.forks.size(); ++f) {
    add(job.fork_results[f], job.plan.forks[f].slot, config_.draft_rows, job.fork_choices[f]);
  }
  Clock::time_point start = Clock::now();
  ChooseBlocks();
  schedule_seconds_ += SecondsSince(start);
  start = Clock::now();
  // Where drafts are judged, the tokens depend on which keys are there: none may be lost.
  const bool all = !draft_requests_.empty() || acceptance_ != spec::Acceptance::kCoupled;
  StoreContext(job, EntryKind::kDecode, all ? Keys::kNow : schedule_->wants_context() ? Keys::kSoon : Keys::kDrop);
  drafter_->Queue(draft_requests_);
  draft_seconds_ = SecondsSince(start);
  if (!drafter_->pending()) static_cast<void>(CollectDrafts());
}

// What the host does between Queue and here, it does beside the drafts, as without them: it is not counted.
Status StepExecutor::CollectDrafts() {
  const Clock::time_point start = Clock::now();
  Status status = drafter_->Collect();
  const double seconds = draft_seconds_ + SecondsSince(start);
  int32_t depth = 0;
  for (const DraftRequest& request : draft_requests_) {
    depth = std::max(depth, request.drafts);
    drafted_ += static_cast<int64_t>(request.out->tokens.size());
    schedule_->NoteConfidence(spec::TemperatureBucket(request.choice->settings().sampling.temperature), request.out->confidence);
    if (!drafts_fn_) continue;
    drafts_fn_(request.choice->settings(), request.position, request.out);
    request.out->confidence.resize(request.out->tokens.size());
    if (request.choice->judged()) SetCertain(static_cast<size_t>(loaded_.config().vocab_size), request.out);
  }
  if (depth > 0) schedule_->ObserveBlock(static_cast<int32_t>(draft_requests_.size()), depth, seconds);
  draft_requests_.clear();
  return status;
}

}  // namespace deepinfer::engine
