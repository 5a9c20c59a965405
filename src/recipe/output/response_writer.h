// SPDX-License-Identifier: Apache-2.0
// Parser events -> an answer in the form of a protocol: as server-sent events while it is generated, and as one JSON
// body at the end. The same calls serve both; who wants no stream passes nullptr for `out`.
//
//   auto writer = ResponseWriter::Create(context, request.answer, request.parsing, request.profile);
//   writer->Begin(&sse);
//   writer->Add(choice, events, &sse);              // as often as the parser gives events
//   writer->EndChoice(choice, parser->usage(), &sse);  // after the parser's Finish()
//   ... send sse, or after the last choice writer->Body()
//
// Everything is a function of the arguments: ids come from AnswerContext, the time from its clock.
// One writer serves one answer and is not for concurrent use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/output/answer.h"
#include "recipe/output/answer_error.h"
#include "recipe/output/output_vocabulary.h"
#include "recipe/output/sse.h"
#include "recipe/request.h"

namespace deepinfer::recipe {

struct AnswerContext {
  std::string id;     // "chatcmpl-...", "resp_...", "msg_..."
  std::string model;  // as reported
  std::string system_fingerprint;
  int64_t created = 0;               // seconds since 1970
  std::function<int64_t()> clock;    // the same, read when the answer ends; none: `created`
  uint64_t call_id_seed = 0;         // the random part of call ids is a function of it, the choice and the call
  int64_t prompt_tokens = 0;         // counted once for all choices
  int64_t cached_tokens = 0;         // those of them that came from a cache
  int num_choices = 1;
  // Needed where the backend gives logprobs; must outlive the writer.
  const OutputVocabulary* vocabulary = nullptr;
  // Compatible profile: tokens of a text, by which it counts reasoning tokens. None: they are not reported.
  std::function<int64_t(std::string_view)> count_tokens;
  // Completions with echo: the prompts' texts; choice c answers prompt c / (num_choices / their number).
  std::vector<std::string> echoed_prompts;
};

class ResponseWriter {
 public:
  static std::unique_ptr<ResponseWriter> Create(AnswerContext context, const AnswerOptions& options,
                                                const ParseOptions& parsing, Profile profile);
  virtual ~ResponseWriter() = default;
  ResponseWriter(const ResponseWriter&) = delete;
  ResponseWriter& operator=(const ResponseWriter&) = delete;

  // What a stream begins with.
  virtual void Begin(std::vector<SseEvent>* out) = 0;
  // Events of one batch of a choice's parser.
  void Add(int choice, const OutputEvents& events, std::vector<SseEvent>* out);
  // Once for each choice, after its kFinish event; after the last one comes what a stream ends with.
  void EndChoice(int choice, const OutputUsage& usage, std::vector<SseEvent>* out);
  // Completions, where AnswerOptions::prompt_logprobs: those of a prompt, before anything else of its choices. A NaN
  // stands for a token that has none.
  virtual void AddPromptLogprobs(size_t prompt, std::vector<TokenLogprob> tokens, std::vector<TokenCandidate> candidates,
                                 std::vector<SseEvent>* out);
  // Ends a stream that cannot go on.
  virtual void Fail(const AnswerError& error, std::vector<SseEvent>* out) = 0;
  void SetCachedTokens(int64_t cached_tokens) { context_.cached_tokens = cached_tokens; }
  // Something for clients to ignore while nothing is generated.
  virtual SseEvent KeepAlive() const { return {}; }
  // The whole answer. REQUIRES: all choices ended; of a response also before, and after Fail().
  virtual std::string Body() const = 0;

  const std::vector<Answer>& answers() const { return answers_; }

 protected:
  ResponseWriter(AnswerContext context, const AnswerOptions& options, const ParseOptions& parsing, Profile profile);

  // `answer` has taken the event in; `fresh`: it began a new part.
  virtual void OnEvent(int choice, const OutputEvents& events, const OutputEvent& event, bool fresh,
                       std::vector<SseEvent>* out) = 0;
  virtual void OnChoiceEnd(int choice, std::vector<SseEvent>* out) = 0;
  virtual void OnAllEnd(std::vector<SseEvent>* out) = 0;

  bool compatible() const { return profile_ == Profile::kCompatible; }
  bool thinking() const { return parsing_.stage != ThinkingStage::kNone; }
  int64_t CompletionTokens() const;
  int64_t ReasoningTokens() const;
  // False where the compatible profile has no way to count.
  bool KnowsReasoningTokens() const { return !compatible() || context_.count_tokens != nullptr; }
  // A token's text; one whose bytes are no whole characters is spelled out: \xf0.
  std::string TokenText(TokenId id) const;
  // Entries {token, logprob, bytes, top_logprobs}, comma between them.
  std::string LogprobEntries(std::span<const TokenLogprob> tokens, std::span<const TokenCandidate> candidates) const;
  // The same for the tokens of an event.
  std::string LogprobEntries(const OutputEvents& events, const OutputEvent& event) const;
  // `arguments` as a JSON object, of duplicate keys the last; "{}" where they are none.
  std::string ArgumentsObject(const std::string& arguments) const;
  // "malformed_tool_calls": [...], the default profile's field for what is no call; empty where there is none.
  std::string MalformedCalls(const Answer& answer) const;

  AnswerContext context_;
  const AnswerOptions options_;
  const ParseOptions parsing_;
  const Profile profile_;
  std::vector<Answer> answers_;

 private:
  std::string CallId(int choice, int call) const;

  int num_ended_ = 0;
};

}  // namespace deepinfer::recipe
