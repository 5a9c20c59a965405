// SPDX-License-Identifier: Apache-2.0
// Constrained decoding: a constraint (regex, JSON Schema, grammar, choices, structural tags) becomes an automaton over
// bytes, and for each step the set of tokens that keep the output completable is given as a bit mask.
//
//   auto vocabulary = Vocabulary::Create(token_bytes, special_ids, stop_ids);
//   auto compiled = Compile(Constraint::JsonSchema(text), vocabulary, {});
//   Matcher matcher(*compiled);
//   matcher.FillMask(mask); ... matcher.Accept(token); ... matcher.IsComplete()
//
// What holds for every constraint: whatever may stop is valid (soundness); every valid text can be produced
// (completeness; docs/grammar.md lists where a canonical form narrows the spelling); no reachable state is without a
// token or the permission to stop (no dead ends), provided the vocabulary has a token for every single byte.
//
// Thread safety: Vocabulary and CompiledGrammar may be shared by threads. A Matcher, and all its forks together, belong
// to one thread at a time. Errors are Status values; nothing throws.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/status.h"

namespace deepinfer::grammar {

// The tokens as byte strings, in the form in which masks are computed. About 10 MB, and 0.2 s to make, for 130,000 tokens:
// make one for a model and share it.
class Vocabulary {
 public:
  // token_bytes[id]: the bytes of ordinary tokens; ignored for special ids. Ids in `special` are matched by id only
  // (Grammar: <[id]>), never as text. `stop`: ids that end the output; they are special too. Padding rows of the head
  // are simply ids >= token_bytes.size() and never allowed. Nor are tokens of more than 250 bytes or with a byte FE or FF,
  // which no text has. Ids in `special` and `stop` beyond the tokens are passed over.
  static std::shared_ptr<const Vocabulary> Create(std::span<const std::string> token_bytes,
                                                  std::span<const uint32_t> special, std::span<const uint32_t> stop);
  virtual ~Vocabulary() = default;
  virtual size_t size() const = 0;
  // 32-bit words of a mask: (size() + 31) / 32.
  virtual size_t mask_words() const = 0;
};

struct CompileLimits {
  std::chrono::milliseconds time{1000};      // CPU time of the compiling thread
  size_t memory_bytes = size_t{256} << 20;   // of one engine, at compile time and later
  uint64_t steps = 200'000'000;
  // Of a matcher's calls, later: what one of them may take at once, counted, so that a busy machine does not matter. A
  // sixteenth of it comes back with each call. Only what the engine has not worked out before is counted. 100,000 take
  // about 30 ms; a mask of an ordinary schema needs under 1,000.
  uint64_t call_steps = 200'000;
  size_t source_bytes = size_t{4} << 20;
};

enum class KeyOrder {
  kSchema,  // declared keys in the order of the schema; others anywhere between them
  kFree,    // any order
};

enum class Spelling {
  kAny,    // every spelling of a value that JSON has
  kUsual,  // what writers of JSON do: no blanks before ":" and ",", one space at most behind ":", elsewhere one space or a
           // line feed with its indentation; no \u escapes of ASCII letters and digits
};

struct CompileOptions {
  KeyOrder key_order = KeyOrder::kSchema;
  Spelling spelling = Spelling::kAny;
  // Blanks (space, tab, line feed, carriage return) allowed at each place where JSON allows any. 0: compact JSON.
  // kUsual: the longest indentation.
  uint32_t whitespace_max = 32;
  bool assert_formats = true;       // `format` is enforced, not an annotation
  bool allow_unsupported = false;   // drop what cannot be enforced; Dropped() lists it
  std::vector<std::pair<std::string, std::string>> documents;  // URI, JSON text: further documents for $ref
  CompileLimits limits;
  const std::atomic<bool>* cancel = nullptr;  // set it from another thread to stop a compilation
};

// One tool of a structural tag for DSML tool calls.
struct ToolConstraint {
  std::string name;
  std::string parameters;  // JSON Schema of the arguments object; empty: any object
  bool strict = true;      // false: the arguments are free
};

struct DsmlOptions {
  uint32_t dsml_token = 0;       // id of the marker token inside <...>
  bool required = false;         // at least one call; the output starts with the block's opener
  bool parallel = true;          // false: at most one call
  bool v41 = true;               // "<D calls>", "<D invoke" with a blank; false: "<Dtool_calls>", "<Dinvoke"
  bool opener_in_prompt = false; // the prompt ends with the opener already
  std::vector<uint32_t> free_tokens;  // special ids that may stand in the free text
  // An answer without a call is not free text but matches one of these, where it is not empty.
  std::string text_schema, text_regex;
};

class Constraint {
 public:
  enum class Kind { kRegex, kJsonSchema, kGrammar, kLark, kChoice, kStructuralTag, kDsml };

  static Constraint Regex(std::string pattern) { return {Kind::kRegex, std::move(pattern)}; }
  static Constraint JsonSchema(std::string schema) { return {Kind::kJsonSchema, std::move(schema)}; }
  static Constraint JsonObject() { return {Kind::kJsonSchema, R"({"type":"object"})"}; }
  static Constraint Grammar(std::string gbnf) { return {Kind::kGrammar, std::move(gbnf)}; }
  static Constraint Lark(std::string lark) { return {Kind::kLark, std::move(lark)}; }
  static Constraint Choice(std::vector<std::string> choices) {
    Constraint result{Kind::kChoice, ""};
    result.choices = std::move(choices);
    return result;
  }
  // {"type":"structural_tag","structures":[{"begin":..,"schema":..,"end":..}],"triggers":[..]}
  static Constraint StructuralTag(std::string json) { return {Kind::kStructuralTag, std::move(json)}; }
  static Constraint Dsml(std::vector<ToolConstraint> tools, DsmlOptions options) {
    Constraint result{Kind::kDsml, ""};
    result.tools = std::move(tools);
    result.dsml = std::move(options);
    return result;
  }

  Kind kind = Kind::kRegex;
  std::string text;
  std::vector<std::string> choices;
  std::vector<ToolConstraint> tools;
  DsmlOptions dsml;

 private:
  Constraint(Kind k, std::string t) : kind(k), text(std::move(t)) {}
};

// A compiled constraint. Cheap to copy; the state it shares is internally synchronised. Matchers borrow an engine with
// its warm caches and give it back; its memory is bounded by CompileLimits::memory_bytes per engine.
class CompiledGrammar {
 public:
  class Impl;
  explicit CompiledGrammar(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  // With allow_unsupported: JSON pointers of the keywords that were dropped.
  const std::vector<std::string>& Dropped() const;
  const Vocabulary& vocabulary() const;  // that it was compiled with
  std::shared_ptr<Impl> impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// Errors: kInvalidArgument (bad syntax, unsatisfiable: the message names the place), kUnimplemented (a keyword or
// construct that cannot be enforced, with its JSON pointer or offset), kResourceExhausted (a limit), kCancelled.
Result<CompiledGrammar> Compile(const Constraint& constraint, std::shared_ptr<const Vocabulary> vocabulary,
                                const CompileOptions& options);

// A cache of compiled constraints by content, least recently used out first. Thread-safe; two threads that ask for the
// same new constraint may both compile it.
class CompileCache {
 public:
  explicit CompileCache(size_t entries_max = 256);
  ~CompileCache();
  Result<CompiledGrammar> Get(const Constraint& constraint, const std::shared_ptr<const Vocabulary>& vocabulary,
                              const CompileOptions& options);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Follows one output. FillMask is the costly call: microseconds as a rule, and never more than CompileLimits::call_steps and
// memory_bytes allow. A matcher that has met a limit stays so: masks and tokens give kResourceExhausted from then on, and it
// is neither complete nor finished.
class Matcher {
 public:
  // A matcher and its forks have an engine of their own: one that the grammar keeps (8 at most, from matchers that are gone),
  // or a new one, which takes as long to make as Compile did.
  explicit Matcher(const CompiledGrammar& grammar);
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;
  ~Matcher();

  // A second matcher at the same place, sharing caches with this one.
  Matcher Fork() const;

  // Sets the bit of each allowed token, clears all others. Stop ids are allowed iff IsComplete().
  // REQUIRES: mask.size() == mask_words(). Errors: kResourceExhausted (limits).
  Status FillMask(std::span<uint32_t> mask);
  // kInvalidArgument where the token is not allowed; the matcher is unchanged then. A stop id ends the output: after it
  // nothing is allowed.
  Status Accept(uint32_t token);
  // Whether the bytes can follow here; nothing is changed. For tests and validators.
  bool CanAcceptBytes(std::string_view bytes);
  Status AcceptBytes(std::string_view bytes);
  // Takes back the last `count` accepted tokens (or AcceptBytes calls). REQUIRES: that many were accepted.
  void Rollback(size_t count);
  size_t accepted() const;

  // The text so far may end here.
  bool IsComplete() const;
  // IsComplete() and nothing can follow.
  bool IsFinished();
  // The tokens that must follow, each the only one allowed at its place ("jump ahead"); at most `max`.
  std::vector<uint32_t> ForcedTokens(size_t max);

 private:
  struct State;
  explicit Matcher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::grammar
