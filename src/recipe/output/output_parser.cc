// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/output_parser.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/utf8.h"
#include "recipe/output/compatible_machine.h"
#include "recipe/output/default_machine.h"
#include "recipe/output/utf8_repair.h"

namespace deepinfer::recipe {
namespace {

// A copy of TokenScore that outlives the call.
struct PendingScore {
  float logprob = 0;
  std::vector<TokenCandidate> top;
};

Status CheckStops(const ParseOptions& options, const OutputLimits& limits) {
  if (options.stop_sequences.size() > limits.stop_sequences_max) {
    return Error(Code::kResourceExhausted, "stop: {} sequences are over the limit stop_sequences_max of {}",
                 options.stop_sequences.size(), limits.stop_sequences_max);
  }
  for (size_t i = 0; i < options.stop_sequences.size(); ++i) {
    const std::string& stop = options.stop_sequences[i];
    if (stop.empty()) return Error(Code::kInvalidArgument, "stop[{}]: empty string", i);
    if (stop.size() > limits.stop_sequence_bytes_max) {
      return Error(Code::kResourceExhausted, "stop[{}]: {} bytes are over the limit stop_sequence_bytes_max of {}", i,
                   stop.size(), limits.stop_sequence_bytes_max);
    }
  }
  return Status();
}

}  // namespace

struct OutputParser::Impl {
  Impl(const ParseOptions& parse_options, Profile which, const OutputVocabulary* vocabulary_or_null,
       const OutputLimits& output_limits)
      : options(parse_options), limits(output_limits), profile(which), vocabulary(vocabulary_or_null) {
    if (profile == Profile::kCompatible) {
      machine = std::make_unique<CompatibleMachine>(options, limits);
    } else {
      machine = std::make_unique<DefaultMachine>(options, limits);
    }
  }

  bool compatible() const { return profile == Profile::kCompatible; }
  bool Begin(bool ids, OutputEvents* events);
  void AppendToRun(std::string_view bytes);
  void FeedRun();
  void FeedText(TokenId id, const TokenScore* score);
  void FeedIds(std::span<const TokenId> ids, std::span<const TokenScore> scores);
  void Count(bool reasoning);
  void DropScores();
  void FeedControl(TokenId id, TokenRole role);
  void FeedPending();
  // Where ordinary tokens may end the answer, each is fed by itself, so that what it ends does not count what follows.
  bool OneByOne() const {
    return !options.stop_sequences.empty() || options.parse_json_output || options.one_call_only;
  }
  bool EndsUnfinished() const;

  const ParseOptions options;
  const OutputLimits limits;
  const Profile profile;
  const OutputVocabulary* const vocabulary;
  std::unique_ptr<OutputMachine> machine;
  const bool one_by_one = !compatible() && OneByOne();
  OutputUsage usage;
  bool ids_input = false;
  bool finished = false;
  Utf8Repair repair;
  std::string run;  // its first run_size bytes: neighbouring ordinary tokens
  size_t run_size = 0;
  int64_t uncounted = 0;

  // Compatible profile: a chunk that ends in U+FFFD, or has no text, waits for the next.
  std::vector<TokenId> pending_ids;
  std::vector<PendingScore> pending_scores;
};

// False when the input is to be ignored.
bool OutputParser::Impl::Begin(bool ids, OutputEvents* events) {
  DI_CHECK(!finished);
  machine->SetEvents(events);
  machine->BeginChunk();
  if (machine->done() || !machine->status().ok()) return false;
  if (ids != ids_input) {
    if (!pending_ids.empty()) FeedPending();
    repair.Flush([&](std::string_view text) { machine->Feed(text); });
    ids_input = ids;
    machine->SetInput(ids);
  }
  return true;
}

void OutputParser::Impl::AppendToRun(std::string_view bytes) {
  constexpr size_t kPadding = OutputVocabulary::kPadding;
  if (run.size() < run_size + bytes.size() + kPadding) run.resize(2 * (run_size + bytes.size() + kPadding));
  // Nearly all entries are short: a copy of fixed size needs no call.
  std::memcpy(run.data() + run_size, bytes.data(), kPadding);
  if (bytes.size() > kPadding) std::memcpy(run.data() + run_size, bytes.data(), bytes.size());
  run_size += bytes.size();
}

void OutputParser::Impl::FeedRun() {
  if (run_size == 0) return;
  repair.Push({run.data(), run_size}, [&](std::string_view text) { machine->Feed(text); });
  run_size = 0;
}

void OutputParser::Impl::FeedControl(TokenId id, TokenRole role) {
  const std::string_view spelling = vocabulary->Bytes(id);
  // An end of sentence says nothing that the backend's finish does not; the compatible profile shows it as text.
  if (role == TokenRole::kEndOfSentence && !compatible()) return;
  repair.Flush([&](std::string_view text) { machine->Feed(text); });
  machine->FeedControl(role == TokenRole::kThinkEnd ? kThinkEndSymbol
                       : role == TokenRole::kDsml   ? kDsmlSymbol
                                                    : kOpaqueSymbol,
                       spelling);
}

// The tokens fed since the last call, in the stage in which they ended.
void OutputParser::Impl::Count(bool reasoning) {
  usage.completion_tokens += uncounted;
  if (reasoning && !compatible()) usage.reasoning_tokens += uncounted;
  uncounted = 0;
}

// Tokens whose text is neither out nor held back have had theirs swallowed.
void OutputParser::Impl::DropScores() {
  if (!repair.HoldsBack() && !machine->HoldsBack()) machine->ClearScores();
}

void OutputParser::Impl::FeedText(TokenId id, const TokenScore* score) {
  AppendToRun(vocabulary->Bytes(id));
  if (score != nullptr) machine->AddScore(id, *score);
  // In the compatible profile the entries of a run go out with the first of its text.
  if (compatible()) return;
  // Ordinary tokens end a stage only together with a control token that is held back; then each counts by itself.
  if (score == nullptr && !machine->HoldsBack() && !one_by_one) return;
  FeedRun();
  Count(machine->InReasoning());
  DropScores();
}

void OutputParser::Impl::FeedIds(std::span<const TokenId> ids, std::span<const TokenScore> scores) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (one_by_one && machine->done()) break;
    machine->SetStopsActive(usage.completion_tokens + uncounted + 1 >= options.min_tokens);
    const TokenScore* score = scores.empty() ? nullptr : &scores[i];
    const TokenRole role = vocabulary->Role(ids[i]);
    ++uncounted;
    if (role == TokenRole::kText) {
      FeedText(ids[i], score);
      continue;
    }
    FeedRun();
    if (compatible() && machine->done()) {  // there neither this token nor what follows it counts
      --uncounted;
      break;
    }
    const bool was_reasoning = machine->InReasoning();
    const bool shown = role == TokenRole::kControl || (compatible() && role == TokenRole::kEndOfSentence);
    if (score != nullptr && shown) machine->AddScore(ids[i], *score);
    FeedControl(ids[i], role);
    Count(was_reasoning);
  }
  FeedRun();
  Count(machine->InReasoning());
  DropScores();
}

// Whether what is pending decodes to nothing or ends in U+FFFD, be it a genuine one.
bool OutputParser::Impl::EndsUnfinished() const {
  std::string tail;  // the last bytes, enough for one character
  for (size_t i = pending_ids.size(); i-- > 0 && tail.size() < 4;) {
    tail.insert(0, vocabulary->Bytes(pending_ids[i]));
  }
  for (size_t size = 1; size <= 4 && size <= tail.size(); ++size) {
    const Utf8Char c = DecodeUtf8(std::string_view(tail).substr(tail.size() - size));
    if (c.valid && c.size == size) return c.code_point == 0xFFFD;
  }
  return true;
}

void OutputParser::Impl::FeedPending() {
  std::vector<TokenScore> scores;
  for (const PendingScore& score : pending_scores) scores.push_back({.logprob = score.logprob, .top = score.top});
  FeedIds(pending_ids, scores);
  pending_ids.clear();
  pending_scores.clear();
  // The whole chunk was decoded together: nothing of it is unfinished.
  repair.Flush([&](std::string_view text) { machine->Feed(text); });
}

OutputParser::OutputParser(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OutputParser::~OutputParser() = default;

Result<std::unique_ptr<OutputParser>> OutputParser::Create(const ParseOptions& options, Profile profile,
                                                           const OutputVocabulary* vocabulary,
                                                           const OutputLimits& limits) {
  DI_RETURN_IF_ERROR(CheckStops(options, limits));
  return std::unique_ptr<OutputParser>(
      new OutputParser(std::make_unique<Impl>(options, profile, vocabulary, limits)));
}

bool OutputParser::done() const { return impl_->machine->done(); }
const OutputUsage& OutputParser::usage() const { return impl_->usage; }

Status OutputParser::PushText(std::string_view text, int64_t token_count, OutputEvents* events) {
  if (!impl_->Begin(false, events)) return impl_->machine->status();
  impl_->repair.Push(text, [&](std::string_view piece) { impl_->machine->Feed(piece); });
  impl_->usage.completion_tokens += token_count;
  if (!impl_->compatible() && impl_->machine->InReasoning()) impl_->usage.reasoning_tokens += token_count;
  return impl_->machine->status();
}

Status OutputParser::PushTokens(std::span<const TokenId> ids, std::span<const TokenScore> scores,
                                OutputEvents* events) {
  DI_CHECK(impl_->vocabulary != nullptr && (scores.empty() || scores.size() == ids.size()));
  if (!impl_->Begin(true, events)) return impl_->machine->status();
  if (!impl_->compatible()) {
    impl_->FeedIds(ids, scores);
    return impl_->machine->status();
  }
  impl_->pending_ids.insert(impl_->pending_ids.end(), ids.begin(), ids.end());
  for (const TokenScore& score : scores) {
    impl_->pending_scores.push_back({.logprob = score.logprob, .top = {score.top.begin(), score.top.end()}});
  }
  if (!impl_->EndsUnfinished()) impl_->FeedPending();
  return impl_->machine->status();
}

Status OutputParser::Finish(BackendFinish finish, OutputEvents* events) {
  DI_CHECK(!impl_->finished);
  OutputMachine& machine = *impl_->machine;
  machine.SetEvents(events);
  if (machine.status().ok()) {
    if (!machine.done()) impl_->repair.Flush([&](std::string_view text) { machine.Feed(text); });
    machine.End();
  }
  impl_->finished = true;
  DI_RETURN_IF_ERROR(machine.status());
  FinishReason reason = FinishReason::kStop;
  if (machine.stopped()) {
    reason = FinishReason::kStopSequence;
  } else if (finish == BackendFinish::kLength) {
    reason = FinishReason::kLength;
  } else if (finish == BackendFinish::kContentFilter) {
    reason = FinishReason::kContentFilter;
  } else if (machine.cut()) {
    reason = FinishReason::kLength;
  } else if (machine.num_calls() > 0 && (finish == BackendFinish::kStop || !impl_->compatible())) {
    reason = FinishReason::kToolCalls;
  }
  events->Add(OutputEventKind::kFinish, -1, machine.stop_sequence()).finish = reason;
  return Status();
}

}  // namespace deepinfer::recipe
