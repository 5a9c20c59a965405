// SPDX-License-Identifier: Apache-2.0
// A checkpoint made ready to run: mapped files, tokenizer, a backend and the weights bound on it.
// Immutable after Load but for the backend, which one thread at a time may use.
#pragma once

#include <memory>
#include <string>

#include "backend/api/backend.h"
#include "checkpoint/checkpoint.h"
#include "deepinfer/grammar.h"
#include "model/deepseek_v41/weights.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::engine {

struct BackendOptions {
  std::string name = "cpu";  // "cpu", "cuda" or "reference"
  int num_threads = 0;       // 0: every core this process may use
  std::string engram_tables = "host";  // CUDA: in pinned host memory that the device reads, or on the "device"
  std::string variant;       // CPU: force a kernel variant ("avx512", "avx2", "portable"); empty: the best
  int64_t aligned_cols_min = 1024;  // CUDA: backend::CudaOptions; for tests
};

// kInvalidArgument names the backends that there are; "cuda" fails with what is missing: the build option, driver or card.
Result<std::unique_ptr<backend::Backend>> CreateBackend(const BackendOptions& options);

// What decides the bits of a result beside the model: backend, kernel variant, activation type and the version of the
// arithmetic and cache formats (design.md 5): "cpu avx512 fp32 v3".
std::string NumericIdentity(const backend::Backend& backend, backend::Activations activations);
std::string_view ActivationsName(backend::Activations activations);  // "fp32", "bf16", "fp8"
Result<backend::Activations> ParseActivations(std::string_view name);

class LoadedModel {
 public:
  // `directory` holds config.json, the shards and tokenizer.json. `activations`: of the passes that will run; kFp32: any. Errors name
  // file and tensor.
  static Result<std::unique_ptr<LoadedModel>> Load(const std::string& directory, const BackendOptions& options,
                                                   backend::Activations activations = backend::Activations::kFp32);
  // The same on a backend of the caller's.
  static Result<std::unique_ptr<LoadedModel>> Load(const std::string& directory, std::unique_ptr<backend::Backend> backend,
                                                   backend::Activations activations = backend::Activations::kFp32);

  const checkpoint::Checkpoint& checkpoint() const { return checkpoint_; }
  const checkpoint::ModelConfig& config() const { return checkpoint_.config(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::shared_ptr<const Tokenizer>& shared_tokenizer() const { return tokenizer_; }
  const model::deepseek_v41::Weights& weights() const { return weights_; }
  backend::Backend& backend() const { return *backend_; }
  const backend::BindStats& bind_stats() const { return bind_stats_; }
  backend::Activations activations() const { return activations_; }
  // kInvalidArgument: the weights are bound for passes that round otherwise.
  Status CheckActivations(backend::Activations activations) const;

 private:
  LoadedModel(checkpoint::Checkpoint checkpoint, std::shared_ptr<const Tokenizer> tokenizer, backend::Activations activations)
      : activations_(activations), checkpoint_(std::move(checkpoint)), tokenizer_(std::move(tokenizer)) {}

  const backend::Activations activations_;

  // In the order of destruction: weights refer to the backend, both to the mapping.
  checkpoint::Checkpoint checkpoint_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<backend::Backend> backend_;
  model::deepseek_v41::Weights weights_;
  backend::BindStats bind_stats_;
};

// The model's vocabulary for grammars: added tokens are special ids, end tokens are stop ids, and ids of the head beyond
// the tokenizer are never allowed.
std::shared_ptr<const grammar::Vocabulary> MakeGrammarVocabulary(const LoadedModel& loaded);

}  // namespace deepinfer::engine
