// SPDX-License-Identifier: Apache-2.0
// What the parsers of the protocols have in common. Internal to recipe.
// Thread-safe: functions of their arguments.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "recipe/fields.h"
#include "recipe/options.h"
#include "recipe/request.h"

namespace deepinfer::recipe {

// Each parser fills a Request from the root of a body (an object, checked).
Result<Request> ParseChat(const Field& root, const RecipeOptions& options);
Result<Request> ParseResponses(const Field& root, const RecipeOptions& options, const EarlierItemsFn& earlier);
Result<Request> ParseMessages(const Field& root, const RecipeOptions& options);
Result<Request> ParseCompletions(const Field& root, const RecipeOptions& options);

// A Request with version, profile, protocol, model and stream filled in.
Result<Request> BeginRequest(const Field& root, Protocol protocol, const RecipeOptions& options);

// --- thinking ---

// A reasoning effort as spelled; `off` for "none".
struct EffortSetting {
  bool off = false;
  std::optional<Effort> effort;
  std::optional<int> percent;
};
// "none", "minimal", ... or, in the default profile, 1 to 100. Nothing where the field is not given.
Result<std::optional<EffortSetting>> ReadEffort(const Field& field, Profile profile);

// {"type": "enabled" | "adaptive" | "disabled", "budget_tokens": n}
struct ThinkingSetting {
  bool enabled = false;
  std::optional<int64_t> budget_tokens;
};
Result<std::optional<ThinkingSetting>> ReadThinking(const Field& field);

// The first of: the explicit setting, the effort, the default.
void DecideThinking(const std::optional<ThinkingSetting>& thinking, const std::optional<EffortSetting>& effort,
                    const RecipeOptions& options, Request* request);

// --- sampling ---

// temperature, top_p, and in the default profile top_k, min_p, penalties, ... REQUIRES: thinking and tools are decided.
Status ReadSampling(const Field& root, const RecipeOptions& options, Request* request);

enum class TooMany { kRefuse, kLower };
Status ReadMaxTokens(const Field& field, TooMany too_many, const RecipeOptions& options, Request* request);

// `allow_one`: a single string may stand for a list of one.
Status ReadStop(const Field& field, bool allow_one, Request* request);

// --- tools and formats ---

enum class ToolChecks {
  kAll,
  kStrictAsItIs,  // "strict" changes no schema; in the compatible profile it means nothing
  kNamesOnly,  // the tools are not used (tool_choice none), so their schemas are not looked at
};
// Name rules, schema rules and strict normalisation for one function tool. `fields` holds name, description,
// `schema_key` and strict.
Result<ToolDefinition> ReadTool(const Field& fields, std::string_view schema_key, const RecipeOptions& options,
                                ToolChecks checks);
Status CheckToolName(const Field& name);
// Unique names; strict tools only together; the limit of their number.
Status CheckTools(const Field& field, const std::vector<ToolDefinition>& tools, const RecipeOptions& options,
                  ToolChecks checks);

// What tool_choice asks for, before it is held against the tools.
struct ToolChoiceSetting {
  ToolChoice choice = ToolChoice::kAuto;
  std::optional<std::string> name;  // one function only
};
// Narrows the conversation's tools, and those that its system messages make available, to what may be called.
Status ApplyToolChoice(const Field& field, const ToolChoiceSetting& setting, Request* request);

// {"type": "json_schema"}'s content: reads `holder`/schema and strict. Leaves the constraint's schema in *constraint.
Status ReadJsonSchemaFormat(const Field& holder, const RecipeOptions& options, Request* request,
                            std::string* constraint);
// Fields that guide decoding and leave no trace in the prompt, as vLLM and SGLang name them (default profile):
// guided_json, guided_regex, guided_choice, guided_grammar, structured_outputs, regex, ebnf. structured_outputs also has the
// form of JSON output. REQUIRES: the response format is read.
Status ReadGuidedOutput(const Field& root, Request* request);
// json_object wants the word "json" somewhere in the messages.
Status CheckJsonWord(const Field& field, const Request& request);

// --- content ---

// A user's image by URL or data URL, checked. V4 gets a text instead, unchecked.
Status AppendImage(const Field& url, ImageDetail detail, Request* request, Content* content);
Result<ImageDetail> ReadDetail(const Field& field);
// Appends a part with a blank line before all parts but the first.
class PartJoiner {
 public:
  explicit PartJoiner(Content* content) : content_(content) {}
  void Add(Content part);
  void AddText(std::string text) { Add(Content(std::move(text))); }

 private:
  Content* content_;
  bool first_ = true;
};
// Strictly padded (or, where `padding_optional`, perhaps unpadded) standard base64.
bool IsBase64(std::string_view text, bool padding_optional);

// --- the end ---

// Reasoning of earlier turns by the thinking mode, parse options, output constraint, image limit.
// `key` names the messages' field, which errors are about.
Status FinishRequest(const Field& root, std::string_view key, const RecipeOptions& options,
                     std::string schema_constraint, Request* request);

}  // namespace deepinfer::recipe
