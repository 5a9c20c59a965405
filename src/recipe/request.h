// SPDX-License-Identifier: Apache-2.0
// A request after parsing and validation: the conversation, and all that generation and the answer need besides it.
// Plain values: no shared state, copy and move freely; const use from many threads is safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "deepinfer/recipe.h"  // Protocol, Profile
#include "recipe/conversation.h"

namespace deepinfer::recipe {

// Where the model's output begins.
enum class ThinkingStage {
  kNone,                   // content (thinking is off)
  kReasoningStart,         // a new turn's reasoning: leading newlines are dropped
  kReasoningContinuation,  // reasoning that a prefix began: leading newlines are kept
  kContentContinuation,    // content that a prefix began: leading newlines are kept
};

// What the output parser has to know of the request.
struct ParseOptions {
  bool parse_tool_calls = false;       // tools are listed and may be called
  bool starts_in_tool_calls = false;   // the prompt has opened the call block (required choice without thinking)
  bool parse_json_output = false;      // json_object
  ThinkingStage stage = ThinkingStage::kNone;
  std::vector<std::string> stop_sequences;
  // Default profile only:
  bool calls_required = false;         // required choice with thinking: calls must follow the reasoning
  bool one_call_only = false;          // parallel calls were declined: the answer ends after the first call
  int64_t min_tokens = 0;              // no stop sequence acts before

  bool operator==(const ParseOptions&) const = default;
};

// What a backend can enforce while it decodes.
struct OutputConstraint {
  enum class Kind { kJson, kRegex, kToolCall, kToolCallRequired };
  Kind kind = Kind::kJson;
  // kJson: a JSON Schema, or empty for any JSON value. kRegex: the pattern. Tool calls: a JSON array of function tools
  // in Chat form, those that are deferred marked so.
  std::string schema;

  bool operator==(const OutputConstraint&) const = default;
};

// What the content of an answer must be: of a response format, or of a field that guides decoding without a trace in the
// prompt. In the words of the request; `src/recipe/constraint` makes a grammar of it.
struct ContentConstraint {
  enum class Kind { kJsonObject, kJsonSchema, kRegex, kChoice, kGrammar, kStructuralTag };
  Kind kind = Kind::kJsonObject;
  std::string text;                  // JSON Schema, pattern, grammar (GBNF or Lark), structural tag (JSON)
  std::vector<std::string> choices;  // kChoice
  std::string field;                 // JSON pointer of it, for errors

  bool operator==(const ContentConstraint&) const = default;
};

// How constrained JSON is to be written, where the request says so; else as the server is set.
struct OutputForm {
  std::optional<bool> compact;        // no blanks
  std::optional<bool> closed;         // objects take the declared members alone, where their schema says nothing of others
  std::optional<int64_t> max_length;  // of strings and arrays that their schema leaves open; 0: none
  std::optional<int64_t> max_items;

  bool operator==(const OutputForm&) const = default;
};

struct SamplingOptions {
  std::optional<int64_t> max_tokens;  // as requested; see ResolveMaxTokens
  float temperature = 1.0F;
  float top_p = 1.0F;
  std::optional<uint64_t> seed;
  bool logprobs = false;
  std::optional<int> top_logprobs;  // 0..20
  std::optional<OutputConstraint> constraint;
  // Default profile only:
  int num_choices = 1;
  float frequency_penalty = 0.0F;
  float presence_penalty = 0.0F;
  std::optional<int> top_k;
  std::optional<float> min_p;
  std::optional<int64_t> min_tokens;
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, bias; ascending ids
  std::optional<int64_t> thinking_budget_tokens;

  bool operator==(const SamplingOptions&) const = default;
};

// Settings that a Responses answer reports back, in the form that it reports them.
struct ResponsesEcho {
  std::optional<std::string> instructions;
  std::optional<int64_t> max_output_tokens;
  double temperature = 1.0;
  double top_p = 1.0;
  int top_logprobs = 0;
  std::optional<std::string> user;
  Json reasoning;    // {"effort": ..., "summary": ...}
  Json text;         // {"format": {...}, "verbosity": ...}
  Json tool_choice;  // "auto", or the object
  Json tools;        // array
  // Default profile only:
  Json metadata;  // object or null
  bool store = false;
  bool background = false;
  std::string input_items;  // where it is stored: the request's own input, a JSON array
  bool parallel_tool_calls = true;
  std::optional<std::string> previous_response_id;
};

// A function name and what it stood for in a Responses namespace.
struct NamespacedTool {
  std::string function;
  std::string namespace_name;
  std::string local_name;

  bool operator==(const NamespacedTool&) const = default;
};

// What only the answer's shape depends on.
struct AnswerOptions {
  Protocol protocol = Protocol::kChat;
  std::string model;  // as requested
  bool stream = false;
  bool include_usage = false;  // Chat: stream_options.include_usage
  // Responses:
  std::vector<NamespacedTool> namespace_tools;
  std::vector<std::string> custom_tools;  // functions to be reported as custom_tool_call ("apply_patch")
  bool client_tool_search = false;        // calls of `tool_search` are reported as tool_search_call
  bool encrypted_reasoning = false;       // include: reasoning.encrypted_content (default profile)
  ResponsesEcho echo;
  // Completions:
  bool echo_prompt = false;
  bool prompt_logprobs = false;  // with the echo, log-probabilities of its tokens
};

struct Request {
  ModelVersion version = ModelVersion::kV41;
  Profile profile = Profile::kCompatible;
  Conversation conversation;
  // kCompletions: the prompts as they stand, instead of `conversation`, and the text after the hole for
  // fill-in-the-middle.
  struct RawPrompt {
    std::string text;
    std::vector<int32_t> ids;  // where not empty, instead of `text`
  };
  std::vector<RawPrompt> raw;
  std::optional<std::string> suffix;
  SamplingOptions sampling;
  std::optional<ContentConstraint> content;
  OutputForm form;
  ParseOptions parsing;
  AnswerOptions answer;
};

}  // namespace deepinfer::recipe
