// SPDX-License-Identifier: Apache-2.0
// deepinfer score: logits of every position, or log-probabilities of the given tokens.
#include <algorithm>
#include <cmath>

#include "checkpoint/safetensors.h"
#include "cli/cli.h"
#include "cli/common.h"

namespace deepinfer::cli {
namespace {

Result<std::vector<TokenId>> InputIds(const ScoreOptions& options) {
  if (options.ids.empty() == options.ids_file.empty()) {
    return Error(Code::kInvalidArgument, "give the tokens with --ids 5,6,7 or with --ids-file FILE, one of the two");
  }
  if (!options.ids.empty()) return ParseIds(options.ids);
  DI_ASSIGN_OR_RETURN(const std::string text, ReadText(options.ids_file));
  Result<std::vector<TokenId>> ids = ParseIds(text);
  if (!ids.ok()) return ids.status().In(options.ids_file);
  return ids;
}

// Prefill of the first `from` tokens (all of them, where that is not asked), then one by one.
Result<std::vector<float>> AllLogits(engine::Session& session, std::span<const TokenId> ids, std::optional<int64_t> from) {
  const auto n = static_cast<int64_t>(ids.size());
  const int64_t prefill = std::clamp<int64_t>(from.value_or(n), 0, n);
  std::vector<float> logits;
  const auto append = [&](std::span<const TokenId> part) -> Status {
    DI_ASSIGN_OR_RETURN(const std::vector<float> rows, session.Append({.ids = part, .logits = engine::Logits::kAll}));
    logits.insert(logits.end(), rows.begin(), rows.end());
    return Status();
  };
  if (prefill > 0) DI_RETURN_IF_ERROR(append(ids.first(static_cast<size_t>(prefill))));
  for (auto p = static_cast<size_t>(prefill); p < ids.size(); ++p) DI_RETURN_IF_ERROR(append(ids.subspan(p, 1)));
  return logits;
}

Json Scores(const engine::LoadedModel& loaded, std::span<const TokenId> ids, std::span<const float> logits, int top) {
  const auto vocab = static_cast<size_t>(loaded.config().vocab_size);
  Json id_list(Json::Array{}), logprobs(Json::Array{Json()});
  double sum = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    id_list.Items().push_back(Json::Integer(ids[i]));
    if (i == 0) continue;
    const double logprob = sampling::ComputeLogprobs(logits.subspan((i - 1) * vocab, vocab), ids[i], 0).chosen;
    sum += logprob;
    logprobs.Items().push_back(std::isfinite(logprob) ? Json::Double(static_cast<float>(logprob)) : Json());
  }
  Json json(Json::Object{});
  json.Members().emplace_back("ids", std::move(id_list));
  json.Members().emplace_back("logprobs", std::move(logprobs));  // the first token has none
  json.Members().emplace_back("sum", std::isfinite(sum) ? Json::Double(sum) : Json());
  if (top > 0) {
    const auto last = sampling::ComputeLogprobs(logits.last(vocab), ids.back(), static_cast<size_t>(top));
    Json top_ids(Json::Array{}), top_logprobs(Json::Array{});
    for (const sampling::TokenLogprob& entry : last.top) {
      top_ids.Items().push_back(Json::Integer(entry.token));
      top_logprobs.Items().push_back(Json::Double(entry.logprob));
    }
    json.Members().emplace_back("next_top_ids", std::move(top_ids));
    json.Members().emplace_back("next_top_logprobs", std::move(top_logprobs));
  }
  return json;
}

}  // namespace

Result<int> Score(const ScoreOptions& options) {
  DI_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, InputIds(options));
  if (ids.empty()) return Error(Code::kInvalidArgument, "no tokens to score");
  DI_ASSIGN_OR_RETURN(const std::unique_ptr<engine::LoadedModel> loaded, LoadModel(options.model));
  DI_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Session> session, NewSession(*loaded, options.model));
  DI_ASSIGN_OR_RETURN(const std::vector<float> logits, AllLogits(*session, ids, options.from));
  if (options.logits.empty()) {
    DI_RETURN_IF_ERROR(Print(WriteJson(Scores(*loaded, ids, logits, options.top)) + "\n"));
    return kExitOk;
  }
  const auto rows = static_cast<int64_t>(ids.size());
  const checkpoint::NamedTensor tensor{
      "logits",
      {.dtype = DType::kF32, .shape = {rows, loaded->config().vocab_size}, .data = std::as_bytes(std::span(logits)).data()}};
  DI_RETURN_IF_ERROR(checkpoint::WriteSafetensors(options.logits, std::span(&tensor, 1)));
  Note("{}: logits of {} positions\n", options.logits, rows);
  return kExitOk;
}

}  // namespace deepinfer::cli
