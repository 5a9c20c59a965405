// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "recipe/lowering.h"

namespace deepinfer::recipe {
namespace {

constexpr size_t kMaxStops = 16;

Result<std::optional<float>> ReadFloat(const Field& field, float min, float max, bool above_min = false) {
  DI_ASSIGN_OR_RETURN(const auto number, ReadOptionalNumber(field));
  if (!number) return std::optional<float>();
  const auto value = static_cast<float>(*number);  // the range is meant in the precision that is used
  if (!(value >= min && value <= max) || (above_min && value == min)) {
    return field.Bad("expected a number {} {} and at most {}, found {}", above_min ? "above" : "of at least", min, max,
                     field.json().Literal().substr(0, 40));
  }
  return std::optional<float>(value);
}

// What the service in front of the published models does with temperature and top_p.
void ServiceSampling(std::optional<float> temperature, std::optional<float> top_p, Request* request) {
  SamplingOptions& sampling = request->sampling;
  const Conversation& conversation = request->conversation;
  const bool v41 = request->version == ModelVersion::kV41;
  sampling.temperature = conversation.thinking ? 1.0F : temperature.value_or(1.0F);
  if (conversation.thinking) {
    sampling.top_p = v41 ? std::max(top_p.value_or(1.0F), 0.95F) : conversation.tools.empty() ? 1.0F : 0.95F;
  } else {
    sampling.top_p = v41 ? 1.0F : top_p.value_or(1.0F);
  }
}

Status ReadLogitBias(const Field& field, const RecipeOptions& options, SamplingOptions* sampling) {
  if (!field.given()) return {};
  DI_RETURN_IF_ERROR(ExpectObject(field));
  const Json::Object& entries = field.json().Members();
  if (entries.size() > options.limits.logit_bias_max) {
    return Error(Code::kResourceExhausted, "{}: {} entries are over the limit of {}", field.pointer(), entries.size(),
                 options.limits.logit_bias_max);
  }
  for (const auto& [key, unused] : entries) {
    const Field entry = field.Member(key);
    const auto id = Json(Json::Number{key}).ToInt64();
    if (!id || *id < 0 || *id > INT32_MAX) return entry.Bad("its name is not a token id");
    DI_ASSIGN_OR_RETURN(const auto bias, ReadFloat(entry, -100.0F, 100.0F));
    if (bias) sampling->logit_bias.emplace_back(static_cast<int32_t>(*id), *bias);
  }
  std::sort(sampling->logit_bias.begin(), sampling->logit_bias.end());
  return {};
}

// What only the default profile acts on.
Status ReadMoreSampling(const Field& root, const RecipeOptions& options, SamplingOptions* sampling) {
  DI_ASSIGN_OR_RETURN(const auto top_k, ReadOptionalInteger(root.Member("top_k"), -1, INT32_MAX));
  if (top_k && *top_k > 0) sampling->top_k = static_cast<int>(*top_k);  // 0 and -1 mean off
  DI_ASSIGN_OR_RETURN(sampling->min_p, ReadFloat(root.Member("min_p"), 0.0F, 1.0F));
  DI_ASSIGN_OR_RETURN(sampling->min_tokens, ReadOptionalInteger(root.Member("min_tokens"), 0, INT32_MAX));
  // Responses and Messages have no such field of their own; the answer tells its seed in all protocols.
  DI_ASSIGN_OR_RETURN(const auto seed, ReadOptionalInteger(root.Member("seed"), 0, INT64_MAX));
  if (seed) sampling->seed = static_cast<uint64_t>(*seed);
  return ReadLogitBias(root.Member("logit_bias"), options, sampling);
}

}  // namespace

Status ReadSampling(const Field& root, const RecipeOptions& options, Request* request) {
  SamplingOptions& sampling = request->sampling;
  DI_ASSIGN_OR_RETURN(const auto temperature, ReadFloat(root.Member("temperature"), 0.0F, 2.0F));
  DI_ASSIGN_OR_RETURN(const auto top_p, ReadFloat(root.Member("top_p"), 0.0F, 1.0F, /*above_min=*/true));
  ServiceSampling(temperature, top_p, request);
  if (options.profile == Profile::kCompatible) return {};
  if (temperature) sampling.temperature = *temperature;
  if (top_p) sampling.top_p = *top_p;
  return ReadMoreSampling(root, options, &sampling);
}

Status ReadMaxTokens(const Field& field, TooMany too_many, const RecipeOptions& options, Request* request) {
  DI_ASSIGN_OR_RETURN(auto tokens, ReadOptionalInteger(field, 0, UINT32_MAX));
  if (!tokens) return {};
  const int64_t max = request->conversation.thinking ? options.max_tokens_thinking : options.max_tokens_non_thinking;
  if (*tokens > max && too_many == TooMany::kLower) tokens = max;
  if (*tokens < 1 || *tokens > max) return field.Bad("expected an integer from 1 to {}, found {}", max, *tokens);
  request->sampling.max_tokens = tokens;
  return {};
}

Status ReadStop(const Field& field, bool allow_one, Request* request) {
  if (!field.given()) return {};
  std::vector<std::string>& stops = request->parsing.stop_sequences;
  if (allow_one && field.IsString()) {
    stops.push_back(field.json().AsString());
    return stops[0].empty() ? field.Bad("a stop sequence must not be empty") : Status();
  }
  if (!field.IsArray()) return field.BadKind(allow_one ? "a string or an array of strings" : "an array of strings");
  if (field.size() > kMaxStops) {
    return field.Bad("{} stop sequences are over the limit of {}", field.size(), kMaxStops);
  }
  for (size_t i = 0; i < field.size(); ++i) {
    DI_ASSIGN_OR_RETURN(std::string stop, ReadString(field.Item(i)));
    if (stop.empty()) return field.Item(i).Bad("a stop sequence must not be empty");
    stops.push_back(std::move(stop));
  }
  return {};
}

}  // namespace deepinfer::recipe
