// SPDX-License-Identifier: Apache-2.0
#include "cli/common.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "checkpoint/locate.h"
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

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// A download's progress on stderr: one line that is rewritten on a terminal, a line every ten seconds elsewhere.
class ProgressLine {
 public:
  bool Show(const checkpoint::DownloadProgress& now) {
    const auto time = std::chrono::steady_clock::now();
    const bool terminal = isatty(STDERR_FILENO) != 0;
    if (shown_ && time - last_ < std::chrono::milliseconds(terminal ? 200 : 10000)) return true;
    const double seconds = std::chrono::duration<double>(time - begin_).count();
    if (!shown_) first_bytes_ = now.total_done;
    const double rate = seconds > 0.5 ? static_cast<double>(now.total_done - first_bytes_) / seconds / 1e6 : 0;
    const int percent = now.total_size > 0 ? static_cast<int>(100 * now.total_done / now.total_size) : 0;
    Note("{}{:3}% of {:.1f} MB, {:.1f} MB/s  {}{}", terminal ? "\r" : "", percent,
         static_cast<double>(now.total_size) / 1e6, rate, now.file, terminal ? "\033[K" : "\n");
    shown_ = true;
    last_ = time;
    return true;
  }
  ~ProgressLine() {
    if (shown_ && isatty(STDERR_FILENO) != 0) Note("\n");
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now(), last_;
  int64_t first_bytes_ = 0;
  bool shown_ = false;
};

}  // namespace

Result<std::string> FindModel(const ModelOptions& options) {
  if (options.model.empty()) return FindBundledModel();
  ProgressLine progress;
  checkpoint::LocateOptions locate{.model_dir = Environment("DEEPINFER_HF_MODEL_DIR"), .offline = options.offline};
  const std::string home = Environment("HOME");
  if (locate.model_dir.empty() && !home.empty()) locate.model_dir = home + "/.cache/huggingface/hub";
  if (const std::string endpoint = Environment("HF_ENDPOINT"); !endpoint.empty()) locate.hub.endpoint = endpoint;
  locate.hub.token = Environment("HF_TOKEN");
  locate.hub.progress = [&](const checkpoint::DownloadProgress& now) { return progress.Show(now); };
  return checkpoint::LocateModel(options.model, locate);
}

std::string BackendName(const ModelOptions& options) {
  if (!options.backend.empty()) return options.backend;
  const std::string accelerator = Environment("DEEPINFER_ACCELERATOR");
  return accelerator.empty() ? "cpu" : accelerator;
}

Result<std::unique_ptr<engine::LoadedModel>> LoadModel(const ModelOptions& options) {
  DI_ASSIGN_OR_RETURN(const std::string directory, FindModel(options));
  DI_ASSIGN_OR_RETURN(const backend::Activations activations, engine::ParseActivations(options.activations));
  DI_ASSIGN_OR_RETURN(std::unique_ptr<engine::LoadedModel> loaded,
                      engine::LoadedModel::Load(directory,
                                                {.name = BackendName(options),
                                                 .num_threads = options.threads,
                                                 .engram_tables = options.engram_tables,
                                                 .variant = options.variant},
                                                activations));
  for (const std::string& warning : loaded->checkpoint().warnings()) Note("warning: {}\n", warning);
  return loaded;
}

Result<std::unique_ptr<engine::Session>> NewSession(const engine::LoadedModel& loaded, const ModelOptions& options) {
  return engine::Session::Create(
      loaded, {.context_max = options.context, .chunk = options.chunk, .activations = loaded.activations()});
}

Result<std::unique_ptr<engine::BatchEngine>> OpenEngine(const ModelOptions& options) {
  DI_ASSIGN_OR_RETURN(const std::string directory, FindModel(options));
  EngineOptions engine_options{.model_directory = directory,
                               .backend = BackendName(options),
                               .variant = options.variant,
                               .activations = options.activations,
                               .num_threads = options.threads};
  engine_options.context_max = options.context;
  engine_options.kv_memory_bytes = 0;
  engine_options.requests_running_max = 1;
  // Beside a chunk there is room for a block of drafts, whatever its size.
  constexpr int64_t kDraftRows = 64;
  const int64_t chunk = std::min<int64_t>(options.chunk, 1 << 19);
  engine_options.step_rows_max = static_cast<int>(chunk + kDraftRows);
  engine_options.prefill_rows_max = static_cast<int>(chunk);
  engine_options.drafts = options.drafts;
  engine_options.verification = options.verification;
  engine_options.own_thread = false;
  DI_ASSIGN_OR_RETURN(std::unique_ptr<engine::BatchEngine> engine, engine::BatchEngine::Create(engine_options));
  for (const std::string& warning : engine->warnings()) Note("warning: {}\n", warning);
  return engine;
}

Result<std::shared_ptr<const Tokenizer>> LoadTokenizer(const ModelOptions& options) {
  DI_ASSIGN_OR_RETURN(const std::string directory, FindModel(options));
  return Tokenizer::Load(directory + "/tokenizer.json");
}

void SetSampling(const SamplingOptions& options, GenerationRequest* request) {
  request->temperature = options.temperature;
  request->top_k = options.top_k;
  request->top_p = options.top_p;
  request->min_p = options.min_p;
  request->repetition_penalty = options.repetition_penalty;
  request->presence_penalty = options.presence_penalty;
  request->frequency_penalty = options.frequency_penalty;
  request->seed = options.seed ? *options.seed : std::random_device()();
}

Result<std::string> ReadText(const std::string& path) {
  if (path.empty()) return Error(Code::kInvalidArgument, "the name of the file is empty");
  if (path != "-") return ReadFile(path, kInputBytesMax);
  std::string text;
  char buffer[65536];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), stdin)) {
    text.append(buffer, n);
    if (text.size() > kInputBytesMax) {
      return Error(Code::kResourceExhausted, "standard input: more than {} bytes", kInputBytesMax);
    }
  }
  if (std::ferror(stdin) != 0) return FileError(errno, "read", "standard input");
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
    return Error(Code::kUnavailable, "standard output: cannot write: {}", std::strerror(errno));
  }
  return Status();
}

}  // namespace deepinfer::cli
