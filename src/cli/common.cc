// SPDX-License-Identifier: Apache-2.0
#include "cli/common.h"

#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "core/file.h"
#include "core/utf8.h"

namespace deepinfer::cli {
namespace {

constexpr size_t kInputBytesMax = size_t{64} << 20;
constexpr const char* kBundledModel = "deepseek-v41-tiny";

// The bundled model lies in share/ of an installation, or in the source tree above a build folder.
Result<std::string> FindBundledModel() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const char* base : {"../share/deepinfer/models", "../../models", "../../../models"}) {
    const auto candidate = (program.parent_path() / base / kBundledModel).lexically_normal();
    if (std::filesystem::exists(candidate / "config.json", error)) return candidate.string();
  }
  return Error(Code::kNotFound, "the bundled model {} is not beside {}: name one with --model", kBundledModel,
               program.string());
}

}  // namespace

Result<std::string> FindModel(const ModelOptions& options) {
  if (options.model.empty()) return FindBundledModel();
  return options.model;
}

std::string BackendName(const ModelOptions& options) {
  if (!options.backend.empty()) return options.backend;
  const char* accelerator = std::getenv("DEEPINFER_ACCELERATOR");
  return accelerator == nullptr || *accelerator == 0 ? "cpu" : accelerator;
}

Result<backend::Activations> ParseActivations(std::string_view name) {
  for (const auto activations : {backend::Activations::kFp32, backend::Activations::kBf16, backend::Activations::kFp8}) {
    if (engine::ActivationsName(activations) == name) return activations;
  }
  return Error(Code::kInvalidArgument, "activations \"{}\": expected fp32, bf16 or fp8", name);
}

Result<std::unique_ptr<engine::LoadedModel>> LoadModel(const ModelOptions& options) {
  DI_ASSIGN_OR_RETURN(const std::string directory, FindModel(options));
  DI_ASSIGN_OR_RETURN(std::unique_ptr<engine::LoadedModel> loaded,
                      engine::LoadedModel::Load(directory, {.name = BackendName(options),
                                                            .num_threads = options.threads,
                                                            .variant = options.variant}));
  for (const std::string& warning : loaded->checkpoint().warnings()) fmt::print(stderr, "warning: {}\n", warning);
  return loaded;
}

Result<std::unique_ptr<engine::Session>> NewSession(const engine::LoadedModel& loaded, const ModelOptions& options) {
  DI_ASSIGN_OR_RETURN(const backend::Activations activations, ParseActivations(options.activations));
  return engine::Session::Create(
      loaded, {.context_max = options.context, .chunk = options.chunk, .activations = activations});
}

Result<std::shared_ptr<const Tokenizer>> LoadTokenizer(const ModelOptions& options) {
  DI_ASSIGN_OR_RETURN(const std::string directory, FindModel(options));
  return Tokenizer::Load(directory + "/tokenizer.json");
}

sampling::SamplingParams ToSamplingParams(const SamplingOptions& options) {
  sampling::SamplingParams params{.temperature = options.temperature,
                                  .top_k = options.top_k,
                                  .top_p = options.top_p,
                                  .min_p = options.min_p,
                                  .repetition_penalty = options.repetition_penalty,
                                  .presence_penalty = options.presence_penalty,
                                  .frequency_penalty = options.frequency_penalty};
  params.seed = options.seed ? *options.seed : std::random_device()();
  return params;
}

Result<std::string> ReadText(const std::string& path) {
  if (path != "-") return ReadFile(path, kInputBytesMax);
  std::string text;
  char buffer[65536];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), stdin)) {
    text.append(buffer, n);
    if (text.size() > kInputBytesMax) {
      return Error(Code::kResourceExhausted, "standard input: more than {} bytes", kInputBytesMax);
    }
  }
  return text;
}

Status CheckUtf8(std::string_view what, std::string_view text) {
  const size_t bad = FindInvalidUtf8(text);
  if (bad == std::string_view::npos) return Status();
  return Error(Code::kInvalidArgument, "{}: not valid UTF-8 at byte {}", what, bad);
}

Result<std::vector<TokenId>> ParseIds(std::string_view text) {
  std::vector<TokenId> ids;
  size_t i = 0;
  const auto skip = [&] {
    while (i < text.size() && std::string_view(" \t\r\n,[]").find(text[i]) != std::string_view::npos) ++i;
  };
  for (skip(); i < text.size(); skip()) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), id);
    if (error != std::errc()) {
      return Error(Code::kInvalidArgument, "token ids: expected numbers such as 5,6,7, found \"{}\" at byte {}",
                   text.substr(i, 20), i);
    }
    i = static_cast<size_t>(end - text.data());
    ids.push_back(id);
  }
  return ids;
}

std::string JoinIds(std::span<const TokenId> ids) { return fmt::format("{}", fmt::join(ids, ",")); }

Json ToJson(const Tokenizer& tokenizer, TokenId id, const sampling::Logprobs& logprobs) {
  const auto entry = [&](TokenId token, float logprob) {
    Json json(Json::Object{});
    json.Members().emplace_back("id", Json::Integer(token));
    json.Members().emplace_back("token", Json(tokenizer.Decode(std::span(&token, 1))));
    json.Members().emplace_back("logprob", std::isfinite(logprob) ? Json::Double(logprob) : Json());
    return json;
  };
  Json json = entry(id, logprobs.chosen);
  Json top(Json::Array{});
  for (const sampling::TokenLogprob& other : logprobs.top) top.Items().push_back(entry(other.token, other.logprob));
  json.Members().emplace_back("top", std::move(top));
  return json;
}

Status Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return Error(Code::kUnavailable, "standard output: the reader is gone");
  }
  return Status();
}

}  // namespace deepinfer::cli
