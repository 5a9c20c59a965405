// SPDX-License-Identifier: Apache-2.0
// The engine: many requests at once on one model. With a fixed seed a request's tokens and log-probabilities depend on the
// request alone, bit for bit: not on what runs beside it, chunk sizes, cache hits, preemption or the number of threads
// (replay settings kNone, kExact, kDecoder).
//
//   std::string why;
//   auto engine = Engine::Open({.model_directory = "models/deepseek-v41-tiny"}, &why);
//   auto id = engine->Submit({.prompt = engine->Tokenize("Once upon a time"), .max_tokens = 20},
//                            [](const Output& output) { std::cout << output.text; }, &why);
//   engine->Wait(id);
//
// This header needs the standard library only. All functions of an Engine may be called from any thread. Outputs are
// delivered on the engine's own thread (or inside Step), one at a time: a consumer should hand them on and return; it may
// call Submit and Cancel, but not Wait. A consumer that throws ends its own request and nothing else. Destroying an Engine
// drops requests that have not ended: their consumers hear nothing more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer {

namespace grammar {  // deepinfer/grammar.h
class CompiledGrammar;
class Vocabulary;
}  // namespace grammar

enum class ReplaySetting { kNone, kExact, kDecoder, kBounded };

struct EngineOptions {
  std::string model_directory;
  std::string backend = "cpu";      // or "reference"
  std::string variant;              // kernel variant of the CPU backend; empty: the best
  std::string activations = "fp32";  // or "bf16", "fp8"
  int num_threads = 0;              // of the CPU backend; 0: every core
  std::string engram_tables = "host";  // of the CUDA backend: pinned host memory that the card reads, or "device"

  int64_t context_max = 0;          // tokens of a request, prompt and answer; 0: what the model was made for
  int64_t kv_memory_bytes = int64_t{256} << 20;  // 0: what the running requests need at least, of one of the longest context
  double snapshot_share = 0.2;      // of that memory, for windows kept at block ends
  int snapshot_every_blocks = 0;    // 0: at the end of each prompt and answer only
  int requests_running_max = 64;
  int requests_waiting_max = 1024;
  int step_rows_max = 512;          // rows of a forward pass
  int prefill_rows_max = 0;         // of those for prompts; 0: as many as decodes leave
  // Speculative decoding with the checkpoint's draft model, which changes no answer: "auto" (as many drafts as pay; a
  // checkpoint without a draft runs without, and warnings() says so), "on" (the same, but an error without one), "off", or
  // a number: so many in every step.
  std::string drafts = "auto";
  // Which drafts stand. "coupled": those that the model draws itself, with the same noise; no answer changes. "rejection",
  // "block": by chance, one after the other or as a block; distributed as without drafts, but other tokens for a seed.
  // Greedy answers are the same in all. docs/drafts.md.
  std::string verification = "coupled";
  bool own_thread = true;           // false: somebody calls Step
};

struct GenerationRequest {
  std::vector<int32_t> prompt;  // token ids, at least one
  int64_t max_tokens = 256;     // also bounded by the context
  int64_t min_tokens = 0;       // no end token before
  int choices = 1;              // answers to the same prompt; choice 0 is what a request with one would get
  std::vector<std::string> stop;           // text that ends an answer and is not part of it
  std::vector<int32_t> stop_token_ids;     // end tokens beside the model's own
  std::vector<std::vector<int32_t>> bad_words;  // token sequences that no answer contains
  bool ignore_eos = false;
  // Also log-probabilities of the prompt's own tokens, with that many alternatives; they come with the first output of choice
  // 0. They need every layer on every row, so the request runs as with ReplaySetting::kNone, whatever `replay` says: no
  // cached prefix is taken.
  std::optional<int> prompt_logprobs;
  std::optional<int> logprobs;  // that many alternatives beside each token's own log-probability, of the raw logits

  // What every answer must match; compiled with grammar_vocabulary(). nullptr: anything. It acts on which tokens may be
  // drawn, together with the fields above:
  // - the model's end tokens may come where the text is complete; where nothing else may follow, one does;
  // - min_tokens and ignore_eos keep the end away while the grammar allows anything else, never longer;
  // - bad_words may leave nothing to draw: that ends the request with an error, as does a limit of the grammar's;
  // - stop and stop_token_ids end an answer wherever they come in it, max_tokens after any token: what ends so may be cut.
  std::shared_ptr<const grammar::CompiledGrammar> grammar;
  // The grammar begins behind the first of these tokens, such as the one that ends the thinking; before it every token
  // but the model's end tokens may come, so that no answer ends without its constrained part. None: from the first token.
  std::optional<int32_t> grammar_after;
  // The last tokens of the prompt that belong to the answer already: the grammar (and grammar_after) reads them first.
  int64_t grammar_prompt_tokens = 0;

  float temperature = 0;  // 0: greedy
  int64_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<uint64_t> seed;  // none: drawn, and told by Output::seed

  std::optional<int> drafts;    // none: as the engine is set; 0: no drafts; N: N in every step
  ReplaySetting replay = ReplaySetting::kExact;
  int priority = 0;              // -100 .. 100, higher goes first
  int64_t deadline_ms = 0;       // from Submit; 0: none
  std::string cache_salt;        // requests share cached prefixes only with the same salt
};

enum class FinishReason { kStop, kLength, kCancelled, kDeadline, kError };
std::string_view FinishReasonName(FinishReason reason);  // "stop", "length", ...

struct TokenAlternative {
  int32_t token = 0;
  float logprob = 0;
};

struct PromptLogprob {
  float logprob = 0;  // of the token, after those before it
  std::vector<TokenAlternative> alternatives;
};

// Something new of one choice of a request.
struct Output {
  int choice = 0;
  int32_t token = -1;     // -1: no token, the end or text that was held back
  bool is_end_token = false;
  std::string_view text;  // characters that became certain
  std::optional<float> logprob;
  std::vector<TokenAlternative> alternatives;
  std::span<const PromptLogprob> prompt_logprobs;  // where asked for: one for each prompt token but the first

  bool finished = false;  // the last output of this choice; what follows is set then
  FinishReason reason = FinishReason::kStop;
  std::string error;      // kError: what went wrong
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;   // of those: their global KV came from the cache
  int64_t answer_tokens = 0;
  uint64_t seed = 0;
};
using OutputFn = std::function<void(const Output&)>;

struct EngineStats {
  int64_t steps = 0;
  int64_t rows = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t answer_tokens = 0;
  int64_t preemptions = 0;
  int64_t masks_late = 0;  // times that a constrained answer had no token in a step because its mask was not there
  int64_t requests_running = 0;
  int64_t requests_waiting = 0;
  int64_t blocks = 0;
  int64_t blocks_available = 0;
  int64_t cache_bytes = 0;
  int64_t scratch_bytes = 0;
  double device_idle_seconds = 0;  // a GPU's, between steps or for want of work
  // By place in a block of drafts: how many were verified, and how many of those were accepted. Empty: no drafts.
  std::vector<int64_t> drafts_verified, drafts_accepted;
  int64_t drafts_made = 0;
  double draft_gain = 0;  // tokens/s with drafts over those without, as the engine estimates it; 0: not known yet
  double draft_calibration_error = 0;  // mean |expected - seen| acceptance of a draft
  double draft_schedule_seconds = 0;   // spent on deciding which drafts pay
};

using GenerationId = uint64_t;  // never 0

class Engine {
 public:
  // nullptr, and `why` says what to do, where the model cannot be opened or the memory is too small.
  static std::unique_ptr<Engine> Open(const EngineOptions& options, std::string* why);
  virtual ~Engine() = default;

  // 0, and `why` names the field, where the request is impossible; also where too many wait: then `*busy`, where given, is
  // true, and the same request may be taken later.
  virtual GenerationId Submit(const GenerationRequest& request, OutputFn consumer, std::string* why, bool* busy = nullptr) = 0;
  // All choices of the request, or one of them, end with kCancelled; nothing happens where they have ended.
  virtual void Cancel(GenerationId id) = 0;
  virtual void Cancel(GenerationId id, int choice) = 0;
  // Blocks until the request has ended (own_thread only). Returns at once for one that has.
  virtual void Wait(GenerationId id) = 0;
  // One step by hand, outputs included. False: nothing to do. REQUIRES: own_thread is false.
  virtual bool Step() = 0;

  virtual EngineStats Stats() const = 0;
  virtual std::vector<int32_t> Tokenize(std::string_view text) const = 0;  // plain text, begin token in front
  // The id of exactly that token, such as "</think>"; nothing where there is none.
  virtual std::optional<int32_t> FindToken(std::string_view token) const = 0;
  // What grammars for this engine are compiled with: its tokens, added ones as special ids, the model's end tokens as
  // stop ids. Made at the first call.
  virtual std::shared_ptr<const grammar::Vocabulary> grammar_vocabulary() const = 0;
  virtual const std::string& model_identity() const = 0;
  virtual const std::string& numeric_identity() const = 0;
  virtual int64_t context_max() const = 0;
  // One line about the device's memory: weights, cache, scratch, recorded steps, what is free. Empty on the CPU.
  virtual std::string memory_plan() const { return {}; }
  // What the user should know of the checkpoint: unused tensors, an absent draft.
  virtual const std::vector<std::string>& warnings() const = 0;
};

}  // namespace deepinfer
