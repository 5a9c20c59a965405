// SPDX-License-Identifier: Apache-2.0
// Anthropic Messages.
#include <unordered_set>
#include <utility>

#include "recipe/lowering.h"
#include "recipe/prompt_json.h"

namespace deepinfer::recipe {
namespace {

enum class Block {
  kText,
  kImage,
  kDocument,
  kThinking,
  kServerToolUse,
  kToolUse,
  kToolResult,
  kWebSearchToolResult,
  kToolAddition,
};

Result<Block> ReadBlock(const Field& block) {
  DI_RETURN_IF_ERROR(ExpectObject(block));
  return ReadWord<Block>(block.Member("type"), {{"text", Block::kText},
                                                {"image", Block::kImage},
                                                {"document", Block::kDocument},
                                                {"thinking", Block::kThinking},
                                                {"server_tool_use", Block::kServerToolUse},
                                                {"tool_use", Block::kToolUse},
                                                {"tool_result", Block::kToolResult},
                                                {"web_search_tool_result", Block::kWebSearchToolResult},
                                                {"tool_addition", Block::kToolAddition}});
}

class MessagesParser {
 public:
  MessagesParser(const Field& root, const RecipeOptions& options) : root_(root), options_(options) {}

  Result<Request> Parse() {
    DI_ASSIGN_OR_RETURN(request_, BeginRequest(root_, Protocol::kMessages, options_));
    DI_RETURN_IF_ERROR(ParseThinking());
    DI_RETURN_IF_ERROR(ParseTools());
    DI_RETURN_IF_ERROR(ParseSystem());
    DI_RETURN_IF_ERROR(ParseMessages());
    // Only now, since messages may refer to tools that the choice leaves out.
    DI_RETURN_IF_ERROR(ParseToolChoice());
    DI_RETURN_IF_ERROR(ReadSampling(root_, options_, &request_));
    DI_RETURN_IF_ERROR(ReadMaxTokens(root_.Member("max_tokens"), TooMany::kLower, options_, &request_));
    DI_RETURN_IF_ERROR(ReadStop(root_.Member("stop_sequences"), /*allow_one=*/false, &request_));
    const Field metadata = root_.Member("metadata");
    if (metadata.given()) {
      DI_RETURN_IF_ERROR(ExpectObject(metadata));
      DI_RETURN_IF_ERROR(ReadOptionalString(metadata.Member("user_id")).status());
    }
    std::string constraint;
    if (IsDefault()) {
      DI_RETURN_IF_ERROR(ParseFormat(&constraint));
      DI_RETURN_IF_ERROR(ReadGuidedOutput(root_, &request_));
    }
    DI_RETURN_IF_ERROR(FinishRequest(root_, "messages", options_, std::move(constraint), &request_));
    return std::move(request_);
  }

 private:
  bool IsDefault() const { return options_.profile == Profile::kDefault; }
  bool Is41() const { return request_.version == ModelVersion::kV41; }
  void AddMessage(Message message) { request_.conversation.messages.push_back(std::move(message)); }

  Status ParseThinking() {
    DI_ASSIGN_OR_RETURN(const auto thinking, ReadThinking(root_.Member("thinking")));
    const Field config = root_.Member("output_config");
    if (config.given()) DI_RETURN_IF_ERROR(ExpectObject(config));
    DI_ASSIGN_OR_RETURN(const auto effort, ReadEffort(config.Member("effort"), options_.profile));
    DecideThinking(thinking, effort, options_, &request_);
    return {};
  }

  // Structured output, under its present and its former name.
  Status ParseFormat(std::string* constraint) {
    const Field present = root_.Member("output_config").Member("format");
    const Field format = present.given() ? present : root_.Member("output_format");
    if (!format.given()) return {};
    DI_RETURN_IF_ERROR(ExpectObject(format));
    DI_RETURN_IF_ERROR(ReadWord<bool>(format.Member("type"), {{"json_schema", true}}).status());
    return ReadJsonSchemaFormat(format, options_, &request_, constraint);
  }

  // --- tools ---

  Status ParseTools() {
    const Field tools = root_.Member("tools");
    if (!tools.given()) return {};
    DI_RETURN_IF_ERROR(ExpectArray(tools));
    std::vector<ToolDefinition>& list = request_.conversation.tools;
    const Field choice = root_.Member("tool_choice").Member("type");
    const bool unused = choice.IsString() && choice.json().AsString() == "none";
    const ToolChecks checks = unused ? ToolChecks::kNamesOnly : ToolChecks::kStrictAsItIs;
    bool any_listed = false;
    for (size_t i = 0; i < tools.size(); ++i) {
      const Field tool = tools.Item(i);
      DI_RETURN_IF_ERROR(ExpectObject(tool));
      if (tool.Member("type").present()) {
        DI_ASSIGN_OR_RETURN(const std::string type, ReadString(tool.Member("type")));
        const bool web_search = type.starts_with("web_search");
        if (web_search && options_.messages_web_search == WebSearch::kDrop) continue;
        if (!(IsDefault() && type == "custom")) return tool.Member("type").Bad("server tools are not supported");
      }
      DI_ASSIGN_OR_RETURN(const auto deferred, ReadOptionalBool(tool.Member("defer_loading")));
      if (!unused && !tool.Member("input_schema").given()) return tool.Member("input_schema").BadKind("a JSON Schema");
      DI_ASSIGN_OR_RETURN(ToolDefinition read, ReadTool(tool, "input_schema", options_, checks));
      read.deferred = deferred.value_or(false) && Is41();
      any_listed = any_listed || !deferred.value_or(false);
      list.push_back(std::move(read));
    }
    if (!list.empty() && !any_listed) return tools.Bad("at least one tool must not be deferred");
    return CheckTools(tools, list, options_, checks);
  }

  Status ParseToolChoice() {
    const Field field = root_.Member("tool_choice");
    ToolChoiceSetting setting;
    if (field.given()) {
      DI_RETURN_IF_ERROR(ExpectObject(field));
      enum class Kind { kAuto, kAny, kTool, kNone };
      DI_ASSIGN_OR_RETURN(const Kind kind, ReadWord<Kind>(field.Member("type"), {{"auto", Kind::kAuto},
                                                                                 {"any", Kind::kAny},
                                                                                 {"tool", Kind::kTool},
                                                                                 {"none", Kind::kNone}}));
      DI_ASSIGN_OR_RETURN(const auto one, ReadOptionalBool(field.Member("disable_parallel_tool_use")));
      if (kind == Kind::kNone) setting.choice = ToolChoice::kNone;
      if (kind == Kind::kAny && IsDefault()) setting.choice = ToolChoice::kRequired;
      if (kind == Kind::kTool) {
        setting.choice = ToolChoice::kRequired;
        DI_ASSIGN_OR_RETURN(setting.name, ReadString(field.Member("name")));
      }
      request_.parsing.one_call_only = IsDefault() && one.value_or(false) && !request_.conversation.tools.empty();
    }
    return ApplyToolChoice(field, setting, &request_);
  }

  // --- messages ---

  Status ParseSystem() {
    const Field system = root_.Member("system");
    if (!system.given()) return {};
    Message message(Role::kSystem);
    if (system.IsString()) {
      message.content.text = system.json().AsString();
    } else if (system.IsArray()) {
      PartJoiner joiner(&message.content);
      for (size_t i = 0; i < system.size(); ++i) {
        const Field block = system.Item(i);
        DI_RETURN_IF_ERROR(ExpectObject(block));
        DI_RETURN_IF_ERROR(ReadWord<bool>(block.Member("type"), {{"text", true}}).status());
        DI_ASSIGN_OR_RETURN(std::string text, ReadString(block.Member("text")));
        joiner.AddText(std::move(text));
      }
    } else {
      return system.BadKind("a string or an array of text blocks");
    }
    AddMessage(std::move(message));
    return {};
  }

  Status ParseMessages() {
    const Field messages = root_.Member("messages");
    DI_RETURN_IF_ERROR(ExpectArray(messages));
    if (messages.size() == 0) return messages.Bad("expected at least one message");
    for (size_t i = 0; i < messages.size(); ++i) {
      const Field message = messages.Item(i);
      DI_RETURN_IF_ERROR(ExpectObject(message));
      DI_ASSIGN_OR_RETURN(const Role role, ReadWord<Role>(message.Member("role"), {{"user", Role::kUser},
                                                                                   {"assistant", Role::kAssistant},
                                                                                   {"system", Role::kSystem}}));
      const Field content = message.Member("content");
      if (!content.IsString() && !content.IsArray()) return content.BadKind("a string or an array of blocks");
      if (role != Role::kUser) DI_RETURN_IF_ERROR(CheckAllAnswered(message));
      if (content.IsArray() && content.size() == 0 && role != Role::kSystem) {
        return content.Bad("a message must have content");
      }
      if (role == Role::kUser) DI_RETURN_IF_ERROR(ParseUser(content));
      if (role == Role::kAssistant) DI_RETURN_IF_ERROR(ParseAssistant(content));
      if (role == Role::kSystem) DI_RETURN_IF_ERROR(ParseMidSystem(content));
    }
    return CheckAllAnswered(messages);
  }

  Status CheckAllAnswered(const Field& field) const {
    if (open_calls_.empty()) return {};
    return field.Bad("`tool_use` ids were found without `tool_result` blocks immediately after: {}",
                     *open_calls_.begin());
  }

  // Each block becomes a message of its own; the renderer joins them again.
  Status ParseUser(const Field& content) {
    if (content.IsString()) {
      DI_RETURN_IF_ERROR(CheckAllAnswered(content));
      AddMessage(Message(Role::kUser, Content(content.json().AsString())));
      return {};
    }
    for (size_t i = 0; i < content.size(); ++i) {
      const Field block = content.Item(i);
      DI_ASSIGN_OR_RETURN(const Block kind, ReadBlock(block));
      if (kind == Block::kToolResult) {
        DI_RETURN_IF_ERROR(ParseToolResult(block));
        continue;
      }
      DI_RETURN_IF_ERROR(CheckAllAnswered(block));
      Message message(Role::kUser);
      DI_RETURN_IF_ERROR(ParsePlainBlock(block, kind, &message.content));
      AddMessage(std::move(message));
    }
    if (!found_tools_.empty()) {
      Message system(Role::kSystem);
      system.tools = std::exchange(found_tools_, {});
      AddMessage(std::move(system));
    }
    return CheckAllAnswered(content);
  }

  // text, image or document.
  Status ParsePlainBlock(const Field& block, Block kind, Content* content) {
    switch (kind) {
      case Block::kText: {
        DI_ASSIGN_OR_RETURN(content->text, ReadString(block.Member("text")));
        return {};
      }
      case Block::kImage:
        return ParseImage(block.Member("source"), content);
      case Block::kDocument: {
        const Field source = block.Member("source");
        DI_RETURN_IF_ERROR(ExpectObject(source));
        DI_ASSIGN_OR_RETURN(const auto type, ReadOptionalString(source.Member("media_type")));
        content->text = "[Unsupported document type: " + type.value_or("unknown") + "]";
        return {};
      }
      case Block::kThinking:
      case Block::kServerToolUse:
      case Block::kToolUse:
      case Block::kToolResult:
      case Block::kWebSearchToolResult:
      case Block::kToolAddition:
        break;
    }
    return block.Member("type").Bad("a block of this type cannot stand here");
  }

  Status ParseImage(const Field& source, Content* content) {
    DI_RETURN_IF_ERROR(ExpectObject(source));
    if (!Is41()) content->text = "[Unsupported Image]";
    enum class Kind { kBase64, kUrl, kFile };
    DI_ASSIGN_OR_RETURN(const Kind kind, ReadWord<Kind>(source.Member("type"), {{"base64", Kind::kBase64},
                                                                                {"url", Kind::kUrl},
                                                                                {"file", Kind::kFile}}));
    if (kind == Kind::kFile) {
      DI_RETURN_IF_ERROR(ReadString(source.Member("file_id")).status());
      if (!Is41()) return {};
      return source.Member("file_id").Bad("is not supported; pass the image as base64");
    }
    if (kind == Kind::kUrl) {
      const Field url = source.Member("url");
      DI_RETURN_IF_ERROR(ReadString(url).status());
      if (!Is41()) return {};
      DI_RETURN_IF_ERROR(AppendImage(url, ImageDetail::kHigh, &request_, content));
      if (!content->images.empty() && content->images.back().kind == Image::Kind::kDataUrl) {
        return url.Bad("expected an http(s) URL");
      }
      return {};
    }
    const Field data = source.Member("data");
    DI_ASSIGN_OR_RETURN(const std::string_view type,
                        ReadWord<std::string_view>(source.Member("media_type"), {{"image/jpeg", "image/jpeg"},
                                                                                 {"image/jpg", "image/jpeg"},
                                                                                 {"image/png", "image/png"},
                                                                                 {"image/gif", "image/gif"},
                                                                                 {"image/webp", "image/webp"}}));
    DI_ASSIGN_OR_RETURN(const std::string base64, ReadString(data));
    if (!Is41()) return {};
    if (!IsBase64(base64, /*padding_optional=*/false)) return data.Bad("not valid base64");
    content->images.push_back({.offset = content->text.size(),
                               .kind = Image::Kind::kDataUrl,
                               .source = "data:" + std::string(type) + ";base64," + base64,
                               .detail = ImageDetail::kHigh,
                               .path = data.pointer()});
    return {};
  }

  Status ParseToolResult(const Field& block) {
    const Field id = block.Member("tool_use_id");
    Message message(Role::kTool);
    DI_ASSIGN_OR_RETURN(message.tool_call_id, ReadString(id));
    DI_RETURN_IF_ERROR(ReadOptionalBool(block.Member("is_error")).status());
    if (open_calls_.erase(message.tool_call_id) == 0) {
      return id.Bad("must answer a `tool_use` block of the message before it, once; there is no open one \"{}\"",
                    message.tool_call_id);
    }
    const Field content = block.Member("content");
    if (content.IsString()) {
      message.content.text = content.json().AsString();
    } else if (content.given()) {
      if (!content.IsArray()) return content.BadKind("a string or an array of blocks");
      DI_RETURN_IF_ERROR(ParseResultBlocks(content, &message));
    }
    AddMessage(std::move(message));
    return {};
  }

  Status ParseResultBlocks(const Field& content, Message* message) {
    PartJoiner joiner(&message->content);
    for (size_t i = 0; i < content.size(); ++i) {
      const Field part = content.Item(i);
      DI_RETURN_IF_ERROR(ExpectObject(part));
      DI_ASSIGN_OR_RETURN(const auto kind, ReadWord<std::optional<Block>>(
                                               part.Member("type"), {{"text", Block::kText},
                                                                     {"image", Block::kImage},
                                                                     {"document", Block::kDocument},
                                                                     {"tool_reference", std::nullopt}}));
      if (!kind) {
        DI_ASSIGN_OR_RETURN(const std::string name, ReadString(part.Member("tool_name")));
        DI_ASSIGN_OR_RETURN(const ToolDefinition* tool, FindTool(part.Member("tool_name"), name));
        if (Is41()) found_tools_.push_back(*tool);
        joiner.AddText(name);
        continue;
      }
      Content read;
      DI_RETURN_IF_ERROR(ParsePlainBlock(part, *kind, &read));
      joiner.Add(std::move(read));
    }
    return {};
  }

  Result<const ToolDefinition*> FindTool(const Field& field, std::string_view name) const {
    for (const ToolDefinition& tool : request_.conversation.tools) {
      if (tool.name == name) return &tool;
    }
    return field.Bad("there is no tool \"{}\" in /tools", name.substr(0, 200));
  }

  Status ParseAssistant(const Field& content) {
    Message message(Role::kAssistant);
    if (content.IsString()) {
      message.content.text = content.json().AsString();
      AddMessage(std::move(message));
      return {};
    }
    PartJoiner joiner(&message.content);
    for (size_t i = 0; i < content.size(); ++i) {
      const Field block = content.Item(i);
      DI_ASSIGN_OR_RETURN(const Block kind, ReadBlock(block));
      if (kind == Block::kThinking) {
        DI_RETURN_IF_ERROR(ParseThinkingBlock(block, &message));
      } else if (kind == Block::kToolUse) {
        DI_RETURN_IF_ERROR(ParseToolUse(block, &message));
      } else if (kind == Block::kServerToolUse || kind == Block::kWebSearchToolResult) {
        if (options_.messages_web_search == WebSearch::kReject) return block.Bad("server tools are not supported");
      } else {
        Content read;
        DI_RETURN_IF_ERROR(ParsePlainBlock(block, kind, &read));
        if (kind == Block::kImage) return block.Bad("an assistant message cannot have images");
        if (!message.tool_calls.empty()) return block.Bad("text cannot follow `tool_use` blocks");
        joiner.Add(std::move(read));
      }
    }
    AddMessage(std::move(message));
    return {};
  }

  static Status ParseThinkingBlock(const Field& block, Message* message) {
    DI_ASSIGN_OR_RETURN(const std::string text, ReadString(block.Member("thinking")));
    DI_RETURN_IF_ERROR(ReadOptionalString(block.Member("signature")).status());
    message->reasoning = message->reasoning ? *message->reasoning + "\n\n" + text : text;
    return {};
  }

  Status ParseToolUse(const Field& block, Message* message) {
    const Field input = block.Member("input");
    ToolCall call;
    DI_ASSIGN_OR_RETURN(call.id, ReadString(block.Member("id")));
    DI_ASSIGN_OR_RETURN(call.name, ReadString(block.Member("name")));
    if (!input.present()) return input.BadKind("an object");
    call.arguments = WritePromptJson(input.json(), JsonForm::kPromptV4);
    if (!open_calls_.insert(call.id).second) return block.Member("id").Bad("two calls have the id \"{}\"", call.id);
    message->tool_calls.push_back(std::move(call));
    return {};
  }

  // A system message among the others. V4 has none and reads it as a reminder by the user.
  Status ParseMidSystem(const Field& content) {
    Message message(Is41() ? Role::kSystem : Role::kUser);
    if (content.IsString()) {
      message.content.text = content.json().AsString();
    } else {
      PartJoiner joiner(&message.content);
      for (size_t i = 0; i < content.size(); ++i) {
        const Field block = content.Item(i);
        DI_ASSIGN_OR_RETURN(const Block kind, ReadBlock(block));
        if (kind == Block::kToolAddition) {
          DI_RETURN_IF_ERROR(ParseToolAddition(block, &message));
          continue;
        }
        Content read;
        DI_RETURN_IF_ERROR(ParsePlainBlock(block, kind, &read));
        joiner.Add(std::move(read));
      }
    }
    if (!Is41()) {
      if (message.content.text.empty()) return {};
      message.tools.clear();
      message.content.text = "<system-reminder>\n" + message.content.text + "\n</system-reminder>";
    }
    AddMessage(std::move(message));
    return {};
  }

  Status ParseToolAddition(const Field& block, Message* message) const {
    const Field reference = block.Member("tool");
    DI_RETURN_IF_ERROR(ExpectObject(reference));
    DI_RETURN_IF_ERROR(ReadWord<bool>(reference.Member("type"), {{"tool_reference", true}}).status());
    DI_ASSIGN_OR_RETURN(const std::string name, ReadString(reference.Member("name")));
    DI_ASSIGN_OR_RETURN(const ToolDefinition* tool, FindTool(reference.Member("name"), name));
    message->tools.push_back(*tool);
    return {};
  }

  const Field& root_;
  const RecipeOptions& options_;
  Request request_;
  std::unordered_set<std::string> open_calls_;  // ids of the last assistant message that have no result yet
  std::vector<ToolDefinition> found_tools_;     // by references in the results of this user message
};

}  // namespace

Result<Request> ParseMessages(const Field& root, const RecipeOptions& options) {
  return MessagesParser(root, options).Parse();
}

}  // namespace deepinfer::recipe
