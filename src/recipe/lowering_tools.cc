// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "recipe/lowering.h"
#include "recipe/prompt_json.h"
#include "recipe/schema.h"

namespace deepinfer::recipe {
namespace {

constexpr size_t kMaxToolName = 128;

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

Status CheckSchemaSize(const Field& schema, const RecipeOptions& options) {
  if (!schema.given()) return {};
  const size_t size = WritePromptJson(schema.json(), JsonForm::kCompact).size();
  if (size <= options.limits.schema_bytes_max) return {};
  return Error(Code::kResourceExhausted, "{}: a schema of {} bytes is over the limit of {}", schema.pointer(), size,
               options.limits.schema_bytes_max);
}

// Leaves only the tools that `setting` allows, and no system message that was there only for others.
void KeepTools(const ToolChoiceSetting& setting, Conversation* conversation) {
  const auto gone = [&](const ToolDefinition& tool) {
    return setting.choice == ToolChoice::kNone || (setting.name && tool.name != *setting.name);
  };
  std::erase_if(conversation->tools, gone);
  std::erase_if(conversation->messages, [&](Message& message) {
    if (message.tools.empty()) return false;
    std::erase_if(message.tools, gone);
    return message.tools.empty() && message.content.text.empty() && message.content.images.empty();
  });
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool ContainsJsonWord(std::string_view text) {
  constexpr std::string_view kWord = "json";
  return std::search(text.begin(), text.end(), kWord.begin(), kWord.end(),
                     [](char a, char b) { return Lower(a) == b; }) != text.end();
}

}  // namespace

Status CheckToolName(const Field& name) {
  DI_ASSIGN_OR_RETURN(const std::string text, ReadString(name));
  if (text.empty() || text.size() > kMaxToolName || !std::all_of(text.begin(), text.end(), IsNameCharacter)) {
    return name.Bad("expected 1 to {} of the characters a-z, A-Z, 0-9, _ and -", kMaxToolName);
  }
  return {};
}

Result<ToolDefinition> ReadTool(const Field& fields, std::string_view schema_key, const RecipeOptions& options,
                                ToolChecks checks) {
  ToolDefinition tool;
  const Field schema = fields.Member(schema_key);
  DI_ASSIGN_OR_RETURN(tool.name, ReadString(fields.Member("name")));
  DI_ASSIGN_OR_RETURN(tool.description, ReadOptionalString(fields.Member("description")));
  if (checks == ToolChecks::kAll || (checks == ToolChecks::kStrictAsItIs && options.profile == Profile::kDefault)) {
    DI_ASSIGN_OR_RETURN(tool.strict, ReadOptionalBool(fields.Member("strict")));
  }
  DI_RETURN_IF_ERROR(CheckToolName(fields.Member("name")));
  DI_RETURN_IF_ERROR(CheckSchemaSize(schema, options));
  // An empty object is how many clients say "no parameters".
  const bool none = options.profile == Profile::kDefault && schema.IsObject() && schema.json().Members().empty();
  const bool has_schema = schema.given() && !none;
  if (has_schema) tool.parameters = schema.json();
  if (checks == ToolChecks::kNamesOnly) return tool;
  if (has_schema) DI_RETURN_IF_ERROR(CheckParameters(schema));
  if (tool.strict.value_or(false) && checks == ToolChecks::kAll) {
    const auto strict = options.profile == Profile::kDefault ? StrictSchemaInFull : StrictSchema;
    DI_ASSIGN_OR_RETURN(tool.parameters, has_schema ? strict(schema, StrictUse::kTool) : NoParameters());
  }
  return tool;
}

Status CheckTools(const Field& field, const std::vector<ToolDefinition>& tools, const RecipeOptions& options,
                  ToolChecks checks) {
  if (tools.size() > options.limits.tools_max) {
    return Error(Code::kResourceExhausted, "{}: {} tools are over the limit of {}", field.pointer(), tools.size(),
                 options.limits.tools_max);
  }
  if (checks == ToolChecks::kNamesOnly) return {};
  std::unordered_set<std::string_view> names;
  size_t num_strict = 0;
  for (const ToolDefinition& tool : tools) {
    if (!names.insert(tool.name).second) return field.Bad("two tools have the name \"{}\"", tool.name);
    num_strict += tool.strict.value_or(false) ? 1 : 0;
  }
  if (options.profile == Profile::kCompatible && checks == ToolChecks::kAll && num_strict > 0 && num_strict < tools.size()) {
    return field.Bad("strict tools cannot be used together with others that are not strict");
  }
  return {};
}

Status ApplyToolChoice(const Field& field, const ToolChoiceSetting& setting, Request* request) {
  Conversation& conversation = request->conversation;
  const bool any = !conversation.tools.empty();
  KeepTools(setting, &conversation);
  conversation.tool_choice = setting.choice;
  if (setting.choice == ToolChoice::kNone) return {};
  if (!any) {
    if (setting.choice == ToolChoice::kRequired && request->profile == Profile::kDefault) {
      return field.Bad("a call is required, but there are no tools in /tools");
    }
    conversation.tool_choice = ToolChoice::kAuto;  // there is nothing to choose from
    return {};
  }
  if (conversation.tools.empty()) return field.Bad("there is no tool \"{}\" in /tools", setting.name->substr(0, 200));
  if (setting.choice == ToolChoice::kRequired && conversation.thinking && request->profile == Profile::kCompatible) {
    return field.Bad("a required tool call is not supported in thinking mode");
  }
  return {};
}

Status ReadJsonSchemaFormat(const Field& holder, const RecipeOptions& options, Request* request,
                            std::string* constraint) {
  DI_RETURN_IF_ERROR(ExpectObject(holder));
  const Field schema = holder.Member("schema");
  if (!schema.present()) return schema.BadKind("a JSON Schema");
  DI_ASSIGN_OR_RETURN(const auto strict, ReadOptionalBool(holder.Member("strict")));
  DI_RETURN_IF_ERROR(CheckSchemaSize(schema, options));
  DI_RETURN_IF_ERROR(CheckSchema(schema));
  request->conversation.format.kind = FormatKind::kJsonSchema;
  request->conversation.format.schema = schema.json();
  Json enforced = schema.json();
  if (strict.value_or(false)) {
    const auto form = options.profile == Profile::kDefault ? StrictSchemaInFull : StrictSchema;
    DI_ASSIGN_OR_RETURN(enforced, form(schema, StrictUse::kResponse));
  }
  *constraint = WritePromptJson(enforced, JsonForm::kCompact);
  request->content = ContentConstraint{
      .kind = ContentConstraint::Kind::kJsonSchema, .text = *constraint, .field = schema.pointer()};
  return {};
}

Status CheckJsonWord(const Field& field, const Request& request) {
  for (const Message& message : request.conversation.messages) {
    if (ContainsJsonWord(message.content.text)) return {};
  }
  return field.Bad("the messages must contain the word \"json\" in some form to use a json_object format");
}

}  // namespace deepinfer::recipe
