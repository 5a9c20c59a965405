// SPDX-License-Identifier: Apache-2.0
// What several commands need: finding and loading the model, reading inputs, token lists.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/options.h"
#include "core/json.h"
#include "engine/batch_engine.h"
#include "engine/session.h"
#include "sampling/sampler.h"

namespace deepinfer::cli {

// The directory of the model that `--model` names; where it is not on this machine, it is downloaded (with a progress
// line on stderr), unless --offline.
Result<std::string> FindModel(const ModelOptions& options);

Result<std::unique_ptr<engine::LoadedModel>> LoadModel(const ModelOptions& options);
Result<std::unique_ptr<engine::Session>> NewSession(const engine::LoadedModel& loaded, const ModelOptions& options);
// For one request at a time, stepped by the caller (engine/generate.h).
Result<std::unique_ptr<engine::BatchEngine>> OpenEngine(const ModelOptions& options);
Result<std::shared_ptr<const Tokenizer>> LoadTokenizer(const ModelOptions& options);
// Empty names fall back to DEEPINFER_ACCELERATOR, then to "cpu".
std::string BackendName(const ModelOptions& options);

// Draws a seed where none is given.
void SetSampling(const SamplingOptions& options, GenerationRequest* request);

// The whole of a file, or of stdin for "-". Errors name it; over 64 MiB is refused.
Result<std::string> ReadText(const std::string& path);
// kInvalidArgument where the text is no UTF-8, with the offset.
Status CheckUtf8(std::string_view what, std::string_view text);

// "5,6,7", "5 6 7" or "[5, 6, 7]".
Result<std::vector<TokenId>> ParseIds(std::string_view text);
std::string JoinIds(std::span<const TokenId> ids);

Json ToJson(const Tokenizer& tokenizer, TokenId id, const sampling::Logprobs& logprobs);

// Writes to stdout and flushes. kUnavailable where that fails: the reader is gone, the disk is full.
Status Print(std::string_view text);

// Tells something on stderr. Where stderr is closed or full, nobody wants to know: fmt::print would throw.
template <typename... Args>
void Note(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stderr);
}

}  // namespace deepinfer::cli
