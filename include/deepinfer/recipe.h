// SPDX-License-Identifier: Apache-2.0
// deepinfer-recipe: requests of four protocols to the token ids that DeepSeek-V4.1 was trained on, and the model's
// tokens back to answers of those protocols. No engine, no server, no network.
//
//   std::string why;
//   auto recipe = Recipe::Load("tokenizer.json", {}, &why);
//   RequestError error;
//   auto request = recipe->Prepare(Protocol::kChat, body, &error);   // nullptr: answer with error.body
//   auto answer = recipe->Answer(request, {.id = "chatcmpl-1", .model = "m"});
//   answer->PushTokens(0, ids, {}, &sse);                            // as the engine makes them
//   answer->Finish(0, FinishKind::kStop, &sse);                      // sse is ready to be sent, or:
//   std::string body = answer->Body();
//
// This header needs the standard library only. A Recipe may be used by any number of threads and its requests are
// immutable; an AnswerStream belongs to one thread at a time. Nothing here throws, prints or reads the environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer::recipe {

enum class Protocol { kChat, kResponses, kMessages, kCompletions };

// kCompatible does what deepseek-recipe 0.2.0 does, weak points included; kDefault does what docs/recipe.md lists
// beyond that.
enum class Profile { kCompatible, kDefault };

struct Request;         // internal
class PreparedRequest;  // below
class AnswerStream;     // below

// ===== requests in =====

struct RequestError {
  int http_status = 400;
  std::string field;    // JSON pointer of the field that is wrong: "/messages/3/content"; empty: the whole body
  std::string message;  // for people; begins with the field
  std::string body;     // the JSON body to answer with, in the protocol's own shape
};

struct RecipeSettings {
  Profile profile = Profile::kDefault;
  // Model names that requests may use; empty: every name is DeepSeek-V4.1.
  std::vector<std::string> models;
  bool default_thinking = true;  // where a request says nothing
  bool default_store = false;    // of a response whose request says nothing
  size_t body_bytes_max = size_t{64} << 20;
  size_t messages_max = 20'000;
  size_t tools_max = 1'024;
  size_t schema_bytes_max = size_t{1} << 20;
  size_t cache_bytes = size_t{16} << 20;  // of texts with their ids, remembered for later turns
  int threads = 1;                        // for encoding one long text
};

// What to sample with. Absent: the request leaves it to the engine.
struct Sampling {
  std::optional<int64_t> max_tokens;
  float temperature = 1.0F;
  float top_p = 1.0F;
  float frequency_penalty = 0.0F;
  float presence_penalty = 0.0F;
  int num_choices = 1;
  std::optional<uint64_t> seed;
  std::optional<int> top_logprobs;
  bool logprobs = false;
};

// Responses: the items (a JSON array) that a conversation had up to and with the response of that id, or nothing where
// there is no such response.
using EarlierItemsFn = std::function<std::optional<std::string>(std::string_view response_id)>;

struct PromptImage {
  size_t token = 0;    // index of its placeholder in ids()
  std::string source;  // an http(s) URL or a data URL
};

// A request that has been understood. Immutable.
class PreparedRequest {
 public:
  virtual ~PreparedRequest() = default;

  // One prompt; plain completions may have several, each with its own choices.
  virtual const std::vector<std::vector<int32_t>>& prompts() const = 0;
  const std::vector<int32_t>& ids() const { return prompts()[0]; }
  // The (first) prompt for people and logs, and which byte ranges of it are control tokens.
  virtual const std::string& text() const = 0;
  virtual const std::vector<std::pair<size_t, size_t>>& control_ranges() const = 0;
  virtual const std::vector<PromptImage>& images() const = 0;
  virtual Sampling sampling() const = 0;
  virtual const std::vector<std::string>& stop_sequences() const = 0;
  // "", or "json", "regex", "choice", "grammar", "structural_tag", "tool_call", "tool_call_required": what the output
  // should be constrained to, with its schema, pattern, JSON array of texts, or JSON array of tools.
  virtual std::string constraint_kind() const = 0;
  virtual std::string constraint() const = 0;
  virtual const std::string& model() const = 0;
  virtual bool stream() const = 0;
  // Responses: whether the answer is to be kept, and the request's own input items as a JSON array, if so.
  virtual bool store() const = 0;
  // Completions: whether log-probabilities of the prompts are wanted (AnswerStream::SetPromptScores).
  virtual bool prompt_logprobs() const = 0;
  virtual const std::string& input_items() const = 0;
  // Tokens to generate at most for a prompt of so many tokens (images counted in full), or nothing where it does not
  // fit the context.
  virtual std::optional<int64_t> ResolveMaxTokens(int64_t prompt_tokens, int64_t context_tokens) const = 0;

  virtual const Request& internal() const = 0;
};

// ===== answers out =====

enum class FinishKind { kStop, kLength, kContentFilter };
enum class FailureKind { kInternal, kUnavailable, kDeadline, kCancelled };

struct TokenCandidate {
  int32_t id = 0;
  float logprob = 0;
};

// What the engine says of one generated token.
struct TokenScore {
  float logprob = 0;
  std::span<const TokenCandidate> top;  // the best alternatives, best first
};

struct AnswerInfo {
  std::string id;     // "chatcmpl-...", "resp_...", "msg_..."
  std::string model;  // as reported
  std::string system_fingerprint;
  int64_t created = 0;  // seconds since 1970
  std::function<int64_t()> clock;  // the same, read when the answer ends; none: `created`
  int64_t prompt_tokens = 0;  // of all prompts
  int64_t cached_tokens = 0;
};

// One answer, all its choices: `num_choices` for each prompt, those of the first prompt first. What is appended to `sse`
// are complete server-sent events; it is nullptr where the answer is not streamed.
class AnswerStream {
 public:
  virtual ~AnswerStream() = default;
  virtual int num_choices() const = 0;
  // What a stream begins with; at the latest the first output does it. Until then the cached tokens may be set.
  virtual void Begin(std::string* sse) = 0;
  virtual void SetCachedTokens(int64_t cached_tokens) = 0;
  // Where the request wants log-probabilities of its prompts: those of one prompt, an entry for each token but the first.
  // To be called before anything else of that prompt's choices; `scores` may be empty where there are none.
  virtual void SetPromptScores(size_t prompt, std::span<const TokenScore> scores, std::string* sse) = 0;
  // Each returns false, with the answer ended by an error event, where the output goes over a limit.
  // `scores` is empty or has one entry for each id.
  virtual bool PushTokens(int choice, std::span<const int32_t> ids, std::span<const TokenScore> scores,
                          std::string* sse) = 0;
  virtual bool PushText(int choice, std::string_view text, int64_t token_count, std::string* sse) = 0;
  virtual bool Finish(int choice, FinishKind reason, std::string* sse) = 0;
  // Ends the answer with an error event.
  virtual void Fail(FailureKind kind, std::string_view message, std::string* sse) = 0;
  // Something for clients to ignore while nothing is generated.
  virtual void KeepAlive(std::string* sse) const = 0;
  // That choice is complete (a stop sequence): generate no further and call Finish().
  virtual bool done(int choice) const = 0;
  // The whole answer as JSON. REQUIRES: all choices are finished; of a response also before, and after Fail().
  virtual std::string Body() const = 0;
};

// ===== both =====

class Recipe {
 public:
  // `tokenizer_json` is a Hugging Face tokenizer.json. Returns nullptr and says why where it cannot be used.
  static std::shared_ptr<const Recipe> Load(const std::string& tokenizer_json, const RecipeSettings& settings,
                                            std::string* why);
  virtual ~Recipe() = default;

  // Returns nullptr and fills `error` where the body is no good request.
  // `earlier`: for `previous_response_id`; without it the field has no effect.
  virtual std::shared_ptr<const PreparedRequest> Prepare(Protocol protocol, std::string_view body, RequestError* error,
                                                         const EarlierItemsFn& earlier = {}) const = 0;
  virtual std::unique_ptr<AnswerStream> Answer(std::shared_ptr<const PreparedRequest> request,
                                               const AnswerInfo& info) const = 0;
  // Plain text as ids and back: nothing in the text becomes a control token; bytes that are no UTF-8 become U+FFFD, ids
  // beyond the vocabulary nothing.
  virtual std::vector<int32_t> Tokenize(std::string_view text) const = 0;
  virtual std::string Detokenize(std::span<const int32_t> ids) const = 0;
};

}  // namespace deepinfer::recipe
