// SPDX-License-Identifier: Apache-2.0
#include "engine/step_executor.h"

#include <algorithm>

#include "core/check.h"

namespace deepinfer::engine {

using model::deepseek_v41::Segment;
using sched::EntryKind;
using sched::PlanEntry;

StepExecutor::StepExecutor(const LoadedModel& loaded, const sched::Config& config, KvMemory memory)
    : loaded_(loaded),
      config_(config),
      memory_(std::move(memory)),
      lookback_(static_cast<size_t>(std::max<int64_t>(loaded.config().engram.ngram_max, 1))),
      slots_(static_cast<size_t>(config.slots), Slot{.newest = std::vector<int32_t>(lookback_, -1)}) {}

Result<std::unique_ptr<StepExecutor>> StepExecutor::Create(const LoadedModel& loaded, const sched::Config& config,
                                                           backend::Activations activations) {
  DI_ASSIGN_OR_RETURN(KvMemory memory, KvMemory::Create(loaded.config(), config, loaded.backend()));
  std::unique_ptr<StepExecutor> executor(new StepExecutor(loaded, config, std::move(memory)));
  DI_ASSIGN_OR_RETURN(executor->model_,
                      model::deepseek_v41::Model::Create(loaded.config(), loaded.weights(), loaded.backend(),
                                                         {.rows_max = config.step_rows_max,
                                                          .logit_rows_max = config.slots,
                                                          .activations = activations}));
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

void StepExecutor::AddSegment(const PlanEntry& entry, const sched::StepPlan& plan, int64_t begin) {
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
                       .end = static_cast<int32_t>(begin + entry.rows),
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
  for (size_t back = 0; back < lookback_; ++back) slot.newest[back] = job.prefill_tokens[*token - 1 - back];
  AddSegment(entry, job.plan, entry.begin);
}

void StepExecutor::AddDecode(const PlanEntry& entry) {
  DI_CHECK(entry.rows == 1);
  const Slot& slot = slots_[static_cast<size_t>(entry.slot)];
  window_tokens_.insert(window_tokens_.end(), slot.newest.begin(), slot.newest.end());
  ids_.push_back(slot.newest[0]);
  AddSegment(entry, {}, slot.length - 1);
}

void StepExecutor::BuildStep(const StepJob& job) {
  segments_.clear();
  starts_.clear();
  floors_.clear();
  window_tokens_.clear();
  ids_.clear();
  logit_rows_.clear();
  size_t token = 0;
  for (const PlanEntry& entry : job.plan.entries) {
    DI_CHECK(entry.first_row == static_cast<int32_t>(ids_.size()));
    if (entry.kind == EntryKind::kPrefill) {
      AddPrefill(job, entry, &token);
    } else {
      AddDecode(entry);
    }
    if (entry.samples || entry.kind == EntryKind::kDecode) logit_rows_.push_back(static_cast<int32_t>(ids_.size()) - 1);
  }
  const auto layers = static_cast<size_t>(config_.layers.num_layers);
  for (size_t i = 0; i < segments_.size(); ++i) {
    segments_[i].run_from = std::span(starts_).subspan(i * (layers + 1), layers + 1);
    segments_[i].window_floor = std::span(floors_).subspan(i * layers, layers);
  }
}

void StepExecutor::Run(StepJob* job) {
  BuildStep(*job);
  memory_.SetTables(job->tables);
  const float* device_logits = model_->Forward(
      {.segments = segments_, .tokens = window_tokens_, .ids = ids_, .logit_rows = logit_rows_}, memory_.caches());
  for (const sched::Copy& copy : job->plan.copies) {
    memory_.Copy(copy);
    if (copy.kind == sched::CopyKind::kState) {
      slots_[static_cast<size_t>(copy.to)] = slots_[static_cast<size_t>(copy.from)];
    }
  }
  logits_.resize(logit_rows_.size() * static_cast<size_t>(loaded_.config().vocab_size));
  loaded_.backend().CopyToHost(logits_.data(), device_logits, logits_.size() * sizeof(float));
  job->status = loaded_.backend().Synchronize();
  if (job->status.ok()) job->status = loaded_.checkpoint().CheckIntact();
  DrawAll(job);
}

sched::EntryResult StepExecutor::DrawOne(Choice* choice, int32_t slot_index, std::span<const float> logits, StepJob* job,
                                         Drawn* drawn) {
  Slot& slot = slots_[static_cast<size_t>(slot_index)];
  sched::EntryResult result{.first_token = static_cast<int32_t>(job->tokens.size())};
  if (job->status.ok()) *drawn = choice->Draw(logits, static_cast<uint32_t>(slot.length));
  if (!job->status.ok() || drawn->failed) {
    drawn->failed = true;
    result.failed = true;
    return result;
  }
  job->tokens.push_back(drawn->token);
  result.num_tokens = 1;
  result.finished = drawn->ends;
  std::rotate(slot.newest.begin(), slot.newest.end() - 1, slot.newest.end());
  slot.newest[0] = drawn->token;
  ++slot.length;
  return result;
}

// Forks draw from the same logits as their leader, with their own noise.
void StepExecutor::DrawAll(StepJob* job) {
  const auto vocab = static_cast<size_t>(loaded_.config().vocab_size);
  job->tokens.clear();
  job->entry_results.clear();
  job->fork_results.clear();
  job->entry_drawn.assign(job->plan.entries.size(), {});
  job->fork_drawn.assign(job->plan.forks.size(), {});
  std::vector<size_t> row_of(job->plan.entries.size());
  size_t row = 0;
  for (size_t i = 0; i < job->plan.entries.size(); ++i) {
    const PlanEntry& entry = job->plan.entries[i];
    if (!entry.samples && entry.kind == EntryKind::kPrefill) {
      job->entry_results.push_back({.failed = !job->status.ok()});
      continue;
    }
    row_of[i] = row++;
    job->entry_results.push_back(DrawOne(job->entry_choices[i].get(), entry.slot,
                                         std::span(logits_).subspan(row_of[i] * vocab, vocab), job, &job->entry_drawn[i]));
  }
  for (size_t f = 0; f < job->plan.forks.size(); ++f) {
    const sched::Fork& fork = job->plan.forks[f];
    const size_t leader_row = row_of[static_cast<size_t>(fork.entry)];
    job->fork_results.push_back(DrawOne(job->fork_choices[f].get(), fork.slot,
                                        std::span(logits_).subspan(leader_row * vocab, vocab), job, &job->fork_drawn[f]));
  }
}

}  // namespace deepinfer::engine
