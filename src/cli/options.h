// SPDX-License-Identifier: Apache-2.0
// What the command line says, as plain values: one struct for each subcommand. cli.cc fills them, the command_*.cc files
// act on them and know nothing of the parser.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"

namespace deepinfer::cli {

// Which model on which backend: shared by all commands that run one.
struct ModelOptions {
  std::string model;               // directory or org/name[@revision]; empty: the bundled model
  std::string backend;             // empty: DEEPINFER_ACCELERATOR, else the best that works
  std::string variant;             // kernel variant of the CPU backend; empty: the best
  std::string activations = "fp32";
  int threads = 0;
  std::string engram_tables = "host";
  int64_t context = 0;
  int64_t chunk = 512;
  std::string drafts = "auto";  // EngineOptions::drafts
  std::string verification = "coupled";  // EngineOptions::verification
  bool offline = false;
};

struct SamplingOptions {
  float temperature = 0;
  int64_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::optional<uint64_t> seed;
};

// What an answer must match; one of them at most.
struct ConstraintOptions {
  std::optional<std::string> json_schema;  // a file, or the schema itself
  bool json_object = false;
  std::optional<std::string> regex;
  std::vector<std::string> choices;
  std::optional<std::string> grammar_file;
};

struct GenerateOptions {
  ModelOptions model;
  SamplingOptions sampling;
  ConstraintOptions constraint;
  std::optional<std::string> prompt;
  std::string prompt_file;
  int64_t max_tokens = 256;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool json = false;
  std::optional<int> logprobs;
  bool ids = false;
  bool special = false;
  bool stats = false;
};

struct ChatOptions {
  ModelOptions model;
  SamplingOptions sampling;
  ConstraintOptions constraint;
  std::string system;
  bool thinking = false;
  int64_t max_tokens = 1024;
  bool stats = false;
};

struct ScoreOptions {
  ModelOptions model;
  std::string ids;
  std::string ids_file;
  std::string logits;
  std::optional<int64_t> from;
  int top = 0;
};

struct BatchOptions {
  ModelOptions model;
  std::string input;   // "-": stdin
  std::string output;
  int in_flight = 64;
  int64_t kv_memory_bytes = int64_t{256} << 20;
};

struct InfoOptions {
  ModelOptions model;
  int64_t kv_memory_bytes = int64_t{256} << 20;
  bool json = false;
};

struct TokenizeOptions {
  ModelOptions model;
  std::optional<std::string> text;
  bool special = false;
  bool pieces = false;
};

// render (a request on stdin to its prompt) and parse (a model's output on stdin to an answer).
struct RecipeOptions {
  ModelOptions model;  // its tokenizer
  std::string protocol = "chat";
  std::string profile = "default";
  bool ids = false;
  std::string request_file;  // parse: the request that the output answers
  bool events = false;       // parse: server-sent events instead of the whole answer
};

struct ServeOptions {
  std::string config_file;                                  // TOML; empty: none
  std::vector<std::pair<std::string, std::string>> flags;  // names of server/config.h with their texts, in order
};

// Each returns the process's exit code or an error to print.
Result<int> Generate(const GenerateOptions& options);
Result<int> Chat(const ChatOptions& options);
Result<int> Score(const ScoreOptions& options);
Result<int> Batch(const BatchOptions& options);
Result<int> Info(const InfoOptions& options);
Result<int> Tokenize(const TokenizeOptions& options);
Result<int> Detokenize(const TokenizeOptions& options);
Result<int> Render(const RecipeOptions& options);
Result<int> Parse(const RecipeOptions& options);
Result<int> Serve(const ServeOptions& options);

}  // namespace deepinfer::cli
