// SPDX-License-Identifier: Apache-2.0
// deepinfer-recipe: requests of four protocols to the token ids that DeepSeek-V4.1 was trained on, and the model's
// tokens back to answers of those protocols. No engine, no server, no network.
//
//   std::string why;
//   auto recipe = Recipe::Load("tokenizer.json", {}, &why);
//   RequestError error;
//   auto request = recipe->Prepare(Protocol::kChat, body, &error);   // nullptr: answer with error.body
//   auto answer = recipe->Answer(request, {.id = "chatcmpl-1", .model = "m"});
//   answer->PushTokens(0, ids, &sse);                                // as the engine makes them
//   answer->Finish(0, FinishKind::kStop, &sse);                      // sse is ready to be sent, or:
//   std::string body = answer->Body();
//
// This header needs the standard library only. A Recipe may be used by any number of threads and its requests are
// immutable; an AnswerStream belongs to one thread at a time. Nothing here throws, prints or reads the environment.
#pragma once

#include <cstddef>
#include <cstdint>
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

struct PromptImage {
  size_t token = 0;    // index of its placeholder in ids()
  std::string source;  // an http(s) URL or a data URL
};

// A request that has been understood. Immutable.
class PreparedRequest {
 public:
  virtual ~PreparedRequest() = default;

  virtual const std::vector<int32_t>& ids() const = 0;
  // The prompt for people and logs, and which byte ranges of it are control tokens.
  virtual const std::string& text() const = 0;
  virtual const std::vector<std::pair<size_t, size_t>>& control_ranges() const = 0;
  virtual const std::vector<PromptImage>& images() const = 0;
  virtual Sampling sampling() const = 0;
  virtual const std::vector<std::string>& stop_sequences() const = 0;
  // "", or "json", "regex", "tool_call", "tool_call_required": what the output should be constrained to, with its
  // schema, pattern or list of tools.
  virtual std::string constraint_kind() const = 0;
  virtual std::string constraint() const = 0;
  virtual const std::string& model() const = 0;
  virtual bool stream() const = 0;
  // Tokens to generate at most for a prompt of so many tokens (images counted in full), or nothing where it does not
  // fit the context.
  virtual std::optional<int64_t> ResolveMaxTokens(int64_t prompt_tokens, int64_t context_tokens) const = 0;

  virtual const Request& internal() const = 0;
};

// ===== answers out =====

enum class FinishKind { kStop, kLength, kContentFilter };

struct AnswerInfo {
  std::string id;     // "chatcmpl-...", "resp_...", "msg_..."
  std::string model;  // as reported
  std::string system_fingerprint;
  int64_t created = 0;  // seconds since 1970
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
};

// One answer, all its choices. What is appended to `sse` are complete server-sent events.
class AnswerStream {
 public:
  virtual ~AnswerStream() = default;
  // Each returns false, with the answer ended by an error event, where the output goes over a limit.
  virtual bool PushTokens(int choice, std::span<const int32_t> ids, std::string* sse) = 0;
  virtual bool PushText(int choice, std::string_view text, int64_t token_count, std::string* sse) = 0;
  virtual bool Finish(int choice, FinishKind reason, std::string* sse) = 0;
  // That choice is complete (a stop sequence): generate no further and call Finish().
  virtual bool done(int choice) const = 0;
  // The whole answer as JSON. REQUIRES: all choices are finished.
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
  virtual std::shared_ptr<const PreparedRequest> Prepare(Protocol protocol, std::string_view body,
                                                         RequestError* error) const = 0;
  virtual std::unique_ptr<AnswerStream> Answer(std::shared_ptr<const PreparedRequest> request,
                                               const AnswerInfo& info) const = 0;
};

}  // namespace deepinfer::recipe
