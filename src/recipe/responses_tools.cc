// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "recipe/fixed_texts.h"
#include "recipe/responses_input.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kApplyPatch = "apply_patch";

Json OrNull(const Field& field) { return field.given() ? field.json() : Json(); }

class ToolReader {
 public:
  ToolReader(const RecipeOptions& options, Request* request, ToolChecks checks, std::vector<ToolDefinition>* tools,
             Json::Array* echo)
      : options_(options), request_(request), checks_(checks), tools_(tools), echo_(echo) {}

  Status Read(const Field& tool) {
    DI_RETURN_IF_ERROR(ExpectObject(tool));
    DI_ASSIGN_OR_RETURN(const std::string type, ReadString(tool.Member("type")));
    if (type == "function") return ReadFunction(tool);
    if (type == "namespace") return ReadNamespace(tool);
    if (type == "custom") return ReadCustom(tool);
    if (type == "tool_search") return ReadToolSearch(tool);
    if (type == "web_search" || type == "web_search_2025_08_26") {
      if (options_.responses_web_search == WebSearch::kReject) return tool.Bad("server tools are not supported");
      Echo({{"type", Json(type)},
            {"search_context_size", OrNull(tool.Member("search_context_size"))},
            {"user_location", OrNull(tool.Member("user_location"))}});
    }
    return {};  // tools that only another service could run
  }

 private:
  ToolChecks NoStrict() const { return checks_ == ToolChecks::kAll ? ToolChecks::kStrictAsItIs : checks_; }

  void Echo(Json::Object entry) {
    if (echo_ != nullptr) echo_->emplace_back(std::move(entry));
  }

  static Json FunctionEcho(const Field& tool) {
    return Json(Json::Object{{"type", Json("function")},
                             {"name", OrNull(tool.Member("name"))},
                             {"description", OrNull(tool.Member("description"))},
                             {"parameters", OrNull(tool.Member("parameters"))},
                             {"strict", OrNull(tool.Member("strict"))}});
  }

  Status ReadFunction(const Field& tool) {
    DI_ASSIGN_OR_RETURN(ToolDefinition read, ReadTool(tool, "parameters", options_, checks_));
    tools_->push_back(std::move(read));
    if (echo_ != nullptr) echo_->push_back(FunctionEcho(tool));
    return {};
  }

  Status ReadNamespace(const Field& space) {
    const Field list = space.Member("tools");
    DI_RETURN_IF_ERROR(CheckToolName(space.Member("name")));
    const std::string name = space.Member("name").json().AsString();
    DI_ASSIGN_OR_RETURN(const auto description, ReadOptionalString(space.Member("description")));
    DI_RETURN_IF_ERROR(ExpectArray(list));
    Json::Array echoes;
    std::unordered_set<std::string> local_names;
    for (size_t i = 0; i < list.size(); ++i) {
      const Field tool = list.Item(i);
      DI_RETURN_IF_ERROR(ExpectObject(tool));
      DI_RETURN_IF_ERROR(ReadWord<bool>(tool.Member("type"), {{"function", true}}).status());
      DI_ASSIGN_OR_RETURN(ToolDefinition read, ReadTool(tool, "parameters", options_, checks_));
      if (!local_names.insert(read.name).second) return tool.Member("name").Bad("stands twice in its namespace");
      AddNamespaced(name, description.value_or(""), std::move(read));
      echoes.push_back(FunctionEcho(tool));
    }
    Echo({{"type", Json("namespace")},
          {"name", Json(name)},
          {"description", OrNull(space.Member("description"))},
          {"tools", Json(std::move(echoes))}});
    return {};
  }

  void AddNamespaced(const std::string& name, const std::string& description, ToolDefinition tool) {
    const std::string local = tool.name;
    const std::string wanted = name + "::" + local;
    tool.name = wanted;
    for (int n = 1; HasTool(tool.name); ++n) tool.name = fmt::format("{}_{}", wanted, n);
    if (!description.empty()) tool.description = description + "\n" + tool.description.value_or("");
    request_->answer.namespace_tools.push_back({tool.name, name, local});
    tools_->push_back(std::move(tool));
  }

  bool HasTool(std::string_view name) const {
    return std::any_of(tools_->begin(), tools_->end(), [&](const ToolDefinition& tool) { return tool.name == name; });
  }

  // A tool whose input is one text becomes a function with one string.
  Status ReadCustom(const Field& tool) {
    ToolDefinition read;
    DI_ASSIGN_OR_RETURN(read.name, ReadString(tool.Member("name")));
    DI_ASSIGN_OR_RETURN(read.parameters, ParseJson(Texts().apply_patch_schema));
    if (read.name == kApplyPatch) {
      read.description = Texts().apply_patch;
    } else if (options_.profile == Profile::kCompatible) {
      return tool.Member("name").Bad("unsupported custom tool; only \"{}\" is supported", kApplyPatch);
    } else {
      DI_RETURN_IF_ERROR(CheckToolName(tool.Member("name")));
      DI_ASSIGN_OR_RETURN(read.description, ReadOptionalString(tool.Member("description")));
      read.parameters = Json(Json::Object{
          {"type", Json("object")},
          {"properties", Json(Json::Object{{"input", Json(Json::Object{{"type", Json("string")}})}})},
          {"required", Json(Json::Array{Json("input")})},
          {"additionalProperties", Json(false)}});
    }
    request_->answer.custom_tools.push_back(read.name);
    Echo({{"type", Json("custom")}, {"name", Json(read.name)}});
    tools_->push_back(std::move(read));
    return {};
  }

  // A search that the client runs is a function; V4 was not trained for tools that come later.
  Status ReadToolSearch(const Field& tool) {
    const Field execution = tool.Member("execution");
    bool client = false;
    if (execution.given()) {
      DI_ASSIGN_OR_RETURN(client, ReadWord<bool>(execution, {{"client", true}, {"server", false}}));
    }
    DI_RETURN_IF_ERROR(ReadOptionalString(tool.Member("description")).status());
    Echo({{"type", Json("tool_search")},
          {"execution", OrNull(execution)},
          {"description", OrNull(tool.Member("description"))},
          {"parameters", OrNull(tool.Member("parameters"))}});
    if (!client || request_->version == ModelVersion::kV4) return {};
    // The same fields as a function's, but for the name.
    Json function = tool.json();
    function.Members().emplace_back("name", Json("tool_search"));
    DI_ASSIGN_OR_RETURN(ToolDefinition read,
                        ReadTool(tool.With(function), "parameters", options_, NoStrict()));
    request_->answer.client_tool_search = true;
    tools_->push_back(std::move(read));
    return {};
  }

  const RecipeOptions& options_;
  Request* request_;
  const ToolChecks checks_;
  std::vector<ToolDefinition>* tools_;
  Json::Array* echo_;
};

}  // namespace

Status ParseResponsesTools(const Field& list, const RecipeOptions& options, Request* request,
                           ToolChecks checks, std::vector<ToolDefinition>* tools, Json::Array* echo) {
  if (!list.given()) return {};
  DI_RETURN_IF_ERROR(ExpectArray(list));
  ToolReader reader(options, request, checks, tools, echo);
  for (size_t i = 0; i < list.size(); ++i) DI_RETURN_IF_ERROR(reader.Read(list.Item(i)));
  return {};
}

}  // namespace deepinfer::recipe
