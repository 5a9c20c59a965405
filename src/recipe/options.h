// SPDX-License-Identifier: Apache-2.0
// How requests are read: which profile, which models, which limits. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "recipe/request.h"

namespace deepinfer::recipe {

// A request over one of these is refused with kResourceExhausted and a message that names the limit.
struct RequestLimits {
  size_t body_bytes_max = size_t{64} << 20;
  size_t depth_max = 127;  // of nested JSON; what deepseek-recipe's parser allows
  size_t values_max = size_t{4} << 20;
  size_t messages_max = 20'000;  // messages or input items
  size_t tools_max = 1'024;
  size_t schema_bytes_max = size_t{1} << 20;  // of one schema, written without spaces
  size_t images_max = 600;
  int num_choices_max = 128;       // default profile; of one prompt
  int all_choices_max = 1'024;     // of all prompts of one request
  size_t logit_bias_max = 1'024;   // entries, default profile
};

enum class WebSearch { kDrop, kReject };

struct RecipeOptions {
  Profile profile = Profile::kDefault;
  // Model names that requests may use. `other_models`: what every other name means; nothing: it is refused.
  std::vector<std::pair<std::string, ModelVersion>> models = {{"DeepSeek-V4-Pro", ModelVersion::kV4},
                                                              {"DeepSeek-V4.1-Flash", ModelVersion::kV41}};
  std::optional<ModelVersion> other_models;
  bool default_thinking = true;            // where the request says nothing
  bool default_store = false;              // of a response whose request says nothing
  bool reject_missing_reasoning = false;   // of earlier turns with calls, in thinking mode; else it counts as empty
  WebSearch responses_web_search = WebSearch::kDrop;
  WebSearch messages_web_search = WebSearch::kReject;
  int64_t max_tokens_thinking = 393'216;      // the highest max_tokens
  int64_t max_tokens_non_thinking = 393'216;
  RequestLimits limits;
};

}  // namespace deepinfer::recipe
