// SPDX-License-Identifier: Apache-2.0
#include "engine/batch_engine.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "checkpoint/identity.h"
#include "core/check.h"
#include "engine/engine_config.h"

namespace deepinfer::engine {
namespace {

constexpr size_t kBadWordsMax = 4096;
constexpr int64_t kPromptLogprobsMax = int64_t{1} << 26;

sched::Replay ToSched(ReplaySetting setting) {
  switch (setting) {
    case ReplaySetting::kNone:
      return sched::Replay::kNone;
    case ReplaySetting::kExact:
      return sched::Replay::kExact;
    case ReplaySetting::kDecoder:
      return sched::Replay::kDecoder;
    case ReplaySetting::kBounded:
      return sched::Replay::kBounded;
  }
  return sched::Replay::kExact;
}

}  // namespace

Result<std::unique_ptr<BatchEngine>> BatchEngine::Create(const EngineOptions& options) {
  DI_ASSIGN_OR_RETURN(const backend::Activations activations, ParseActivations(options.activations));
  DI_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> loaded,
                      LoadedModel::Load(options.model_directory,
                                        {.name = options.backend,
                                         .num_threads = options.num_threads,
                                         .engram_tables = options.engram_tables,
                                         .variant = options.variant},
                                        activations));
  return Create(options, std::move(loaded));
}

Result<std::unique_ptr<BatchEngine>> BatchEngine::Create(const EngineOptions& options, std::unique_ptr<LoadedModel> loaded) {
  std::unique_ptr<BatchEngine> engine(new BatchEngine(options, std::move(loaded)));
  DI_RETURN_IF_ERROR(engine->Prepare());
  return engine;
}

Status BatchEngine::Prepare() {
  DI_ASSIGN_OR_RETURN(const backend::Activations activations, ParseActivations(options_.activations));
  DI_RETURN_IF_ERROR(loaded_->CheckActivations(activations));
  DI_RETURN_IF_ERROR(PrepareDrafts());
  DI_ASSIGN_OR_RETURN(config_, MakeConfig(options_, loaded_->config(), config_.draft_rows));
  if (acceptance_ != spec::Acceptance::kCoupled) {  // room for all drafts of all requests (firm_drafts)
    config_.step_rows_max = std::max(config_.step_rows_max, config_.slots * (1 + config_.draft_rows) + 1);
  }
  DI_ASSIGN_OR_RETURN(scheduler_, sched::Scheduler::Create(config_));
  DI_ASSIGN_OR_RETURN(executor_, StepExecutor::Create(*loaded_, config_, activations, acceptance_));
  DI_ASSIGN_OR_RETURN(model_identity_, checkpoint::ModelIdentity(loaded_->checkpoint()));
  numeric_identity_ = NumericIdentity(loaded_->backend(), activations);
  for (int32_t i = 0; i < config_.steps_in_flight; ++i) {
    jobs_.push_back(std::make_unique<StepJob>());
    jobs_.back()->plan = scheduler_->MakePlan();
    free_jobs_.push_back(jobs_.back().get());
  }
  for (std::vector<StepJob*>* list : {&to_run_, &done_}) list->reserve(jobs_.size());
  UpdateStats();
  if (options_.own_thread) {
    executor_thread_ = std::thread([this] { ExecutorLoop(); });
    loop_ = std::thread([this] { Loop(); });
  }
  return Status();
}

Status BatchEngine::PrepareDrafts() {
  warnings_ = loaded_->checkpoint().warnings();
  DI_ASSIGN_OR_RETURN(const DraftsSetting setting, ParseDrafts(options_.drafts));
  DI_ASSIGN_OR_RETURN(acceptance_, ParseVerification(options_.verification));
  const checkpoint::DraftConfig& draft = loaded_->config().draft;
  if (setting.drafts == 0) return Status();
  if (!loaded_->checkpoint().has_draft()) {
    if (!setting.required) return Status();
    const std::string& problem = loaded_->checkpoint().draft_problem();
    return Error(Code::kNotFound, "drafts {}: {}; \"off\" runs without", options_.drafts,
                 problem.empty() ? "config.json describes no draft model" : problem);
  }
  if (setting.drafts != kDraftsAsTheyPay) DI_RETURN_IF_ERROR(InRange("drafts", setting.drafts, 0, draft.block_size));
  config_.draft_rows = static_cast<int32_t>(draft.block_size);
  drafts_ = setting.drafts;
  drafts_verified_.resize(static_cast<size_t>(draft.block_size));
  drafts_accepted_.resize(static_cast<size_t>(draft.block_size));
  return Status();
}

BatchEngine::~BatchEngine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  loop_wakes_.notify_all();
  executor_wakes_.notify_all();
  waiter_wakes_.notify_all();
  if (loop_.joinable()) loop_.join();
  if (executor_thread_.joinable()) executor_thread_.join();
}

Status BatchEngine::Check(const GenerationRequest& r) const {
  const int64_t vocab = loaded_->config().vocab_size;
  if (r.prompt.empty()) return Error(Code::kInvalidArgument, "prompt: it has no tokens");
  DI_RETURN_IF_ERROR(InRange("prompt: number of tokens", static_cast<int64_t>(r.prompt.size()), 1, config_.length_max - 1));
  for (size_t i = 0; i < r.prompt.size(); ++i) {
    if (r.prompt[i] < 0 || r.prompt[i] >= vocab) {
      return Error(Code::kInvalidArgument, "prompt: token {} is {}: the vocabulary has ids 0..{}", i, r.prompt[i], vocab - 1);
    }
  }
  DI_RETURN_IF_ERROR(InRange("max_tokens", r.max_tokens, 1, int64_t{1} << 40));
  DI_RETURN_IF_ERROR(InRange("min_tokens", r.min_tokens, 0, r.max_tokens));
  DI_RETURN_IF_ERROR(InRange("n", r.choices, 1, config_.choices_max));
  DI_RETURN_IF_ERROR(InRange("priority", r.priority, -100, 100));
  DI_RETURN_IF_ERROR(InRange("deadline_ms", r.deadline_ms, 0, int64_t{1} << 40));
  if (r.logprobs) DI_RETURN_IF_ERROR(InRange("logprobs", *r.logprobs, 0, vocab));
  if (r.prompt_logprobs) {
    DI_RETURN_IF_ERROR(InRange("prompt_logprobs", *r.prompt_logprobs, 0, vocab));
    const int64_t numbers = static_cast<int64_t>(r.prompt.size()) * (1 + *r.prompt_logprobs);
    DI_RETURN_IF_ERROR(InRange("prompt_logprobs: tokens times alternatives", numbers, 0, kPromptLogprobsMax));
  }
  if (r.drafts) DI_RETURN_IF_ERROR(InRange("drafts", *r.drafts, 0, config_.draft_rows));
  DI_RETURN_IF_ERROR(InRange("stop: number of strings", static_cast<int64_t>(r.stop.size()), 0, 64));
  for (const std::string& stop : r.stop) {
    DI_RETURN_IF_ERROR(InRange("stop: bytes of a string", static_cast<int64_t>(stop.size()), 1, 4096));
  }
  if (r.grammar_after) DI_RETURN_IF_ERROR(InRange("grammar_after", *r.grammar_after, 0, vocab - 1));
  DI_RETURN_IF_ERROR(InRange("grammar_prompt_tokens", r.grammar_prompt_tokens, 0,
                             r.grammar == nullptr ? 0 : static_cast<int64_t>(r.prompt.size())));
  for (const int32_t token : r.stop_token_ids) DI_RETURN_IF_ERROR(InRange("stop_token_ids", token, 0, vocab - 1));
  DI_RETURN_IF_ERROR(InRange("bad_words: number", static_cast<int64_t>(r.bad_words.size()), 0, kBadWordsMax));
  for (const std::vector<int32_t>& word : r.bad_words) {
    DI_RETURN_IF_ERROR(InRange("bad_words: tokens of one", static_cast<int64_t>(word.size()), 1, 256));
    for (const int32_t token : word) DI_RETURN_IF_ERROR(InRange("bad_words: token", token, 0, vocab - 1));
  }
  return SettingsOf(r, 0, 0).sampling.Validate(vocab);
}

ChoiceSettings BatchEngine::SettingsOf(const GenerationRequest& r, uint64_t seed, int choice) const {
  ChoiceSettings settings{.sampling = {.temperature = r.temperature,
                                       .top_k = r.top_k,
                                       .top_p = r.top_p,
                                       .min_p = r.min_p,
                                       .repetition_penalty = r.repetition_penalty,
                                       .presence_penalty = r.presence_penalty,
                                       .frequency_penalty = r.frequency_penalty,
                                       .logit_bias = r.logit_bias,
                                       .seed = seed,
                                       .choice = static_cast<uint32_t>(choice)},
                          .max_tokens = std::min(r.max_tokens, config_.length_max - static_cast<int64_t>(r.prompt.size())),
                          .min_tokens = r.min_tokens,
                          .end_tokens = r.stop_token_ids,
                          .bad_words = r.bad_words,
                          .logprobs = r.logprobs,
                          .drafts = r.drafts.value_or(drafts_),
                          .acceptance = acceptance_};
  if (choice == 0) settings.prompt_logprobs = r.prompt_logprobs;
  for (const int64_t id : loaded_->config().eos_token_ids) settings.model_end_tokens.push_back(static_cast<int32_t>(id));
  if (r.grammar != nullptr) {
    settings.mask_words = grammar_vocabulary()->mask_words();
    if (r.ignore_eos) settings.min_tokens = settings.max_tokens;
  }
  if (!r.ignore_eos || r.grammar != nullptr) {
    settings.end_tokens.insert(settings.end_tokens.end(), settings.model_end_tokens.begin(), settings.model_end_tokens.end());
  }
  std::sort(settings.end_tokens.begin(), settings.end_tokens.end());
  return settings;
}

std::shared_ptr<const grammar::Vocabulary> BatchEngine::grammar_vocabulary() const {
  std::call_once(vocabulary_once_, [this] { vocabulary_ = MakeGrammarVocabulary(*loaded_); });
  return vocabulary_;
}

Result<AnswerGrammar> BatchEngine::StartGrammar(const GenerationRequest& r) const {
  if (&r.grammar->vocabulary() != grammar_vocabulary().get()) {
    return Error(Code::kInvalidArgument, "grammar: it was compiled for another vocabulary than this engine's grammar_vocabulary()");
  }
  AnswerGrammar grammar(*r.grammar, r.grammar_after);
  for (const int32_t token : std::span(r.prompt).last(static_cast<size_t>(r.grammar_prompt_tokens))) {
    DI_RETURN_IF_ERROR(grammar.Accept(token).In("grammar_prompt_tokens"));
  }
  return grammar;
}

GenerationId BatchEngine::Submit(const GenerationRequest& r, OutputFn consumer, std::string* why, bool* busy) {
  if (busy != nullptr) *busy = false;
  if (const Status status = Check(r); !status.ok()) {
    *why = status.message();
    return 0;
  }
  Submission submission;
  submission.generation = std::make_shared<Generation>();
  Generation& generation = *submission.generation;
  generation.consumer = std::move(consumer);
  generation.prompt_tokens = static_cast<int64_t>(r.prompt.size());
  generation.seed = r.seed ? *r.seed : std::random_device()();
  generation.open = r.choices;
  if (r.deadline_ms > 0) generation.deadline_at_ms = NowMs() + r.deadline_ms;
  submission.stop = r.stop;
  std::optional<AnswerGrammar> grammar;
  if (r.grammar != nullptr) {
    Result<AnswerGrammar> started = StartGrammar(r);
    if (!started.ok()) {
      *why = started.status().message();
      return 0;
    }
    grammar = *std::move(started);
  }
  for (int c = 0; c < r.choices; ++c) {
    submission.choices.push_back(std::make_shared<Choice>(
        SettingsOf(r, generation.seed, c), r.prompt, grammar ? std::optional(grammar->Fork()) : std::nullopt));
    submission.choices.back()->PrepareMasks();  // the first mask is often the dearest, and a prompt's step waits for it
  }
  const int drafts = submission.choices[0]->settings().drafts;
  submission.spec = {.prompt = r.prompt,
                     .names = kv::NamePrompt(kv::BlockNamer(model_identity_, numeric_identity_, r.cache_salt), r.prompt, {}),
                     .length_max = generation.prompt_tokens + submission.choices[0]->settings().max_tokens,
                     .replay = r.prompt_logprobs ? sched::Replay::kNone : ToSched(r.replay),
                     .priority = r.priority,
                     .choices = r.choices,
                     .drafts = drafts == kDraftsAsTheyPay ? config_.draft_rows : drafts,
                     .firm_drafts = submission.choices[0]->firm()};
  GenerationId id = 0;
  {
    const std::lock_guard lock(mutex_);
    // Requests that are on their way to the scheduler count as waiting.
    if (stats_.requests_waiting + static_cast<int64_t>(submissions_.size()) + r.choices > options_.requests_waiting_max) {
      *why = fmt::format("too many requests wait: {} of {}", stats_.requests_waiting, options_.requests_waiting_max);
      if (busy != nullptr) *busy = true;
      return 0;
    }
    id = generation.id = next_id_++;
    open_[id] = true;
    submissions_.push_back(std::move(submission));
  }
  loop_wakes_.notify_one();
  return id;
}

void BatchEngine::Cancel(GenerationId id, int choice) {
  {
    const std::lock_guard lock(mutex_);
    if (!open_.contains(id)) return;
    cancels_.emplace_back(id, choice);
  }
  loop_wakes_.notify_one();
}

void BatchEngine::Wait(GenerationId id) {
  DI_CHECK(options_.own_thread);
  std::unique_lock lock(mutex_);
  waiter_wakes_.wait(lock, [&] { return !open_.contains(id) || stop_; });
}

EngineStats BatchEngine::Stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::vector<int32_t> BatchEngine::Tokenize(std::string_view text) const {
  std::vector<int32_t> ids;
  if (const auto bos = loaded_->config().bos_token_id) ids.push_back(static_cast<int32_t>(*bos));
  const Result<std::vector<TokenId>> tokens = loaded_->tokenizer().EncodePlain(text);
  if (tokens.ok()) ids.insert(ids.end(), tokens->begin(), tokens->end());
  return ids;
}

int64_t BatchEngine::NowMs() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace deepinfer::engine

namespace deepinfer {

std::unique_ptr<Engine> Engine::Open(const EngineOptions& options, std::string* why) {
  Result<std::unique_ptr<engine::BatchEngine>> engine = engine::BatchEngine::Create(options);
  if (engine.ok()) return *std::move(engine);
  *why = engine.status().message();
  return nullptr;
}

}  // namespace deepinfer
