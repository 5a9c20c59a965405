// SPDX-License-Identifier: Apache-2.0
#include "recipe/render.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>

#include "core/check.h"
#include "recipe/fixed_texts.h"
#include "recipe/normalize.h"
#include "recipe/prompt_json.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kBlankLine = "\n\n";

// A fixed text in two halves, around the "{...}" that is to be filled in.
struct Template {
  std::string_view before;
  std::string_view after;
};

Template SplitTemplate(std::string_view text, std::string_view hole) {
  const size_t at = text.find(hole);
  DI_CHECK(at != std::string_view::npos);
  return {text.substr(0, at), text.substr(at + hole.size())};
}

// A text of our own, in which the spellings of these tokens stand for the tokens.
void AddProse(std::string_view prose, Prompt* prompt) {
  constexpr std::array kControls = {Control::kDsml, Control::kThinkStart, Control::kThinkEnd};
  while (!prose.empty()) {
    size_t next = prose.size();
    Control found = Control::kDsml;
    for (const Control control : kControls) {
      if (const size_t at = prose.find(Spelling(control)); at < next) {
        next = at;
        found = control;
      }
    }
    prompt->Add(prose.substr(0, next));
    if (next == prose.size()) return;
    prompt->Add(found);
    prose.remove_prefix(next + Spelling(found).size());
  }
}

class Renderer {
 public:
  Renderer(const Conversation& conversation, ModelVersion version) : conversation_(conversation), version_(version) {}

  Prompt Render() {
    const std::vector<Message> messages =
        NormalizeMessages(conversation_.messages, version_, ToolsActive() || HasFormatText());
    prompt_.Add(Control::kBos);
    if (messages.empty() && conversation_.thinking && !Is41()) RenderEffort();
    const Message* before = nullptr;
    for (const Message& message : messages) {
      RenderMessage(message, before, &message == &messages.back());
      before = &message;
    }
    const bool open = before != nullptr && (before->prefix || before->task != Task::kNone);
    if (!open) RenderHeader();
    if (OpensCalls()) RenderCallsOpening(version_, &prompt_);
    return std::move(prompt_);
  }

 private:
  bool Is41() const { return version_ == ModelVersion::kV41; }
  bool ToolsActive() const { return !conversation_.tools.empty() && conversation_.tool_choice != ToolChoice::kNone; }
  static bool Listed(const ToolDefinition& tool) { return !tool.deferred; }
  bool HasFormatText() const {
    return conversation_.format.kind == FormatKind::kJsonObject || conversation_.format.kind == FormatKind::kJsonSchema;
  }

  void RenderMessage(const Message& message, const Message* before, bool last) {
    const bool first = before == nullptr;
    if (first) RenderOpening(message);
    switch (message.role) {
      case Role::kSystem:
        RenderSystem(message, first);
        break;
      case Role::kUser:
        RenderTurnOpening(message, before);
        prompt_.Add(message.content);
        RenderTask(message);
        break;
      case Role::kTool:
        RenderTurnOpening(message, before);
        prompt_.Add("<tool_result>");
        prompt_.Add(message.content);
        prompt_.Add("</tool_result>");
        break;
      case Role::kLatestReminder:
        prompt_.Add(Control::kLatestReminder);
        prompt_.Add(message.content);
        break;
      case Role::kAssistant:
        RenderAssistant(message, before, last);
        break;
    }
  }

  // What stands before the content of the first message: the system token and the reasoning effort.
  void RenderOpening(const Message& message) {
    const bool effort = conversation_.thinking;
    if (Is41() && (effort || message.role == Role::kSystem)) prompt_.Add(Control::kSystem);
    if (effort) RenderEffort();
  }

  void RenderEffort() {
    const Effort effort = conversation_.effort.value_or(Effort::kHigh);
    if (Is41()) {
      const int percent = conversation_.effort_percent.value_or(effort == Effort::kLow   ? 50
                                                                : effort == Effort::kMax ? 100
                                                                                         : 75);
      const Template text = SplitTemplate(Texts().effort_percent, "{n}");
      prompt_.Add(text.before);
      prompt_.Add(fmt::to_string(percent));
      prompt_.Add(text.after);
    } else if (effort != Effort::kLow) {
      prompt_.Add(effort == Effort::kMax ? Texts().effort_max_v4 : Texts().effort_high_v4);
    }
  }

  void RenderSystem(const Message& message, bool first) {
    if (Is41() && !first) prompt_.Add(Control::kSystem);
    prompt_.Add(message.content);
    if (first) {
      if (ToolsActive()) RenderTools();
      RenderFormat();
    }
    if (Is41() && !message.tools.empty()) {
      prompt_.Add("\n\n### Updated Tool Schemas\n\n");
      prompt_.Add(SchemaLines(message.tools));
    }
  }

  std::string SchemaLines(const std::vector<ToolDefinition>& tools) const {
    const JsonForm form = PromptForm(version_);
    std::string lines;
    for (const ToolDefinition& tool : tools) {
      if (!lines.empty()) lines += '\n';
      lines += "{\"name\": ";
      AppendJsonString(tool.name, /*ascii_only=*/false, &lines);
      lines += ", \"description\": ";
      AppendJsonString(tool.description.value_or(""), /*ascii_only=*/false, &lines);
      lines += ", \"parameters\": ";
      if (tool.parameters.IsNull()) {
        lines += "{}";
      } else {
        AppendPromptJson(tool.parameters, form, &lines);
      }
      lines += '}';
    }
    return lines;
  }

  void RenderTools() {
    std::vector<ToolDefinition> listed;
    for (const ToolDefinition& tool : conversation_.tools) {
      if (Listed(tool)) listed.push_back(tool);
    }
    const Template text = SplitTemplate(Is41() ? Texts().tools_v41 : Texts().tools_v4, "{schemas}");
    prompt_.Add(kBlankLine);
    AddProse(text.before, &prompt_);
    prompt_.Add(SchemaLines(listed));
    // In V4's text each schema brings its own line feed, so an empty list leaves one less.
    AddProse(!Is41() && listed.empty() ? text.after.substr(1) : text.after, &prompt_);
  }

  void RenderFormat() {
    const ResponseFormat& format = conversation_.format;
    if (!HasFormatText()) return;
    if (format.kind == FormatKind::kJsonObject && !Is41()) {
      prompt_.Add(Texts().response_format_v4_json_object);
      return;
    }
    const Template text = SplitTemplate(Texts().response_format, "{schema}");
    prompt_.Add(text.before);
    prompt_.Add(format.kind == FormatKind::kJsonObject ? R"({"type": "json_object"})"
                                                       : WritePromptJson(format.schema, PromptForm(version_)));
    prompt_.Add(text.after);
  }

  // User texts and tool results in a row share one user token.
  void RenderTurnOpening(const Message& message, const Message* before) {
    bool same_turn = before != nullptr && (before->role == Role::kUser || before->role == Role::kTool);
    if (!Is41() && same_turn && before->role == Role::kUser && message.role == Role::kTool) same_turn = false;
    if (same_turn) {
      prompt_.Add(kBlankLine);
    } else {
      prompt_.Add(Control::kUser);
    }
  }

  bool OpensCalls() const {
    return conversation_.tool_choice == ToolChoice::kRequired && ToolsActive() && !conversation_.calls_after_thinking;
  }

  bool KeepsReasoning(const Message& message, bool first) const {
    // Requests have the field exactly when thinking is on; V4 has always gone by the field.
    const bool thinking = Is41() ? conversation_.thinking && !first : message.reasoning.has_value();
    return thinking && (ToolsActive() || message.prefix);
  }

  void RenderAssistant(const Message& message, const Message* before, bool last) {
    const bool answers_task = before != nullptr && before->task != Task::kNone;
    if (!answers_task) {
      prompt_.Add(Control::kAssistant);
      const bool kept = KeepsReasoning(message, before == nullptr);
      if (kept) {
        prompt_.Add(Control::kThinkStart);
        prompt_.AddGrounded(message.reasoning.value_or(""));
      }
      // A prefix without content goes on thinking.
      const bool goes_on = message.prefix && conversation_.thinking && message.content.text.empty() &&
                           message.tool_calls.empty() && (kept || !Is41());
      if (!goes_on) prompt_.Add(Control::kThinkEnd);
    }
    prompt_.AddGrounded(message.content.text);
    if (!message.tool_calls.empty()) RenderCalls(message.tool_calls, version_, &prompt_);
    if (message.prefix && (Is41() || last)) return;
    prompt_.Add(Control::kEos);
    RenderTask(message);
  }

  void RenderTask(const Message& message) {
    switch (message.task) {
      case Task::kNone:
        return;
      case Task::kAction:
        RenderHeader();
        prompt_.Add(Control::kAction);
        return;
      case Task::kQuery:
        prompt_.Add(Control::kQuery);
        return;
      case Task::kAuthority:
        prompt_.Add(Control::kAuthority);
        return;
      case Task::kDomain:
        prompt_.Add(Control::kDomain);
        return;
      case Task::kTitle:
        prompt_.Add(Control::kTitle);
        return;
      case Task::kReadUrl:
        prompt_.Add(Control::kExtractedUrl);
        prompt_.Add(message.task_url);
        prompt_.Add(Control::kReadUrl);
        return;
    }
  }

  void RenderHeader() {
    prompt_.Add(Control::kAssistant);
    prompt_.Add(conversation_.thinking ? Control::kThinkStart : Control::kThinkEnd);
  }

  const Conversation& conversation_;
  ModelVersion version_;
  Prompt prompt_;
};

}  // namespace

Prompt RenderConversation(const Conversation& conversation, ModelVersion version) {
  return Renderer(conversation, version).Render();
}

}  // namespace deepinfer::recipe
