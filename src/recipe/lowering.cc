// SPDX-License-Identifier: Apache-2.0
#include "recipe/lowering.h"

#include <algorithm>
#include <utility>

#include "recipe/parse_request.h"
#include "recipe/prompt_json.h"

namespace deepinfer::recipe {
namespace {

// Earlier reasoning is a string in thinking mode and nothing otherwise. Where missing reasoning is refused, that is about
// what the model is in the middle of: turns after the last user message, where it calls tools or could.
Status FillReasoning(const Field& field, bool lists_tools, const RecipeOptions& options, Conversation* conversation) {
  bool same_turn = true;
  for (auto message = conversation->messages.rbegin(); message != conversation->messages.rend(); ++message) {
    if (message->role == Role::kUser) same_turn = false;
    if (message->role != Role::kAssistant) continue;
    if (!conversation->thinking) {
      message->reasoning.reset();
    } else if (!message->reasoning) {
      if (options.reject_missing_reasoning && same_turn && (lists_tools || !message->tool_calls.empty())) {
        return field.Bad("the reasoning of the assistant messages since the last user message must be passed back");
      }
      message->reasoning = "";
    }
  }
  return {};
}

ThinkingStage InitialStage(const Conversation& conversation) {
  if (!conversation.thinking) return ThinkingStage::kNone;
  if (conversation.messages.empty() || !conversation.messages.back().prefix) return ThinkingStage::kReasoningStart;
  const Message& prefix = conversation.messages.back();
  if (!prefix.content.text.empty()) return ThinkingStage::kContentContinuation;
  return prefix.reasoning.value_or("").empty() ? ThinkingStage::kReasoningStart : ThinkingStage::kReasoningContinuation;
}

std::string ToolsConstraint(const std::vector<ToolDefinition>& tools) {
  Json::Array list;
  for (const ToolDefinition& tool : tools) {
    Json::Object function = {
        {"name", Json(tool.name)},
        {"description", tool.description ? Json(*tool.description) : Json()},
        {"parameters", tool.parameters.IsNull() ? Json(Json::Object()) : tool.parameters},
        {"strict", tool.strict ? Json(*tool.strict) : Json()},
    };
    Json::Object entry = {{"type", Json("function")}, {"function", Json(std::move(function))}};
    if (tool.deferred) entry.emplace_back("defer_loading", Json(true));
    list.emplace_back(std::move(entry));
  }
  return WritePromptJson(Json(std::move(list)), JsonForm::kCompact);
}

std::optional<OutputConstraint> Constraint(const Conversation& conversation, std::string schema) {
  if (!conversation.tools.empty()) {
    const bool required = conversation.tool_choice == ToolChoice::kRequired;
    return OutputConstraint{
        required ? OutputConstraint::Kind::kToolCallRequired : OutputConstraint::Kind::kToolCall,
        ToolsConstraint(conversation.tools)};
  }
  switch (conversation.format.kind) {
    case FormatKind::kText:
      return std::nullopt;
    case FormatKind::kJsonObject:
      return OutputConstraint{OutputConstraint::Kind::kJson, ""};
    case FormatKind::kJsonSchema:
      return OutputConstraint{OutputConstraint::Kind::kJson, std::move(schema)};
    case FormatKind::kRegex:
      return OutputConstraint{OutputConstraint::Kind::kRegex, conversation.format.regex};
  }
  return std::nullopt;
}

Result<Request> ParseBody(Protocol protocol, const Field& root, const RecipeOptions& options,
                          const EarlierItemsFn& earlier) {
  switch (protocol) {
    case Protocol::kChat:
      return ParseChat(root, options);
    case Protocol::kResponses:
      return ParseResponses(root, options, earlier);
    case Protocol::kMessages:
      return ParseMessages(root, options);
    case Protocol::kCompletions:
      return ParseCompletions(root, options);
  }
  return Error(Code::kInternal, "unknown protocol");
}

}  // namespace

Result<Request> BeginRequest(const Field& root, Protocol protocol, const RecipeOptions& options) {
  Request request;
  request.profile = options.profile;
  request.answer.protocol = protocol;
  DI_ASSIGN_OR_RETURN(request.answer.model, ReadString(root.Member("model")));
  std::optional<ModelVersion> version = options.other_models;
  for (const auto& [name, named] : options.models) {
    if (name == request.answer.model) version = named;
  }
  if (!version) {
    std::string names;
    for (const auto& model : options.models) names += (names.empty() ? "" : ", ") + model.first;
    return Error(Code::kNotFound, "/model: there is no model \"{}\"; there are: {}", request.answer.model.substr(0, 200),
                 names);
  }
  request.version = *version;
  DI_ASSIGN_OR_RETURN(const auto stream, ReadOptionalBool(root.Member("stream")));
  request.answer.stream = stream.value_or(false);
  return request;
}

Result<std::optional<EffortSetting>> ReadEffort(const Field& field, Profile profile) {
  using Setting = std::optional<EffortSetting>;
  if (!field.given()) return Setting();
  if (profile == Profile::kDefault && field.json().IsNumber()) {
    DI_ASSIGN_OR_RETURN(const int64_t percent, ReadInteger(field, 1, 100));
    return Setting(EffortSetting{.off = false, .effort = Effort::kHigh, .percent = static_cast<int>(percent)});
  }
  DI_ASSIGN_OR_RETURN(const auto effort, ReadWord<std::optional<Effort>>(field, {{"none", std::nullopt},
                                                                                 {"minimal", Effort::kLow},
                                                                                 {"low", Effort::kLow},
                                                                                 {"medium", Effort::kHigh},
                                                                                 {"high", Effort::kHigh},
                                                                                 {"xhigh", Effort::kXhigh},
                                                                                 {"max", Effort::kMax},
                                                                                 {"ultra", Effort::kMax}}));
  return Setting(EffortSetting{.off = !effort.has_value(), .effort = effort, .percent = std::nullopt});
}

Result<std::optional<ThinkingSetting>> ReadThinking(const Field& field) {
  using Setting = std::optional<ThinkingSetting>;
  if (!field.given()) return Setting();
  DI_RETURN_IF_ERROR(ExpectObject(field));
  ThinkingSetting setting;
  DI_ASSIGN_OR_RETURN(setting.enabled, ReadWord<bool>(field.Member("type"),
                                                      {{"enabled", true}, {"adaptive", true}, {"disabled", false}}));
  const Field budget = field.Member("budget_tokens");
  if (budget.given()) {
    DI_ASSIGN_OR_RETURN(const uint64_t tokens, ReadUnsigned(budget));
    setting.budget_tokens = static_cast<int64_t>(std::min<uint64_t>(tokens, INT64_MAX));
  }
  return Setting(setting);
}

void DecideThinking(const std::optional<ThinkingSetting>& thinking, const std::optional<EffortSetting>& effort,
                    const RecipeOptions& options, Request* request) {
  Conversation& conversation = request->conversation;
  conversation.thinking = options.default_thinking;
  if (effort) conversation.thinking = !effort->off;
  if (thinking) conversation.thinking = thinking->enabled;
  if (!conversation.thinking) return;
  conversation.effort = effort && effort->effort ? *effort->effort : Effort::kHigh;
  if (effort) conversation.effort_percent = effort->percent;
  if (thinking && options.profile == Profile::kDefault) {
    request->sampling.thinking_budget_tokens = thinking->budget_tokens;
  }
}

Status FinishRequest(const Field& root, std::string_view key, const RecipeOptions& options,
                     std::string schema_constraint, Request* request) {
  const Field messages = root.Member(key);
  Conversation& conversation = request->conversation;
  if (conversation.messages.size() > options.limits.messages_max) {
    return Error(Code::kResourceExhausted, "{} messages are over the limit of {}", conversation.messages.size(),
                 options.limits.messages_max);
  }
  size_t num_images = 0;
  for (const Message& message : conversation.messages) num_images += message.content.images.size();
  if (num_images > options.limits.images_max) {
    return Error(Code::kResourceExhausted, "{} images are over the limit of {}", num_images, options.limits.images_max);
  }
  DI_RETURN_IF_ERROR(FillReasoning(messages, root.Member("tools").size() > 0, options, &conversation));
  if (conversation.format.kind == FormatKind::kJsonObject) {
    DI_RETURN_IF_ERROR(CheckJsonWord(messages, *request));
    if (!request->content) request->content = ContentConstraint();
  }

  const bool required = conversation.tool_choice == ToolChoice::kRequired;
  conversation.calls_after_thinking = required && conversation.thinking;
  ParseOptions& parsing = request->parsing;
  parsing.parse_tool_calls = !conversation.tools.empty() && conversation.tool_choice != ToolChoice::kNone;
  parsing.starts_in_tool_calls = required && !conversation.calls_after_thinking;
  parsing.calls_required = conversation.calls_after_thinking;
  parsing.parse_json_output = conversation.format.kind == FormatKind::kJsonObject;
  parsing.stage = InitialStage(conversation);
  request->sampling.constraint = Constraint(conversation, std::move(schema_constraint));
  return {};
}

Result<Request> ParseRequest(Protocol protocol, std::string_view body, const RecipeOptions& options,
                             const EarlierItemsFn& earlier) {
  const RequestLimits& limits = options.limits;
  DI_ASSIGN_OR_RETURN(const Json json, ParseRequestJson(body, {.size_bytes_max = limits.body_bytes_max,
                                                               .depth_max = limits.depth_max,
                                                               .nodes_max = limits.values_max}));
  const Field root(json);
  if (!root.IsObject()) return Error(Code::kInvalidArgument, "the request must be a JSON object, not {}", root.kind());
  DI_ASSIGN_OR_RETURN(Request request, ParseBody(protocol, root, options, earlier));
  const SamplingOptions& sampling = request.sampling;
  request.parsing.min_tokens = sampling.min_tokens.value_or(0);
  if (sampling.max_tokens && sampling.min_tokens.value_or(0) > *sampling.max_tokens) {
    return root.Member("min_tokens").Bad("{} is more than the {} tokens at most", *sampling.min_tokens,
                                         *sampling.max_tokens);
  }
  return request;
}

Result<int64_t> ResolveMaxTokens(const Request& request, int64_t prompt_tokens, int64_t context_tokens) {
  const Conversation& conversation = request.conversation;
  if (const auto asked = request.sampling.max_tokens) {
    if (*asked > context_tokens || prompt_tokens > context_tokens - *asked) {
      return Error(Code::kInvalidArgument,
                   "the prompt of {} tokens and max_tokens of {} do not fit the context of {} tokens", prompt_tokens,
                   *asked, context_tokens);
    }
    return *asked;
  }
  if (prompt_tokens > context_tokens) {
    return Error(Code::kInvalidArgument, "the prompt of {} tokens does not fit the context of {} tokens", prompt_tokens,
                 context_tokens);
  }
  const int64_t wanted = !conversation.thinking                ? 8'192
                         : conversation.effort == Effort::kMax ? 131'072
                                                               : 65'536;
  return std::max<int64_t>(1, std::min(wanted, context_tokens - prompt_tokens));
}

}  // namespace deepinfer::recipe
