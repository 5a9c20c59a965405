// SPDX-License-Identifier: Apache-2.0
// The items of a Responses input, in which one assistant turn is spread over several: reasoning, messages, calls.
// `open_` is the assistant message that the items read so far have built; it is added when an item begins something
// else. Calls stay open until all of them have their outputs, and nothing but outputs and further calls may come
// between.
#include "recipe/responses_input.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "recipe/prompt_json.h"

namespace deepinfer::recipe {
namespace {

class InputReader {
 public:
  InputReader(const RecipeOptions& options, ToolChecks checks, Request* request)
      : options_(options), checks_(checks), request_(request) {}

  Status Read(const Field& items) {
    for (size_t i = 0; i < items.size(); ++i) DI_RETURN_IF_ERROR(ReadItem(items.Item(i)));
    return {};
  }

  // After all items; `field` is the last place where outputs could have stood.
  Status End(const Field& field) {
    DI_RETURN_IF_ERROR(CheckAllAnswered(field));
    CloseTurn();
    return {};
  }

 private:
  bool Is41() const { return request_->version == ModelVersion::kV41; }

  Status ReadItem(const Field& item) {
    DI_RETURN_IF_ERROR(ExpectObject(item));
    if (!item.Member("type").present()) {
      if (!item.Member("role").present()) return item.Bad("expected an item with a type or a role");
      return ReadMessage(item);
    }
    DI_ASSIGN_OR_RETURN(const std::string type, ReadString(item.Member("type")));
    if (type == "message") return ReadMessage(item);
    if (type == "reasoning") return ReadReasoning(item);
    if (type == "function_call") return ReadFunctionCall(item);
    if (type == "custom_tool_call") return ReadCustomCall(item);
    if (type == "function_call_output") return ReadOutput(item, /*id_optional=*/true);
    if (type == "custom_tool_call_output") return ReadOutput(item, /*id_optional=*/false);
    if (type == "tool_search_call") return ReadSearchCall(item);
    if (type == "tool_search_output") return ReadSearchOutput(item);
    if (type == "item_reference" && options_.profile == Profile::kDefault) {
      return Error(Code::kUnimplemented, "{}: item_reference is not supported; pass the item itself", item.pointer());
    }
    return {};  // traces of tools that ran elsewhere
  }

  // --- messages and reasoning ---

  Status ReadMessage(const Field& item) {
    enum class Kind { kUser, kAssistant, kSystem, kDeveloper };
    DI_ASSIGN_OR_RETURN(const Kind kind, ReadWord<Kind>(item.Member("role"), {{"user", Kind::kUser},
                                                                              {"assistant", Kind::kAssistant},
                                                                              {"system", Kind::kSystem},
                                                                              {"developer", Kind::kDeveloper}}));
    DI_ASSIGN_OR_RETURN(Content content, ReadContent(item.Member("content"), /*is_output=*/false));
    DI_RETURN_IF_ERROR(CheckAllAnswered(item));
    if (kind == Kind::kAssistant) {
      if (!content.images.empty()) return item.Bad("an assistant message cannot have images");
      Message& turn = OpenTurn();
      const bool blank_line = !turn.content.text.empty() && !content.text.empty();
      turn.content.Append(blank_line ? "\n\n" : "", std::move(content));
      return {};
    }
    CloseTurn();
    const bool as_user = kind == Kind::kUser || (kind == Kind::kDeveloper && !Is41());
    request_->conversation.messages.emplace_back(as_user ? Role::kUser : Role::kSystem, std::move(content));
    return {};
  }

  Result<Content> ReadContent(const Field& field, bool is_output) {
    Content content;
    if (field.IsString()) {
      content.text = field.json().AsString();
      return content;
    }
    if (!field.IsArray()) return field.BadKind("a string or an array of parts");
    PartJoiner joiner(&content);
    for (size_t i = 0; i < field.size(); ++i) {
      const Field part = field.Item(i);
      DI_RETURN_IF_ERROR(ExpectObject(part));
      enum class Kind { kText, kImage, kFile };
      DI_ASSIGN_OR_RETURN(const Kind kind,
                          is_output ? ReadWord<Kind>(part.Member("type"), {{"input_text", Kind::kText},
                                                                           {"input_image", Kind::kImage},
                                                                           {"input_file", Kind::kFile}})
                                    : ReadWord<Kind>(part.Member("type"), {{"input_text", Kind::kText},
                                                                           {"output_text", Kind::kText},
                                                                           {"input_image", Kind::kImage},
                                                                           {"input_file", Kind::kFile}}));
      Content read;
      if (kind == Kind::kText) {
        DI_ASSIGN_OR_RETURN(read.text, ReadString(part.Member("text")));
      } else if (kind == Kind::kImage) {
        DI_RETURN_IF_ERROR(ReadImage(part, &read));
      } else {
        read.text = "[Unsupported Document]";
      }
      joiner.Add(std::move(read));
    }
    return content;
  }

  Status ReadImage(const Field& part, Content* content) {
    const Field url = part.Member("image_url");
    const Field file = part.Member("file_id");
    DI_ASSIGN_OR_RETURN(const ImageDetail detail, ReadDetail(part.Member("detail")));
    if (url.given()) DI_RETURN_IF_ERROR(ReadString(url).status());
    if (file.given()) DI_RETURN_IF_ERROR(ReadString(file).status());
    if (!Is41()) {
      content->text += "[Unsupported Image]";
      return {};
    }
    if (url.given() == file.given()) return part.Bad("expected one of image_url and file_id");
    if (file.given()) return file.Bad("is not supported; pass the image as a base64 data URL in image_url");
    return AppendImage(url, detail, request_, content);
  }

  Status ReadReasoning(const Field& item) {
    const Field content = item.Member("content");
    DI_RETURN_IF_ERROR(ReadOptionalString(item.Member("encrypted_content")).status());
    std::string text;
    if (content.given()) {
      DI_RETURN_IF_ERROR(ExpectArray(content));
      for (size_t i = 0; i < content.size(); ++i) {
        DI_ASSIGN_OR_RETURN(const std::string part, ReadString(content.Item(i).Member("text")));
        if (i > 0) text += '\n';
        text += part;
      }
    }
    if (text.empty()) return {};
    DI_RETURN_IF_ERROR(CheckAllAnswered(item));
    if (open_ && !open_->content.text.empty()) CloseTurn();
    Message& turn = OpenTurn();
    turn.reasoning = turn.reasoning ? *turn.reasoning + "\n" + text : text;
    return {};
  }

  // --- calls and outputs ---

  // The assistant message under way; a new one where the last one's calls are all answered.
  Message& OpenTurn() {
    if (open_ && !open_->tool_calls.empty() && unanswered_.empty()) CloseTurn();
    if (!open_) open_.emplace(Role::kAssistant);
    return *open_;
  }

  void CloseTurn() {
    if (!open_) return;
    if (options_.profile == Profile::kCompatible) {  // the service goes by the ids, not by the order of the items
      std::stable_sort(open_->tool_calls.begin(), open_->tool_calls.end(),
                       [](const ToolCall& a, const ToolCall& b) { return a.id < b.id; });
    }
    std::vector<Message>& messages = request_->conversation.messages;
    const std::vector<ToolCall> calls = open_->tool_calls;
    messages.push_back(std::move(*open_));
    open_.reset();
    for (const ToolCall& call : calls) messages.push_back(std::move(outputs_.at(call.id)));
    outputs_.clear();
    if (!found_tools_.empty()) {
      Message system(Role::kSystem);
      system.tools = std::move(found_tools_);
      messages.push_back(std::move(system));
      found_tools_.clear();
    }
  }

  Status CheckAllAnswered(const Field& item) const {
    if (unanswered_.empty()) return {};
    return item.Bad("there is no tool output for the call \"{}\" before it", *unanswered_.begin());
  }

  Status AddCall(const Field& item, std::string name, std::string arguments) {
    const Field id = item.Member("call_id");
    DI_ASSIGN_OR_RETURN(std::string call_id, ReadString(id));
    if (call_id.empty()) return id.Bad("must not be empty");
    if (!call_ids_.insert(call_id).second) return id.Bad("two calls have the id \"{}\"", call_id);
    OpenTurn().tool_calls.push_back({call_id, std::move(name), std::move(arguments)});
    unanswered_.insert(std::move(call_id));
    return {};
  }

  Status ReadFunctionCall(const Field& item) {
    DI_ASSIGN_OR_RETURN(std::string arguments, ReadString(item.Member("arguments")));
    DI_ASSIGN_OR_RETURN(std::string name, ReadString(item.Member("name")));
    DI_ASSIGN_OR_RETURN(const auto space, ReadOptionalString(item.Member("namespace")));
    if (space) name = *space + "::" + name;
    return AddCall(item, std::move(name), std::move(arguments));
  }

  Status ReadCustomCall(const Field& item) {
    DI_ASSIGN_OR_RETURN(std::string name, ReadString(item.Member("name")));
    DI_ASSIGN_OR_RETURN(std::string input, ReadString(item.Member("input")));
    const Json arguments(Json::Object{{"input", Json(std::move(input))}});
    return AddCall(item, std::move(name), WritePromptJson(arguments, JsonForm::kCompact));
  }

  static Status CheckExecution(const Field& item) {
    const Field execution = item.Member("execution");
    if (!execution.given()) return {};
    return ReadWord<bool>(execution, {{"client", true}, {"server", true}}).status();
  }

  Status ReadSearchCall(const Field& item) {
    const Field arguments = item.Member("arguments");
    DI_RETURN_IF_ERROR(ReadString(item.Member("call_id")).status());
    DI_RETURN_IF_ERROR(ExpectObject(arguments));
    DI_RETURN_IF_ERROR(CheckExecution(item));
    if (!Is41()) return {};
    return AddCall(item, "tool_search", WritePromptJson(arguments.json(), JsonForm::kCompact));
  }

  Status ReadOutput(const Field& item, bool id_optional) {
    DI_ASSIGN_OR_RETURN(Content content, ReadContent(item.Member("output"), /*is_output=*/true));
    if (!id_optional || item.Member("call_id").given()) return AddOutput(item, std::move(content));
    // A result of no call in particular.
    DI_RETURN_IF_ERROR(CheckAllAnswered(item));
    CloseTurn();
    request_->conversation.messages.emplace_back(Role::kTool, std::move(content));
    return {};
  }

  Status AddOutput(const Field& item, Content content) {
    const Field id = item.Member("call_id");
    DI_ASSIGN_OR_RETURN(std::string call_id, ReadString(id));
    if (!call_ids_.contains(call_id)) return id.Bad("there is no tool call \"{}\" before it", call_id);
    if (unanswered_.erase(call_id) == 0) return id.Bad("a second output for the call \"{}\"", call_id);
    Message message(Role::kTool, std::move(content));
    message.tool_call_id = call_id;
    outputs_.emplace(std::move(call_id), std::move(message));
    return {};
  }

  // The result is the list of tools as text; a system message then makes them available.
  Status ReadSearchOutput(const Field& item) {
    DI_RETURN_IF_ERROR(ReadString(item.Member("call_id")).status());
    const Field list = item.Member("tools");
    DI_RETURN_IF_ERROR(ExpectArray(list));
    DI_RETURN_IF_ERROR(CheckExecution(item));
    if (!Is41()) return {};  // V4 knows no tools that come later
    std::vector<ToolDefinition> tools;
    Json::Array shown;
    for (size_t i = 0; i < list.size(); ++i) DI_RETURN_IF_ERROR(ShowTool(list.Item(i), &shown));
    DI_RETURN_IF_ERROR(ParseResponsesTools(list, options_, request_, checks_, &tools, nullptr));
    for (ToolDefinition& tool : tools) {
      tool.deferred = true;
      request_->conversation.tools.push_back(tool);
      found_tools_.push_back(std::move(tool));
    }
    return AddOutput(item, Content(WritePromptJson(Json(std::move(shown)), JsonForm::kCompact)));
  }

  static Status ShowTool(const Field& tool, Json::Array* shown, const Field* space = nullptr) {
    const Field type = tool.Member("type");
    if (type.IsString() && type.json().AsString() == "namespace") {
      const Field inner = tool.Member("tools");
      for (size_t i = 0; i < inner.size(); ++i) DI_RETURN_IF_ERROR(ShowTool(inner.Item(i), shown, &tool));
      return {};
    }
    DI_RETURN_IF_ERROR(ReadWord<bool>(type, {{"function", true}}).status());
    const auto member = [](const Field& field) { return field.given() ? field.json() : Json(); };
    Json::Object entry;
    for (const std::string_view key : {"type", "name", "description", "parameters", "strict"}) {
      entry.emplace_back(key, member(tool.Member(key)));
    }
    if (space != nullptr) {
      entry.emplace_back("namespace", Json(Json::Object{{"name", member(space->Member("name"))},
                                                        {"description", member(space->Member("description"))}}));
    }
    shown->emplace_back(std::move(entry));
    return {};
  }

  const RecipeOptions& options_;
  const ToolChecks checks_;
  Request* request_;
  std::optional<Message> open_;
  std::unordered_set<std::string> call_ids_;    // of all calls so far
  std::unordered_set<std::string> unanswered_;  // of open_
  std::map<std::string, Message> outputs_;      // of open_
  std::vector<ToolDefinition> found_tools_;     // by searches of open_
};

}  // namespace

Status ParseResponsesInput(const Field& earlier, const Field& input, const RecipeOptions& options, ToolChecks checks,
                           Request* request) {
  InputReader reader(options, checks, request);
  DI_RETURN_IF_ERROR(reader.Read(earlier));
  if (input.given() && !input.IsString()) {
    if (!input.IsArray()) return input.BadKind("a string or an array of items");
    if (input.size() == 0) return input.Bad("expected at least one item");
    DI_RETURN_IF_ERROR(reader.Read(input));
  }
  DI_RETURN_IF_ERROR(reader.End(input));
  if (input.IsString()) request->conversation.messages.emplace_back(Role::kUser, Content(input.json().AsString()));
  return {};
}

}  // namespace deepinfer::recipe
