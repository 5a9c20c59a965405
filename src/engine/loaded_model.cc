// SPDX-License-Identifier: Apache-2.0
#include "engine/loaded_model.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/reference/reference_backend.h"
#include "tokenizer/compressed_vocab.h"

namespace deepinfer::engine {

Result<std::unique_ptr<backend::Backend>> CreateBackend(const BackendOptions& options) {
  if (options.engram_tables != "host" && options.engram_tables != "device") {
    return Error(Code::kInvalidArgument, "engram tables on \"{}\": expected host or device", options.engram_tables);
  }
  if (options.name == "reference") {
    if (options.variant.empty()) return backend::CreateReference();
    return Error(Code::kInvalidArgument, "variant \"{}\": the reference backend has none", options.variant);
  }
  if (options.name == "cpu") return backend::CreateCpu({.num_threads = options.num_threads, .variant = options.variant});
  if (options.name == "cuda") {
    return backend::CreateCuda({.tables_on_host = options.engram_tables == "host", .aligned_cols_min = options.aligned_cols_min});
  }
  return Error(Code::kInvalidArgument, "backend \"{}\": there are cpu, cuda and reference", options.name);
}

std::string_view ActivationsName(backend::Activations activations) {
  switch (activations) {
    case backend::Activations::kFp32:
      return "fp32";
    case backend::Activations::kBf16:
      return "bf16";
    case backend::Activations::kFp8:
      return "fp8";
  }
  return "unknown";
}

Result<backend::Activations> ParseActivations(std::string_view name) {
  for (const auto activations : {backend::Activations::kFp32, backend::Activations::kBf16, backend::Activations::kFp8}) {
    if (ActivationsName(activations) == name) return activations;
  }
  return Error(Code::kInvalidArgument, "activations \"{}\": expected fp32, bf16 or fp8", name);
}

std::string NumericIdentity(const backend::Backend& backend, backend::Activations activations) {
  // Raise this when an accumulation contract, the noise or a cache layout changes.
  constexpr int kFormatVersion = 3;
  return fmt::format("{} {} {} v{}", backend.name(), backend.kernel_variant(), ActivationsName(activations), kFormatVersion);
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::Load(const std::string& directory, const BackendOptions& options,
                                                       backend::Activations activations) {
  DI_ASSIGN_OR_RETURN(std::unique_ptr<backend::Backend> backend, CreateBackend(options));
  return Load(directory, std::move(backend), activations);
}

Status LoadedModel::CheckActivations(backend::Activations activations) const {
  if (activations_ == activations || activations_ == backend::Activations::kFp32) return Status();
  return Error(Code::kInvalidArgument, "activations {}: the model was loaded for {}", ActivationsName(activations),
               ActivationsName(activations_));
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::Load(const std::string& directory,
                                                       std::unique_ptr<backend::Backend> backend,
                                                       backend::Activations activations) {
  DI_ASSIGN_OR_RETURN(checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::Open(directory));
  const std::string tokenizer_path = directory + "/tokenizer.json";
  DI_ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> tokenizer, Tokenizer::Load(tokenizer_path));
  std::unique_ptr<LoadedModel> loaded(new LoadedModel(std::move(checkpoint), std::move(tokenizer), activations));
  const checkpoint::ModelConfig& config = loaded->config();
  if (loaded->tokenizer().vocab_size() > config.vocab_size) {
    return Error(Code::kDataLoss, "{}: has ids up to {}, but vocab_size in config.json is {}", tokenizer_path,
                 loaded->tokenizer().vocab_size() - 1, config.vocab_size);
  }
  std::vector<int32_t> compressed_ids;
  if (config.engram.present()) {
    DI_ASSIGN_OR_RETURN(CompressedVocab vocab, CompressVocab(loaded->tokenizer()));
    if (vocab.size != config.engram.compressed_vocab_size) {
      return Error(Code::kDataLoss,
                   "{}: its tokens fall into {} classes of the Engram, but engram_compressed_vocab_size in config.json is {}",
                   tokenizer_path, vocab.size, config.engram.compressed_vocab_size);
    }
    compressed_ids = std::move(vocab.ids);
    // Ids of the embedding beyond the tokenizer are never produced by it: they read as padding.
    compressed_ids.resize(static_cast<size_t>(config.vocab_size),
                          compressed_ids[static_cast<size_t>(config.engram.pad_token_id)]);
  }
  loaded->backend_ = std::move(backend);
  DI_ASSIGN_OR_RETURN(loaded->weights_,
                      model::deepseek_v41::BindWeights(loaded->checkpoint_, compressed_ids, *loaded->backend_, activations,
                                                       &loaded->bind_stats_));
  return loaded;
}

std::shared_ptr<const grammar::Vocabulary> MakeGrammarVocabulary(const LoadedModel& loaded) {
  const Tokenizer& tokenizer = loaded.tokenizer();
  std::vector<std::string> bytes(static_cast<size_t>(loaded.config().vocab_size));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) bytes[static_cast<size_t>(id)] = tokenizer.TokenBytes(id);
  std::vector<uint32_t> special, stop;
  for (const AddedToken& token : tokenizer.added_tokens()) special.push_back(static_cast<uint32_t>(token.id));
  for (const int64_t id : loaded.config().eos_token_ids) stop.push_back(static_cast<uint32_t>(id));
  return grammar::Vocabulary::Create(bytes, special, stop);
}

}  // namespace deepinfer::engine
