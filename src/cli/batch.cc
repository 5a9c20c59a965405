// SPDX-License-Identifier: Apache-2.0
// deepinfer batch: answers a file of requests.
//
// The main thread reads lines, prepares and submits them, and writes results; the engine's thread feeds the tokens of each
// request to its answer. What both touch is under BatchRun::mutex_. Requests that end badly get an error as their result and
// count as answered; those that an interruption cut short get none, and run when the batch is continued.
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "cli/batch_input.h"
#include "cli/batch_output.h"
#include "cli/batch_progress.h"
#include "cli/cli.h"
#include "cli/common.h"
#include "cli/interrupt.h"
#include "deepinfer/engine.h"
#include "serving/request_builder.h"
#include "serving/scores.h"

namespace deepinfer::cli {
namespace {

// A crash of the machine costs at most so much work; one of the process costs none.
constexpr std::chrono::seconds kSyncEvery{5};

// A request on its way.
struct Work {
  BatchLine line;
  std::shared_ptr<const recipe::PreparedRequest> request;
  std::unique_ptr<recipe::AnswerStream> answer;
  std::vector<GenerationRequest> generations;  // one for each prompt
  std::vector<GenerationId> ids;               // of those submitted
  int choices_open = 0;
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;
  int status = 200;
  std::string error;  // why it is not 200
};

std::string ErrorBody(std::string_view message, int status) {
  std::string text = "{\"error\":{\"message\":";
  AppendJsonString(message, false, &text);
  return text + fmt::format(",\"type\":\"{}\",\"code\":{}}}}}", status < 500 ? "invalid_request_error" : "server_error", status);
}

class BatchRun {
 public:
  BatchRun(const BatchOptions& options, Engine& engine, const recipe::Recipe& recipe, LineReader& input, BatchOutput& output)
      : options_(options),
        engine_(engine),
        recipe_(recipe),
        builder_(engine),
        input_(input),
        output_(output),
        progress_(LineReader::Count(options.input)) {}

  // kOk also where it was interrupted.
  Status Go(const InterruptScope& interrupt);
  const BatchProgress& progress() const { return progress_; }

 private:
  Status ReadOne();
  Status Begin(BatchLine line);
  // Answers without running anything: `response` is {"status_code": ...} or null, `error` {"code": ...} or null.
  Status Write(const BatchLine& line, std::string_view response, std::string_view error);
  Status WriteError(const BatchLine& line, const BatchLineError& error);
  Status WriteResponse(const BatchLine& line, int status, std::string_view body);
  Status WriteEnded();
  // Gives the next prompts of `pending_` to the engine, as many as it takes.
  void SubmitPending();
  void Consume(Work* work, int first_choice, GenerationId id, const Output& output);
  void Refuse(Work* work, int status, std::string message);

  const BatchOptions& options_;
  Engine& engine_;
  const recipe::Recipe& recipe_;
  serving::RequestBuilder builder_;
  LineReader& input_;
  BatchOutput& output_;
  BatchProgress progress_;
  std::unordered_map<std::string, int64_t> seen_;  // custom_id -> line
  bool input_ended_ = false;
  Work* pending_ = nullptr;  // not all of its prompts are submitted

  std::chrono::steady_clock::time_point synced_ = std::chrono::steady_clock::now();

  std::mutex mutex_;
  std::condition_variable wakes_;
  std::unordered_map<Work*, std::unique_ptr<Work>> running_;
  std::deque<std::unique_ptr<Work>> ended_;
  int64_t prompt_tokens_ = 0, answer_tokens_ = 0;
};

Status BatchRun::Write(const BatchLine& line, std::string_view response, std::string_view error) {
  std::string text = "{\"id\":\"" + line.id + "\",\"custom_id\":";
  AppendJsonString(line.custom_id, false, &text);
  text += fmt::format(",\"response\":{},\"error\":{}}}", response, error);
  return output_.Append(line.custom_id, line.id, std::move(text));
}

Status BatchRun::WriteError(const BatchLine& line, const BatchLineError& error) {
  std::string text = "{\"code\":\"" + error.code + "\",\"message\":";
  AppendJsonString(error.message, false, &text);
  progress_.Answered(/*good=*/false);
  return Write(line, "null", text + "}");
}

Status BatchRun::WriteResponse(const BatchLine& line, int status, std::string_view body) {
  progress_.Answered(status == 200);
  return Write(line, fmt::format("{{\"status_code\":{},\"request_id\":\"{}\",\"body\":{}}}", status, line.id, body), "null");
}

// Under mutex_: the request is over, with an error, as soon as what runs of it has ended.
void BatchRun::Refuse(Work* work, int status, std::string message) {
  if (work->status == 200) {
    work->status = status;
    work->error = std::move(message);
  }
  for (const GenerationId id : work->ids) engine_.Cancel(id);
}

void BatchRun::Consume(Work* work, int first_choice, GenerationId id, const Output& output) {
  const std::lock_guard lock(mutex_);
  const int choice = first_choice + output.choice;
  recipe::AnswerStream& answer = *work->answer;
  if (!output.prompt_logprobs.empty() && work->status == 200) {
    const auto prompt = static_cast<size_t>(first_choice / work->generations[0].choices);
    const serving::PromptScores scores(output.prompt_logprobs);
    answer.SetPromptScores(prompt, scores.scores(), nullptr);
  }
  if (output.token >= 0) {
    ++work->answer_tokens;
    ++answer_tokens_;
    if (work->answer_tokens == 1) answer.SetCachedTokens(output.cached_tokens);
    if (work->status == 200 && !answer.done(choice)) {
      std::vector<recipe::TokenCandidate> top;
      for (const TokenAlternative& other : output.alternatives) top.push_back({other.token, other.logprob});
      const recipe::TokenScore score{.logprob = output.logprob.value_or(0), .top = top};
      const std::span<const recipe::TokenScore> scores = output.logprob ? std::span(&score, 1) : std::span<const recipe::TokenScore>();
      if (!answer.PushTokens(choice, std::span(&output.token, 1), scores, nullptr)) {
        Refuse(work, 500, "the answer is over a limit");
      } else if (answer.done(choice)) {
        engine_.Cancel(id, output.choice);
      }
    }
  }
  if (!output.finished) return;
  if (output.reason == FinishReason::kError) {
    Refuse(work, 500, output.error);
  } else if (work->status == 200) {
    const bool stopped = output.reason == FinishReason::kStop || answer.done(choice);
    if (!answer.Finish(choice, stopped ? recipe::FinishKind::kStop : recipe::FinishKind::kLength, nullptr)) {
      Refuse(work, 500, "the answer is over a limit");
    }
  }
  if (--work->choices_open > 0) return;
  prompt_tokens_ += work->prompt_tokens;
  const auto it = running_.find(work);
  ended_.push_back(std::move(it->second));
  running_.erase(it);
  wakes_.notify_one();
}

void BatchRun::SubmitPending() {
  const std::lock_guard lock(mutex_);
  while (pending_ != nullptr) {
    Work* work = pending_;
    const size_t prompt = work->ids.size();
    if (prompt == work->generations.size() || work->status != 200) {
      pending_ = nullptr;
      return;
    }
    const GenerationRequest& generation = work->generations[prompt];
    // The consumer needs the id, which is known only then; it cannot be called before mutex_ is free.
    const auto id = std::make_shared<GenerationId>(0);
    const int first_choice = static_cast<int>(prompt) * generation.choices;
    bool busy = false;
    std::string why;
    *id = engine_.Submit(
        generation, [this, work, first_choice, id](const Output& output) { Consume(work, first_choice, *id, output); }, &why, &busy);
    if (*id != 0) {
      work->ids.push_back(*id);
    } else if (busy) {
      return;
    } else {
      Refuse(work, 400, std::move(why));
      // Choices that never began.
      work->choices_open -= static_cast<int>(work->generations.size() - prompt) * generation.choices;
      if (work->choices_open == 0) {
        const auto it = running_.find(work);
        ended_.push_back(std::move(it->second));
        running_.erase(it);
      }
      pending_ = nullptr;
    }
  }
}

Status BatchRun::Begin(BatchLine line) {
  recipe::RequestError error;
  auto request = recipe_.Prepare(line.protocol, line.body, &error);
  if (request == nullptr) return WriteResponse(line, error.http_status, error.body);
  auto work = std::make_unique<Work>();
  Result<std::vector<GenerationRequest>> generations = builder_.Build(*request);
  if (generations.ok() && !request->images().empty()) {
    generations = Error(Code::kInvalidArgument, "images: this engine takes none");
  }
  if (!generations.ok()) return WriteResponse(line, 400, ErrorBody(generations.status().message(), 400));
  work->generations = *std::move(generations);
  for (const GenerationRequest& generation : work->generations) {
    work->prompt_tokens += static_cast<int64_t>(generation.prompt.size());
    work->choices_open += generation.choices;
  }
  static constexpr const char* kPrefixes[] = {"chatcmpl-", "resp_", "msg_", "cmpl-"};  // by Protocol
  const std::string hex = line.id.substr(line.id.rfind('_') + 1);
  work->answer = recipe_.Answer(request, {.id = kPrefixes[static_cast<size_t>(line.protocol)] + hex,
                                          .model = request->model(),
                                          .system_fingerprint = serving::SystemFingerprint(engine_),
                                          .created = std::time(nullptr),
                                          .clock = [] { return static_cast<int64_t>(std::time(nullptr)); },
                                          .prompt_tokens = work->prompt_tokens});
  work->request = std::move(request);
  work->line = std::move(line);
  pending_ = work.get();
  {
    const std::lock_guard lock(mutex_);
    running_[pending_] = std::move(work);
  }
  SubmitPending();
  return Status();
}

Status BatchRun::ReadOne() {
  std::string text;
  DI_ASSIGN_OR_RETURN(const LineReader::Next next, input_.Read(20, &text));
  if (next == LineReader::Next::kEnd) input_ended_ = true;
  if (next == LineReader::Next::kEnd || next == LineReader::Next::kNotYet) return Status();
  if (text.find_first_not_of(" \t\r") == std::string::npos) {
    progress_.Skipped();
    return Status();
  }
  const int64_t number = input_.line_number();
  BatchLine line;
  BatchLineError error;
  bool good = true;
  if (next == LineReader::Next::kTooLong) {
    NameBadLine(text, number, &line);
    error = {"line_too_long", fmt::format("line {}: more than {} bytes", number, kBatchLineBytesMax)};
    good = false;
  } else {
    good = ParseBatchLine(text, number, &line, &error);
  }
  const auto [seen, first] = seen_.emplace(line.custom_id, number);
  if (!first) {
    error = {"duplicate_custom_id",
             fmt::format("line {}: custom_id \"{}\" is that of line {} too", number, line.custom_id, seen->second)};
    NameBadLine(text, number, &line);
    good = false;
  }
  switch (output_.Find(line.custom_id, line.id)) {
    case BatchOutput::Known::kYes:
      progress_.Skipped();
      return Status();
    case BatchOutput::Known::kOther:
      return Error(Code::kInvalidArgument,
                   "{}: line {}: {} has the answer of another request under custom_id \"{}\"; name another --output",
                   options_.input, number, options_.output, line.custom_id);
    case BatchOutput::Known::kNo:
      break;
  }
  return good ? Begin(std::move(line)) : WriteError(line, error);
}

Status BatchRun::WriteEnded() {
  std::deque<std::unique_ptr<Work>> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(ended_);
    progress_.Tokens(prompt_tokens_, answer_tokens_);
  }
  for (const std::unique_ptr<Work>& work : ended) {
    DI_RETURN_IF_ERROR(WriteResponse(work->line, work->status,
                                     work->status == 200 ? work->answer->Body() : ErrorBody(work->error, work->status)));
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - synced_ < kSyncEvery) return Status();
  synced_ = now;
  return output_.Sync();
}

Status BatchRun::Go(const InterruptScope& interrupt) {
  while (!interrupt.interrupted()) {
    DI_RETURN_IF_ERROR(WriteEnded());
    progress_.Show();
    SubmitPending();
    size_t running = 0;
    {
      std::unique_lock lock(mutex_);
      running = running_.size();
      if (running >= static_cast<size_t>(options_.in_flight) || pending_ != nullptr || (input_ended_ && running > 0)) {
        if (ended_.empty()) wakes_.wait_for(lock, std::chrono::milliseconds(100));
        continue;
      }
      if (input_ended_ && ended_.empty()) break;
    }
    if (!input_ended_) DI_RETURN_IF_ERROR(ReadOne());
  }
  DI_RETURN_IF_ERROR(WriteEnded());
  return output_.Sync();
}

}  // namespace

Result<int> Batch(const BatchOptions& options) {
  const InterruptScope interrupt;
  DI_ASSIGN_OR_RETURN(LineReader input, LineReader::Open(options.input));
  DI_ASSIGN_OR_RETURN(BatchOutput output, BatchOutput::Open(options.output));
  if (output.size() > 0) Note("{}: {} requests are answered there already\n", options.output, output.size());
  DI_ASSIGN_OR_RETURN(const std::string directory, FindModel(options.model));
  std::string why;
  const auto recipe = recipe::Recipe::Load(directory + "/tokenizer.json", {}, &why);
  if (recipe == nullptr) return Error(Code::kDataLoss, "{}", why);
  EngineOptions engine_options{.model_directory = directory,
                               .backend = BackendName(options.model),
                               .variant = options.model.variant,
                               .activations = options.model.activations,
                               .num_threads = options.model.threads};
  engine_options.context_max = options.model.context;
  engine_options.kv_memory_bytes = options.kv_memory_bytes;
  engine_options.requests_running_max = options.in_flight;
  engine_options.requests_waiting_max = std::max(1024, 2 * options.in_flight);
  engine_options.step_rows_max = static_cast<int>(options.model.chunk) + options.in_flight;
  engine_options.prefill_rows_max = static_cast<int>(options.model.chunk);
  engine_options.drafts = options.model.drafts;
  engine_options.verification = options.model.verification;
  Status status;
  int64_t failed = 0;
  {
    auto engine = Engine::Open(engine_options, &why);
    if (engine == nullptr) return Error(Code::kInvalidArgument, "{}", why);
    for (const std::string& warning : engine->warnings()) Note("warning: {}\n", warning);
    BatchRun run(options, *engine, *recipe, input, output);
    status = run.Go(interrupt);
    engine.reset();  // what still runs calls `run` no more
    failed = run.progress().failed();
  }
  DI_RETURN_IF_ERROR(status);
  if (interrupt.interrupted()) {
    Note("interrupted; the same command goes on with what is not answered yet\n");
    return kExitInterrupted;
  }
  if (failed > 0) Note("{} requests got an error as their answer\n", failed);
  return kExitOk;
}

}  // namespace deepinfer::cli
