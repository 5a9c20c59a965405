// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/output_parser.h"

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
  void FeedRun();
  void FeedIds(std::span<const TokenId> ids, std::span<const TokenScore> scores);
  void FeedControl(TokenId id, TokenRole role);
  void FeedPending();
  bool EndsUnfinished() const;

  const ParseOptions options;
  const OutputLimits limits;
  const Profile profile;
  const OutputVocabulary* const vocabulary;
  std::unique_ptr<OutputMachine> machine;
  OutputUsage usage;
  bool ids_input = false;
  bool finished = false;
  Utf8Repair repair;
  std::string run;  // bytes of neighbouring ordinary tokens

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

void OutputParser::Impl::FeedRun() {
  if (run.empty()) return;
  repair.Push(run, [&](std::string_view text) { machine->Feed(text); });
  run.clear();
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

void OutputParser::Impl::FeedIds(std::span<const TokenId> ids, std::span<const TokenScore> scores) {
  int64_t uncounted = 0;
  const auto count = [&](bool reasoning) {
    usage.completion_tokens += uncounted;
    if (reasoning && !compatible()) usage.reasoning_tokens += uncounted;
    uncounted = 0;
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    const TokenRole role = vocabulary->Role(ids[i]);
    ++uncounted;
    if (role == TokenRole::kText) {
      run += vocabulary->Bytes(ids[i]);
      if (scores.empty()) continue;
      machine->AddScore(ids[i], scores[i]);
      if (compatible()) continue;  // there the entries of a run go out with the first of its text
      FeedRun();
      machine->DropScoresOfSwallowedText();
      continue;
    }
    FeedRun();
    if (compatible() && machine->done()) {  // there neither this token nor what follows it counts
      --uncounted;
      break;
    }
    const bool was_reasoning = machine->InReasoning();
    if (!scores.empty() && (role == TokenRole::kControl || role == TokenRole::kEndOfSentence)) {
      machine->AddScore(ids[i], scores[i]);
    }
    FeedControl(ids[i], role);
    count(was_reasoning);
  }
  FeedRun();
  count(machine->InReasoning());
  machine->DropScoresOfSwallowedText();
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
