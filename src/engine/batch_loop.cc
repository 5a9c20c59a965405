// SPDX-License-Identifier: Apache-2.0
// The loop of the engine: messages in, plans out, results back, outputs to consumers.
#include "core/check.h"
#include "engine/batch_engine.h"

namespace deepinfer::engine {

Stream* BatchEngine::Find(sched::RequestId id) {
  if (id.index >= streams_.size()) return nullptr;
  Stream* stream = streams_[id.index].get();
  return stream != nullptr && stream->request == id ? stream : nullptr;
}

void BatchEngine::CloseIfDone(const std::shared_ptr<Generation>& generation) {
  if (generation->open > 0) return;
  live_.erase(generation->id);
  {
    const std::lock_guard lock(mutex_);
    open_.erase(generation->id);
  }
  waiter_wakes_.notify_all();
}

void BatchEngine::Accept(Submission submission) {
  Generation& generation = *submission.generation;
  if (submission.choices[0]->settings().drafts == kDraftsAsTheyPay && !draft_report_.wants_rows) submission.spec.drafts = 0;
  const Result<std::vector<sched::RequestId>> ids = scheduler_->Submit(std::move(submission.spec), NowMs());
  if (!ids.ok()) {
    for (size_t c = 0; c < submission.choices.size(); ++c) {
      Stream(submission.generation, static_cast<int>(c), submission.choices[c], loaded_->tokenizer(), {})
          .End(deepinfer::FinishReason::kError, ids.status().message());
    }
    CloseIfDone(submission.generation);
    return;
  }
  for (size_t c = 0; c < ids->size(); ++c) {
    const sched::RequestId id = (*ids)[c];
    if (id.index >= streams_.size()) streams_.resize(id.index + 1);
    streams_[id.index] = std::make_unique<Stream>(submission.generation, static_cast<int>(c), submission.choices[c],
                                                  loaded_->tokenizer(), submission.stop);
    streams_[id.index]->request = id;
  }
  live_[generation.id] = *ids;
}

// Ends what has not ended of a request, or of one choice of it. The consumer hears of it now, the cache comes back with the
// steps in flight.
void BatchEngine::EndGeneration(GenerationId id, int choice, deepinfer::FinishReason reason) {
  const auto it = live_.find(id);
  if (it == live_.end()) return;
  const std::vector<sched::RequestId> requests = it->second;
  std::shared_ptr<Generation> generation;
  for (size_t c = 0; c < requests.size(); ++c) {
    const sched::RequestId request = requests[c];
    Stream* stream = Find(request);
    if (stream == nullptr || (choice != kAllChoices && static_cast<int>(c) != choice)) continue;
    generation = stream->generation();
    stream->End(reason);
    scheduler_->Cancel(request);
  }
  if (generation != nullptr) CloseIfDone(generation);
}

void BatchEngine::EndOverdue() {
  const int64_t now = NowMs();
  std::vector<GenerationId> overdue;
  for (const auto& [id, requests] : live_) {
    for (const sched::RequestId request : requests) {
      const Stream* stream = Find(request);
      if (stream == nullptr || stream->ended()) continue;
      const int64_t deadline = stream->generation()->deadline_at_ms;
      if (deadline != 0 && now >= deadline) overdue.push_back(id);
      break;
    }
  }
  for (const GenerationId id : overdue) EndGeneration(id, kAllChoices, deepinfer::FinishReason::kDeadline);
}

bool BatchEngine::TakeMessages() {
  {
    const std::lock_guard lock(mutex_);
    taken_submissions_.swap(submissions_);
    taken_cancels_.swap(cancels_);
  }
  for (Submission& submission : taken_submissions_) Accept(std::move(submission));
  for (const auto& [id, choice] : taken_cancels_) EndGeneration(id, choice, deepinfer::FinishReason::kCancelled);
  EndOverdue();
  if (!taken_submissions_.empty()) UpdateStats();
  const bool any = !taken_submissions_.empty() || !taken_cancels_.empty();
  taken_submissions_.clear();
  taken_cancels_.clear();
  return any;
}

bool BatchEngine::PlanOne(StepJob** job) {
  if (free_jobs_.empty()) return false;
  StepJob* next = free_jobs_.back();
  if (!scheduler_->Plan(&next->plan)) return false;
  free_jobs_.pop_back();
  executor_->Prepare(*scheduler_, next);
  next->entry_choices.clear();
  next->fork_choices.clear();
  const auto choice_of = [&](sched::RequestId id) {
    Stream* stream = Find(id);
    DI_CHECK(stream != nullptr);
    stream->cached_tokens = scheduler_->CachedTokens(id);
    return stream->drawing();
  };
  for (const sched::PlanEntry& entry : next->plan.entries) next->entry_choices.push_back(choice_of(entry.request));
  for (const sched::Fork& fork : next->plan.forks) next->fork_choices.push_back(choice_of(fork.request));
  *job = next;
  return true;
}

void BatchEngine::Deliver(const StepJob& job, sched::RequestId request, const sched::EntryResult& result,
                          const std::string& error) {
  Stream* stream = Find(request);
  if (stream == nullptr || stream->ended()) return;
  const std::shared_ptr<Generation> generation = stream->generation();
  if (!job.status.ok()) {
    stream->End(deepinfer::FinishReason::kError, job.status.message());
  } else if (result.failed) {
    stream->Deliver({.failed = true, .ends = true, .error = error});
  }
  for (int32_t t = 0; t < result.num_tokens && !stream->ended(); ++t) {
    ++answer_tokens_;
    // The scheduler knows of ends that the executor saw; the others (stop strings, a consumer that threw) it hears now.
    if (!stream->Deliver(job.drawn[static_cast<size_t>(result.first_token + t)]) && !result.finished) scheduler_->Cancel(request);
  }
  CloseIfDone(generation);
}

void BatchEngine::Finish(StepJob* job) {
  scheduler_->Complete(job->result());
  const std::vector<sched::PlanEntry>& entries = job->plan.entries;
  for (size_t i = 0; i < entries.size(); ++i) Deliver(*job, entries[i].request, job->entry_results[i], job->errors[i]);
  for (size_t i = 0; i < job->plan.forks.size(); ++i) {
    Deliver(*job, job->plan.forks[i].request, job->fork_results[i], job->errors[entries.size() + i]);
  }
  masks_late_ += job->sat_out;
  NoteDrafts(*job);
  free_jobs_.push_back(job);
  CollectEnded();
  UpdateStats();
}

void BatchEngine::NoteDrafts(const StepJob& job) {
  if (config_.draft_rows == 0 || !job.status.ok()) return;
  for (const Verified& verified : job.verified) {
    for (int32_t j = 0; j < verified.drafts; ++j) {
      const auto place = static_cast<size_t>(j);
      ++drafts_verified_[place];
      drafts_accepted_[place] += j < verified.accepted;
    }
  }
  if (job.drafts.wants_rows != draft_report_.wants_rows) {
    for (const std::unique_ptr<Stream>& stream : streams_) {
      if (stream == nullptr || stream->drawing()->settings().drafts != kDraftsAsTheyPay) continue;
      scheduler_->SetDrafts(stream->request, job.drafts.wants_rows ? config_.draft_rows : 0);
    }
  }
  draft_report_ = job.drafts;
}

// Requests that hold nothing any more. One whose stream is still open ended for a reason of the scheduler's.
void BatchEngine::CollectEnded() {
  scheduler_->TakeEnded(&ended_);
  for (const sched::Ended& end : ended_) {
    Stream* stream = Find(end.request);
    if (stream == nullptr) continue;
    const std::shared_ptr<Generation> generation = stream->generation();
    if (end.reason == sched::EndReason::kNoRoom) {
      stream->End(deepinfer::FinishReason::kError, "the cache memory is too small to go on");
    } else if (end.reason == sched::EndReason::kFailed) {
      stream->End(deepinfer::FinishReason::kError, "the step failed");
    } else {
      stream->End(deepinfer::FinishReason::kLength);
    }
    CloseIfDone(generation);
    streams_[end.request.index].reset();
  }
}

void BatchEngine::UpdateStats() {
  const sched::Stats& s = scheduler_->stats();
  const std::lock_guard lock(mutex_);
  stats_.steps = s.steps;
  stats_.rows = s.rows;
  stats_.prompt_tokens = s.prompt_tokens;
  stats_.cached_tokens = s.cached_tokens;
  stats_.answer_tokens = answer_tokens_;
  stats_.preemptions = s.preemptions;
  stats_.masks_late = masks_late_;
  stats_.requests_running = scheduler_->num_running();
  stats_.requests_waiting = scheduler_->num_queued();
  stats_.blocks = config_.blocks;
  stats_.blocks_available = scheduler_->cache().available_blocks();
  stats_.cache_bytes = executor_->cache_bytes();
  stats_.scratch_bytes = executor_->scratch_bytes();
  stats_.device_idle_seconds = loaded_->backend().idle_seconds();
  stats_.drafts_verified = drafts_verified_;
  stats_.drafts_accepted = drafts_accepted_;
  stats_.drafts_made = draft_report_.drafted;
  stats_.draft_gain = draft_report_.gain;
  stats_.draft_calibration_error = draft_report_.calibration_error;
  stats_.draft_schedule_seconds = draft_report_.schedule_seconds;
}

bool BatchEngine::Step() {
  DI_CHECK(!options_.own_thread);
  TakeMessages();
  CollectEnded();
  StepJob* job = nullptr;
  if (!PlanOne(&job)) {
    UpdateStats();
    return false;
  }
  executor_->Run(job);
  Finish(job);
  return true;
}

void BatchEngine::Loop() {
  while (true) {
    TakeMessages();
    StepJob* job = nullptr;
    const bool planned = PlanOne(&job);
    if (!planned) {
      CollectEnded();
      UpdateStats();
    }
    StepJob* done = nullptr;
    {
      std::unique_lock lock(mutex_);
      if (planned) {
        to_run_.push_back(job);
        executor_wakes_.notify_one();
      }
      if (!planned && done_.empty() && submissions_.empty() && cancels_.empty() && !stop_) {
        // With nothing to plan, only a result or a message changes anything; deadlines are looked at now and then.
        loop_wakes_.wait_for(lock, std::chrono::milliseconds(50));
      }
      if (stop_) return;
      if (!done_.empty()) {
        done = done_.front();
        done_.erase(done_.begin());
      }
    }
    if (done != nullptr) Finish(done);
  }
}

void BatchEngine::ExecutorLoop() {
  while (true) {
    StepJob* job = nullptr;
    {
      std::unique_lock lock(mutex_);
      executor_wakes_.wait(lock, [&] { return stop_ || !to_run_.empty(); });
      if (stop_) return;
      job = to_run_.front();
      to_run_.erase(to_run_.begin());
    }
    executor_->Run(job);
    {
      const std::lock_guard lock(mutex_);
      done_.push_back(job);
    }
    loop_wakes_.notify_one();
  }
}

}  // namespace deepinfer::engine
