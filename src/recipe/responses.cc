// SPDX-License-Identifier: Apache-2.0
// OpenAI Responses.
#include <utility>

#include "recipe/lowering.h"
#include "recipe/responses_input.h"

namespace deepinfer::recipe {
namespace {

Json OrNull(const Field& field) { return field.given() ? field.json() : Json(); }

class ResponsesParser {
 public:
  ResponsesParser(const Field& root, const RecipeOptions& options, const EarlierItemsFn& earlier)
      : root_(root), options_(options), earlier_(earlier) {}

  Result<Request> Parse() {
    DI_ASSIGN_OR_RETURN(request_, BeginRequest(root_, Protocol::kResponses, options_));
    DI_RETURN_IF_ERROR(ParseReasoning());
    DI_RETURN_IF_ERROR(ParseInput());
    DI_RETURN_IF_ERROR(ReadSampling(root_, options_, &request_));
    DI_RETURN_IF_ERROR(ParseParameters());
    std::string constraint;
    DI_RETURN_IF_ERROR(ParseText(&constraint));
    if (IsDefault()) {
      DI_RETURN_IF_ERROR(ReadGuidedOutput(root_, &request_));
      DI_RETURN_IF_ERROR(ParseMore());
    }
    DI_RETURN_IF_ERROR(FinishRequest(root_, "input", options_, std::move(constraint), &request_));
    return std::move(request_);
  }

 private:
  bool IsDefault() const { return options_.profile == Profile::kDefault; }
  ResponsesEcho& Echo() { return request_.answer.echo; }

  Status ParseReasoning() {
    const Field reasoning = root_.Member("reasoning");
    if (reasoning.given()) DI_RETURN_IF_ERROR(ExpectObject(reasoning));
    DI_ASSIGN_OR_RETURN(const auto effort, ReadEffort(reasoning.Member("effort"), options_.profile));
    DecideThinking(std::nullopt, effort, options_, &request_);
    Json summary;
    for (const std::string_view name : {"generate_summary", "summary"}) {
      const Field field = reasoning.Member(name);
      if (!field.given()) continue;
      DI_RETURN_IF_ERROR(
          ReadWord<bool>(field, {{"auto", true}, {"concise", true}, {"detailed", true}}).status());
      summary = field.json();
    }
    Echo().reasoning = Json(Json::Object{{"effort", OrNull(reasoning.Member("effort"))}, {"summary", std::move(summary)}});
    return {};
  }

  Status ParseInput() {
    const Field input = root_.Member("input");
    DI_ASSIGN_OR_RETURN(Echo().instructions, ReadOptionalString(root_.Member("instructions")));
    if (!input.given() && Echo().instructions.value_or("").empty()) return input.BadKind("input or instructions");
    if (!Echo().instructions.value_or("").empty()) {
      request_.conversation.messages.emplace_back(Role::kSystem, Content(*Echo().instructions));
    }
    const Field choice = root_.Member("tool_choice");
    DI_ASSIGN_OR_RETURN(const ToolChoiceSetting setting, ReadToolChoice(choice));
    const ToolChecks checks = setting.choice == ToolChoice::kNone ? ToolChecks::kNamesOnly : ToolChecks::kAll;
    std::vector<ToolDefinition>& tools = request_.conversation.tools;
    Json::Array echo;
    DI_RETURN_IF_ERROR(ParseResponsesTools(root_.Member("tools"), options_, &request_, checks, &tools, &echo));
    Echo().tools = Json(std::move(echo));
    DI_ASSIGN_OR_RETURN(const Json earlier, EarlierItems());
    const Field before = root_.Member("previous_response_id").With(earlier);
    DI_RETURN_IF_ERROR(ParseResponsesInput(before, input, options_, checks, &request_));
    DI_RETURN_IF_ERROR(CheckTools(root_.Member("tools"), tools, options_, checks));
    return ApplyToolChoice(choice, setting, &request_);
  }

  // What the conversation had before; an empty array where it begins here.
  Result<Json> EarlierItems() {
    const Field previous = root_.Member("previous_response_id");
    if (!IsDefault() || !earlier_ || !previous.given()) return Json(Json::Array());
    DI_ASSIGN_OR_RETURN(const std::string id, ReadString(previous));
    const std::optional<std::string> items = earlier_(id);
    if (!items) {
      return Error(Code::kNotFound, "{}: there is no stored response \"{}\"", previous.pointer(), id.substr(0, 100));
    }
    return ParseJson(*items, {.size_bytes_max = SIZE_MAX, .nodes_max = options_.limits.values_max});
  }

  Result<ToolChoiceSetting> ReadToolChoice(const Field& field) {
    ToolChoiceSetting setting;
    Echo().tool_choice = field.given() ? field.json() : Json("auto");
    if (!field.given()) return setting;
    if (!field.IsObject()) {
      DI_ASSIGN_OR_RETURN(setting.choice, ReadWord<ToolChoice>(field, {{"none", ToolChoice::kNone},
                                                                       {"auto", ToolChoice::kAuto},
                                                                       {"required", ToolChoice::kRequired}}));
      return setting;
    }
    DI_ASSIGN_OR_RETURN(const bool named, ReadWord<bool>(field.Member("type"), {{"function", true},
                                                                                {"custom", true},
                                                                                {"web_search", false},
                                                                                {"web_search_2025_08_26", false}}));
    if (named) {
      setting.choice = ToolChoice::kRequired;
      DI_ASSIGN_OR_RETURN(setting.name, ReadString(field.Member("name")));
    } else if (options_.responses_web_search == WebSearch::kReject) {
      return field.Bad("server tools are not supported");
    }
    return setting;
  }

  Status ParseParameters() {
    SamplingOptions& sampling = request_.sampling;
    const Field max_tokens = root_.Member("max_output_tokens");
    DI_RETURN_IF_ERROR(ReadMaxTokens(max_tokens, TooMany::kRefuse, options_, &request_));
    Echo().max_output_tokens = sampling.max_tokens;
    DI_ASSIGN_OR_RETURN(const auto temperature, ReadOptionalNumber(root_.Member("temperature")));
    DI_ASSIGN_OR_RETURN(const auto top_p, ReadOptionalNumber(root_.Member("top_p")));
    Echo().temperature = temperature.value_or(1.0);
    Echo().top_p = top_p.value_or(1.0);
    DI_ASSIGN_OR_RETURN(const auto top, ReadOptionalInteger(root_.Member("top_logprobs"), 0, 20));
    Echo().top_logprobs = static_cast<int>(top.value_or(0));
    if (top) {
      sampling.logprobs = true;
      sampling.top_logprobs = static_cast<int>(*top);
    }
    DI_ASSIGN_OR_RETURN(Echo().user, ReadOptionalString(root_.Member("user")));
    return {};
  }

  Status ParseText(std::string* constraint) {
    const Field text = root_.Member("text");
    const Field format = text.Member("format");
    const Field verbosity = text.Member("verbosity");
    if (text.given()) DI_RETURN_IF_ERROR(ExpectObject(text));
    if (verbosity.given()) {
      DI_RETURN_IF_ERROR(ReadWord<bool>(verbosity, {{"low", true}, {"medium", true}, {"high", true}}).status());
    }
    Json echo(Json::Object{{"type", Json("text")}});
    if (format.present()) {
      DI_RETURN_IF_ERROR(ExpectObject(format));
      FormatKind& kind = request_.conversation.format.kind;
      DI_ASSIGN_OR_RETURN(kind, ReadWord<FormatKind>(format.Member("type"), {{"text", FormatKind::kText},
                                                                             {"json_schema", FormatKind::kJsonSchema},
                                                                             {"json_object", FormatKind::kJsonObject}}));
      echo = Json(Json::Object{{"type", format.Member("type").json()}});
      if (kind == FormatKind::kJsonSchema) {
        DI_RETURN_IF_ERROR(ReadString(format.Member("name")).status());
        DI_RETURN_IF_ERROR(ReadOptionalString(format.Member("description")).status());
        DI_RETURN_IF_ERROR(ReadJsonSchemaFormat(format, options_, &request_, constraint));
        for (const std::string_view key : {"name", "schema", "description", "strict"}) {
          echo.Members().emplace_back(key, OrNull(format.Member(key)));
        }
      }
    }
    Echo().text = Json(Json::Object{{"format", std::move(echo)}, {"verbosity", OrNull(verbosity)}});
    return {};
  }

  // What only the default profile acts on.
  Status ParseMore() {
    // Context that is kept elsewhere: the answer would lack it without a word.
    for (const std::string_view name : {"conversation", "prompt"}) {
      if (!root_.Member(name).given()) continue;
      return Error(Code::kUnimplemented, "/{}: is not supported; pass the items in \"input\"", name);
    }
    DI_ASSIGN_OR_RETURN(const auto parallel, ReadOptionalBool(root_.Member("parallel_tool_calls")));
    Echo().parallel_tool_calls = parallel.value_or(true);
    request_.parsing.one_call_only = !parallel.value_or(true) && !request_.conversation.tools.empty();
    DI_ASSIGN_OR_RETURN(const auto background, ReadOptionalBool(root_.Member("background")));
    Echo().background = background.value_or(false);
    DI_ASSIGN_OR_RETURN(const auto store, ReadOptionalBool(root_.Member("store")));
    Echo().store = store.value_or(options_.default_store);
    const Field input = root_.Member("input");
    if (Echo().store && input.given()) {
      const Json message(Json::Array{Json(Json::Object{
          {"type", Json("message")}, {"role", Json("user")}, {"content", input.json()}})});
      Echo().input_items = WriteJson(input.IsString() ? message : input.json());
    }
    DI_ASSIGN_OR_RETURN(Echo().previous_response_id, ReadOptionalString(root_.Member("previous_response_id")));
    const Field metadata = root_.Member("metadata");
    if (metadata.given()) {
      DI_RETURN_IF_ERROR(ExpectObject(metadata));
      Echo().metadata = metadata.json();
    }
    const Field include = root_.Member("include");
    if (!include.given()) return {};
    DI_RETURN_IF_ERROR(ExpectArray(include));
    for (size_t i = 0; i < include.size(); ++i) {
      DI_ASSIGN_OR_RETURN(const std::string what, ReadString(include.Item(i)));
      if (what == "reasoning.encrypted_content") request_.answer.encrypted_reasoning = true;
      if (what == "message.output_text.logprobs") request_.sampling.logprobs = true;
    }
    return {};
  }

  const Field& root_;
  const RecipeOptions& options_;
  const EarlierItemsFn& earlier_;
  Request request_;
};

}  // namespace

Result<Request> ParseResponses(const Field& root, const RecipeOptions& options, const EarlierItemsFn& earlier) {
  return ResponsesParser(root, options, earlier).Parse();
}

}  // namespace deepinfer::recipe
