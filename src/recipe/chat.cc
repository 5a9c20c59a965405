// SPDX-License-Identifier: Apache-2.0
// OpenAI Chat Completions.
#include <unordered_set>
#include <utility>

#include "recipe/lowering.h"

namespace deepinfer::recipe {
namespace {

class ChatParser {
 public:
  ChatParser(const Field& root, const RecipeOptions& options) : root_(root), options_(options) {}

  Result<Request> Parse() {
    DI_ASSIGN_OR_RETURN(request_, BeginRequest(root_, Protocol::kChat, options_));
    DI_ASSIGN_OR_RETURN(const auto thinking, ReadThinking(root_.Member("thinking")));
    DI_ASSIGN_OR_RETURN(const auto effort, ReadEffort(root_.Member("reasoning_effort"), options_.profile));
    DecideThinking(thinking, effort, options_, &request_);
    DI_RETURN_IF_ERROR(ParseMessages());
    DI_RETURN_IF_ERROR(ParseTools());
    DI_RETURN_IF_ERROR(ReadSampling(root_, options_, &request_));
    DI_RETURN_IF_ERROR(ParseParameters());
    std::string constraint;
    DI_RETURN_IF_ERROR(ParseFormat(&constraint));
    if (IsDefault()) DI_RETURN_IF_ERROR(ReadGuidedOutput(root_, &request_));
    DI_RETURN_IF_ERROR(CheckPrefix());
    DI_RETURN_IF_ERROR(FinishRequest(root_, "messages", options_, std::move(constraint), &request_));
    return std::move(request_);
  }

 private:
  bool IsDefault() const { return options_.profile == Profile::kDefault; }

  // --- messages ---

  Status ParseMessages() {
    const Field messages = root_.Member("messages");
    DI_RETURN_IF_ERROR(ExpectArray(messages));
    if (messages.size() == 0) return messages.Bad("expected at least one message");
    for (size_t i = 0; i < messages.size(); ++i) {
      const Field message = messages.Item(i);
      DI_RETURN_IF_ERROR(ExpectObject(message));
      DI_RETURN_IF_ERROR(ParseMessage(message, i + 1 == messages.size()));
    }
    if (!open_calls_.empty()) return MissingResults(messages);
    return {};
  }

  Status MissingResults(const Field& field) const {
    return field.Bad("an assistant message with tool calls must be followed by a tool message for each call; \"{}\" has "
                     "none", *open_calls_.begin());
  }

  Result<Role> ReadRole(const Field& field) const {
    if (IsDefault() && field.IsString() && field.json().AsString() == "developer") return Role::kSystem;
    return ReadWord<Role>(field, {{"system", Role::kSystem},
                                  {"user", Role::kUser},
                                  {"assistant", Role::kAssistant},
                                  {"tool", Role::kTool},
                                  {"latest_reminder", Role::kLatestReminder}});
  }

  Status ParseMessage(const Field& field, bool last) {
    DI_ASSIGN_OR_RETURN(const Role role, ReadRole(field.Member("role")));
    if (role == Role::kSystem || role == Role::kUser || role == Role::kAssistant) {
      DI_RETURN_IF_ERROR(ReadOptionalString(field.Member("name")).status());
    }
    if (!open_calls_.empty() && role != Role::kTool) return MissingResults(field);
    Message message(role);
    const Field content = field.Member("content");
    if (role != Role::kAssistant || content.given()) {
      DI_ASSIGN_OR_RETURN(message.content, ParseContent(content, role));
    }
    switch (role) {
      case Role::kSystem:
        if (message.content.text.empty() && message.content.images.empty()) return {};
        break;
      case Role::kAssistant:
        DI_RETURN_IF_ERROR(ParseAssistant(field, last, &message));
        break;
      case Role::kTool:
        DI_RETURN_IF_ERROR(ParseToolResult(field, &message));
        break;
      case Role::kUser:
      case Role::kLatestReminder:
        break;
    }
    if (IsDefault()) DI_RETURN_IF_ERROR(ParseTask(field, &message));
    request_.conversation.messages.push_back(std::move(message));
    return {};
  }

  Result<Content> ParseContent(const Field& field, Role role) {
    Content content;
    if (field.IsString()) {
      content.text = field.json().AsString();
      return content;
    }
    if (role == Role::kLatestReminder) return field.BadKind("a string");
    if (!field.IsArray()) return field.BadKind("a string or an array of parts");
    PartJoiner joiner(&content);
    for (size_t i = 0; i < field.size(); ++i) {
      const Field part = field.Item(i);
      DI_RETURN_IF_ERROR(ExpectObject(part));
      enum class Kind { kText, kImage, kFile };
      DI_ASSIGN_OR_RETURN(const Kind kind,
                          ReadWord<Kind>(part.Member("type"), {{"text", Kind::kText},
                                                               {"image_url", Kind::kImage},
                                                               {"file", Kind::kFile}}));
      Content read;
      if (kind == Kind::kText) {
        DI_ASSIGN_OR_RETURN(read.text, ReadString(part.Member("text")));
      } else {
        DI_RETURN_IF_ERROR(kind == Kind::kImage ? ParseImage(part, &read) : ParseFile(part, &read));
        if (role == Role::kAssistant && !read.images.empty()) return part.Bad("an assistant message cannot have images");
      }
      joiner.Add(std::move(read));
    }
    return content;
  }

  Status ParseImage(const Field& part, Content* content) {
    const Field image = part.Member("image_url");
    DI_RETURN_IF_ERROR(ExpectObject(image));
    DI_ASSIGN_OR_RETURN(const ImageDetail detail, ReadDetail(image.Member("detail")));
    return AppendImage(image.Member("url"), detail, &request_, content);
  }

  // An image as a file: only its data, only beside the type.
  Status ParseFile(const Field& part, Content* content) {
    DI_RETURN_IF_ERROR(ReadOptionalString(part.Member("file_id")).status());
    DI_RETURN_IF_ERROR(ReadOptionalString(part.Member("file_data")).status());
    const Field data = part.Member("file_data");
    if (part.Member("file_id").given()) {
      return part.Member("file_id").Bad("is not supported; pass the image as a base64 data URL in file_data");
    }
    if (!data.given()) return part.Bad("a file needs file_data");
    return AppendImage(data, ImageDetail::kHigh, &request_, content);
  }

  Status ParseAssistant(const Field& field, bool last, Message* message) {
    DI_ASSIGN_OR_RETURN(message->reasoning, ReadOptionalString(field.Member("reasoning_content")));
    DI_ASSIGN_OR_RETURN(const auto prefix, ReadOptionalBool(field.Member("prefix")));
    message->prefix = prefix.value_or(false);
    if (message->prefix && !last) return field.Member("prefix").Bad("only the last message can be a prefix");
    const Field calls = field.Member("tool_calls");
    if (!calls.given()) {
      if (!field.Member("content").given()) return field.Bad("expected content or tool_calls");
      return {};
    }
    DI_RETURN_IF_ERROR(ExpectArray(calls));
    if (calls.size() == 0) return calls.Bad("expected at least one call");
    for (size_t i = 0; i < calls.size(); ++i) {
      const Field call = calls.Item(i);
      DI_RETURN_IF_ERROR(ExpectObject(call));
      const Field function = call.Member("function");
      ToolCall read;
      DI_ASSIGN_OR_RETURN(read.id, ReadString(call.Member("id")));
      DI_RETURN_IF_ERROR(ReadWord<bool>(call.Member("type"), {{"function", true}}).status());
      DI_RETURN_IF_ERROR(ExpectObject(function));
      DI_ASSIGN_OR_RETURN(read.name, ReadString(function.Member("name")));
      DI_ASSIGN_OR_RETURN(read.arguments, ReadString(function.Member("arguments")));
      if (!open_calls_.insert(read.id).second) return call.Member("id").Bad("two calls have the id \"{}\"", read.id);
      message->tool_calls.push_back(std::move(read));
    }
    return {};
  }

  Status ParseToolResult(const Field& field, Message* message) {
    const Field id = field.Member("tool_call_id");
    DI_ASSIGN_OR_RETURN(message->tool_call_id, ReadString(id));
    if (open_calls_.erase(message->tool_call_id) == 0) {
      return id.Bad("a tool message must answer a call of the assistant message before it, once; there is no open call "
                    "\"{}\"", message->tool_call_id);
    }
    return {};
  }

  // The quick tasks of the model's own chat format.
  static Status ParseTask(const Field& field, Message* message) {
    const Field task = field.Member("task");
    if (!task.given()) return {};
    DI_ASSIGN_OR_RETURN(message->task, ReadWord<Task>(task, {{"action", Task::kAction},
                                                             {"query", Task::kQuery},
                                                             {"authority", Task::kAuthority},
                                                             {"domain", Task::kDomain},
                                                             {"title", Task::kTitle},
                                                             {"read_url", Task::kReadUrl}}));
    const Role wanted = message->task == Task::kTitle ? Role::kAssistant : Role::kUser;
    if (message->role != wanted || message->prefix) {
      return task.Bad("title belongs to an assistant message, the other tasks to a user message");
    }
    if (message->task == Task::kReadUrl) {
      DI_ASSIGN_OR_RETURN(message->task_url, ReadString(field.Member("url")));
    }
    return {};
  }

  Status CheckPrefix() const {
    const std::vector<Message>& messages = request_.conversation.messages;
    if (messages.empty() || !messages.back().prefix) return {};
    if (!request_.conversation.tools.empty()) return root_.Member("tools").Bad("cannot be used with a prefix");
    if (request_.conversation.format.kind == FormatKind::kJsonObject) {
      return root_.Member("response_format").Bad("json_object cannot be used with a prefix");
    }
    return {};
  }

  // --- tools ---

  Status ParseTools() {
    const Field tools = root_.Member("tools");
    DI_ASSIGN_OR_RETURN(const ToolChoiceSetting choice, ReadToolChoice(root_.Member("tool_choice")));
    const ToolChecks checks = choice.choice == ToolChoice::kNone ? ToolChecks::kNamesOnly : ToolChecks::kAll;
    if (tools.given()) {
      DI_RETURN_IF_ERROR(ExpectArray(tools));
      for (size_t i = 0; i < tools.size(); ++i) {
        const Field tool = tools.Item(i);
        DI_RETURN_IF_ERROR(ExpectObject(tool));
        DI_RETURN_IF_ERROR(ReadWord<bool>(tool.Member("type"), {{"function", true}}).status());
        const Field function = tool.Member("function");
        DI_RETURN_IF_ERROR(ExpectObject(function));
        DI_ASSIGN_OR_RETURN(ToolDefinition read, ReadTool(function, "parameters", options_, checks));
        request_.conversation.tools.push_back(std::move(read));
      }
    }
    DI_RETURN_IF_ERROR(CheckTools(tools, request_.conversation.tools, options_, checks));
    DI_RETURN_IF_ERROR(ApplyToolChoice(root_.Member("tool_choice"), choice, &request_));
    DI_ASSIGN_OR_RETURN(const auto parallel, ReadOptionalBool(root_.Member("parallel_tool_calls")));
    request_.parsing.one_call_only = IsDefault() && !parallel.value_or(true) && !request_.conversation.tools.empty();
    return {};
  }

  static Result<ToolChoiceSetting> ReadToolChoice(const Field& field) {
    if (!field.given()) return ToolChoiceSetting();
    if (!field.IsObject()) {
      DI_ASSIGN_OR_RETURN(const ToolChoice choice, ReadWord<ToolChoice>(field, {{"none", ToolChoice::kNone},
                                                                                {"auto", ToolChoice::kAuto},
                                                                                {"required", ToolChoice::kRequired}}));
      return ToolChoiceSetting{choice, std::nullopt};
    }
    DI_RETURN_IF_ERROR(ReadWord<bool>(field.Member("type"), {{"function", true}}).status());
    const Field function = field.Member("function");
    DI_RETURN_IF_ERROR(ExpectObject(function));
    DI_ASSIGN_OR_RETURN(std::string name, ReadString(function.Member("name")));
    return ToolChoiceSetting{ToolChoice::kRequired, std::move(name)};
  }

  // --- parameters ---

  Status ParseParameters() {
    SamplingOptions& sampling = request_.sampling;
    DI_RETURN_IF_ERROR(ReadMaxTokens(root_.Member("max_tokens"), TooMany::kRefuse, options_, &request_));
    if (IsDefault()) {  // the newer name counts where both are given
      DI_RETURN_IF_ERROR(ReadMaxTokens(root_.Member("max_completion_tokens"), TooMany::kRefuse, options_, &request_));
    }
    DI_RETURN_IF_ERROR(ReadStop(root_.Member("stop"), /*allow_one=*/true, &request_));
    const int num_choices_max = IsDefault() ? options_.limits.num_choices_max : 1;
    DI_ASSIGN_OR_RETURN(const auto n, ReadOptionalInteger(root_.Member("n"), 1, num_choices_max));
    sampling.num_choices = static_cast<int>(n.value_or(1));
    DI_RETURN_IF_ERROR(ParsePenalty("frequency_penalty", &sampling.frequency_penalty));
    DI_RETURN_IF_ERROR(ParsePenalty("presence_penalty", &sampling.presence_penalty));
    DI_ASSIGN_OR_RETURN(const auto seed, ReadOptionalInteger(root_.Member("seed"), 0, INT64_MAX));
    if (seed) sampling.seed = static_cast<uint64_t>(*seed);
    DI_ASSIGN_OR_RETURN(const auto logprobs, ReadOptionalBool(root_.Member("logprobs")));
    DI_ASSIGN_OR_RETURN(const auto top, ReadOptionalInteger(root_.Member("top_logprobs"), 0, 20));
    sampling.logprobs = logprobs.value_or(false);
    if (top && !sampling.logprobs) return root_.Member("top_logprobs").Bad("needs \"logprobs\": true");
    if (top) sampling.top_logprobs = static_cast<int>(*top);
    return ParseStreamOptions();
  }

  Status ParsePenalty(std::string_view name, float* penalty) const {
    const Field field = root_.Member(name);
    DI_ASSIGN_OR_RETURN(const auto number, ReadOptionalNumber(field));
    const auto value = static_cast<float>(number.value_or(0.0));
    if (!(value >= -2.0F && value <= 2.0F)) return field.Bad("expected a number from -2 to 2, found {}", value);
    if (IsDefault()) *penalty = value;  // the service takes penalties and does not apply them
    return {};
  }

  Status ParseStreamOptions() {
    const Field field = root_.Member("stream_options");
    if (!field.given()) return {};
    DI_RETURN_IF_ERROR(ExpectObject(field));
    DI_ASSIGN_OR_RETURN(const auto include_usage, ReadOptionalBool(field.Member("include_usage")));
    if (!request_.answer.stream) return field.Bad("needs \"stream\": true");
    request_.answer.include_usage = include_usage.value_or(false);
    return {};
  }

  Status ParseFormat(std::string* constraint) {
    const Field field = root_.Member("response_format");
    if (!field.given()) return {};
    DI_RETURN_IF_ERROR(ExpectObject(field));
    ResponseFormat& format = request_.conversation.format;
    const Field type = field.Member("type");
    if (IsDefault() && type.IsString() && type.json().AsString() == "structural_tag") {
      request_.content = ContentConstraint{.kind = ContentConstraint::Kind::kStructuralTag,
                                           .text = WriteJson(field.json()),
                                           .field = field.pointer()};
      return {};
    }
    DI_ASSIGN_OR_RETURN(format.kind, ReadWord<FormatKind>(type, {{"json_object", FormatKind::kJsonObject},
                                                                                 {"json_schema", FormatKind::kJsonSchema},
                                                                                 {"regex", FormatKind::kRegex},
                                                                                 {"text", FormatKind::kText}}));
    if (format.kind == FormatKind::kRegex) {
      DI_ASSIGN_OR_RETURN(format.regex, ReadString(field.Member("regex")));
      request_.content = ContentConstraint{.kind = ContentConstraint::Kind::kRegex,
                                           .text = format.regex,
                                           .field = field.Member("regex").pointer()};
    }
    if (format.kind != FormatKind::kJsonSchema) return {};
    const Field holder = field.Member("json_schema");
    DI_RETURN_IF_ERROR(ReadOptionalString(holder.Member("name")).status());
    return ReadJsonSchemaFormat(holder, options_, &request_, constraint);
  }

  const Field& root_;
  const RecipeOptions& options_;
  Request request_;
  std::unordered_set<std::string> open_calls_;  // ids of the last assistant message that have no result yet
};

}  // namespace

Result<Request> ParseChat(const Field& root, const RecipeOptions& options) { return ChatParser(root, options).Parse(); }

}  // namespace deepinfer::recipe
