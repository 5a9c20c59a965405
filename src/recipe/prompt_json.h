// SPDX-License-Identifier: Apache-2.0
// JSON as it stands in prompts and in constraints. The models were trained on what Python's json.dumps writes
// (", " and ": ", nothing beyond ASCII escaped, 1e-05); the service in front of them wrote V4's numbers as Rust's
// serde_json does (0.00001, 1e-6), so V4 prompts keep that.
// Thread-safe: functions of their arguments.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "core/status.h"
#include "recipe/conversation.h"

namespace deepinfer::recipe {

enum class JsonForm {
  kPrompt,    // V4.1 prompts: json.dumps(value, ensure_ascii=False)
  kPromptV4,  // the same with serde_json's small numbers
  kCompact,   // constraints, tool_search results: no spaces, serde_json's numbers
};
inline JsonForm PromptForm(ModelVersion version) {
  return version == ModelVersion::kV4 ? JsonForm::kPromptV4 : JsonForm::kPrompt;
}

// Parses request JSON: of duplicate keys the last value stands at the first one's place, and a number that no double
// can hold is an error. Integers that fit 64 bits stay exact; others become doubles when they are written.
Result<Json> ParseRequestJson(std::string_view text, const JsonLimits& limits);

std::string WritePromptJson(const Json& value, JsonForm form);
void AppendPromptJson(const Json& value, JsonForm form, std::string* out);

}  // namespace deepinfer::recipe
