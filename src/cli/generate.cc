// SPDX-License-Identifier: Apache-2.0
// deepinfer generate: continue a prompt.
#include "engine/generate.h"

#include <csignal>
#include <cstdio>

#include "cli/cli.h"
#include "cli/common.h"
#include "cli/constraint.h"
#include "cli/interrupt.h"

namespace deepinfer::cli {
namespace {

Result<std::string> PromptText(const GenerateOptions& options) {
  if (options.prompt && !options.prompt_file.empty()) {
    return Error(Code::kInvalidArgument, "a prompt and --prompt-file: only one of them, please");
  }
  if (options.prompt) return *options.prompt;
  return ReadText(options.prompt_file.empty() ? "-" : options.prompt_file);
}

bool LooksLikeIds(std::string_view text) {
  return text.find_first_of("0123456789") != std::string_view::npos &&
         text.find_first_not_of("0123456789,[] \t\r\n") == std::string_view::npos;
}

// The bos token and the text's tokens; with --ids a list of numbers is taken as it is.
Result<std::vector<TokenId>> PromptIds(const GenerateOptions& options, const engine::LoadedModel& loaded) {
  DI_ASSIGN_OR_RETURN(std::string text, PromptText(options));
  if (options.ids && LooksLikeIds(text)) return ParseIds(text);
  DI_RETURN_IF_ERROR(CheckUtf8("prompt", text));
  DI_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, loaded.tokenizer().Encode(text, {.added_tokens = options.special}));
  std::vector<TokenId> ids;
  const auto bos = loaded.config().bos_token_id;
  if (bos && (tokens.empty() || tokens[0] != static_cast<TokenId>(*bos))) ids.push_back(static_cast<TokenId>(*bos));
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  return ids;
}

void PrintStats(const engine::GenerateResult& result, size_t prompt_tokens, const engine::BatchEngine& engine) {
  const double decoded = static_cast<double>(result.ids.size()) - 1;
  Note("prompt: {} tokens in {:.3f} s ({:.0f} tokens/s); answer: {} tokens in {:.3f} s ({:.0f} tokens/s)\n",
       prompt_tokens, result.prefill_seconds, static_cast<double>(prompt_tokens) / result.prefill_seconds,
       result.ids.size(), result.decode_seconds, decoded > 0 ? decoded / result.decode_seconds : 0.0);
  const EngineStats stats = engine.Stats();
  if (!stats.drafts_verified.empty()) {
    int64_t verified = 0, accepted = 0;
    for (const int64_t count : stats.drafts_verified) verified += count;
    for (const int64_t count : stats.drafts_accepted) accepted += count;
    Note("drafts: {} made, {} verified, {} accepted, in {} steps\n", stats.drafts_made, verified, accepted, stats.steps);
  }
  if (!engine.memory_plan().empty()) Note("{}\n", engine.memory_plan());
}

Json ToJson(const engine::GenerateResult& result, const Tokenizer& tokenizer, const GenerationRequest& request) {
  Json json(Json::Object{});
  Json ids(Json::Array{});
  for (const TokenId id : result.ids) ids.Items().push_back(Json::Integer(id));
  json.Members().emplace_back("text", Json(result.text));
  json.Members().emplace_back("ids", std::move(ids));
  json.Members().emplace_back("finish_reason", Json(std::string(FinishReasonName(result.finish))));
  json.Members().emplace_back("prompt_tokens", Json::Integer(static_cast<int64_t>(request.prompt.size())));
  json.Members().emplace_back("seed", Json(Json::Number{std::to_string(*request.seed)}));
  if (request.logprobs) {
    Json logprobs(Json::Array{});
    for (size_t i = 0; i < result.ids.size(); ++i) {
      logprobs.Items().push_back(cli::ToJson(tokenizer, result.ids[i], result.logprobs[i]));
    }
    json.Members().emplace_back("logprobs", std::move(logprobs));
  }
  return json;
}

}  // namespace

Result<int> Generate(const GenerateOptions& options) {
  if (options.logprobs && !options.json) {
    return Error(Code::kInvalidArgument, "--logprobs needs --json: without it the text alone is printed");
  }
  DI_ASSIGN_OR_RETURN(const auto content, ReadConstraint(options.constraint));
  DI_ASSIGN_OR_RETURN(const std::unique_ptr<engine::BatchEngine> engine, OpenEngine(options.model));
  GenerationRequest request{.max_tokens = options.max_tokens,
                            .stop = options.stop,
                            .ignore_eos = options.ignore_eos,
                            .logprobs = options.logprobs};
  SetSampling(options.sampling, &request);
  if (content) {
    DI_ASSIGN_OR_RETURN(request.grammar, CompileConstraint(*content, *engine));
  }
  DI_ASSIGN_OR_RETURN(request.prompt, PromptIds(options, engine->loaded()));

  const InterruptScope interrupt;
  const auto go_on = [&] { return !interrupt.interrupted(); };
  Status printed;
  const bool stream_ids = options.ids && !options.json;
  size_t count = 0;
  const auto on_token = [&](const engine::GeneratedToken& token) {
    if (stream_ids && token.id >= 0) {
      printed = Print(fmt::format("{}{}", count++ == 0 ? "" : ",", token.id));
    } else if (!stream_ids && !options.json && !token.text.empty()) {
      printed = Print(token.text);
    }
    return printed.ok() && !interrupt.interrupted();
  };
  DI_ASSIGN_OR_RETURN(const engine::GenerateResult result, engine::Generate(*engine, request, on_token, go_on));
  DI_RETURN_IF_ERROR(printed);
  DI_RETURN_IF_ERROR(Print(options.json ? WriteJson(ToJson(result, engine->loaded().tokenizer(), request)) + "\n" : "\n"));
  if (options.stats) PrintStats(result, request.prompt.size(), *engine);
  return interrupt.interrupted() ? kExitInterrupted : kExitOk;
}

}  // namespace deepinfer::cli
