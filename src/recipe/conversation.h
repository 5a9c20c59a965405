// SPDX-License-Identifier: Apache-2.0
// The conversation: what requests of all protocols are lowered to, and all that the prompt is rendered from.
// Plain values: no shared state, copy and move freely; const use from many threads is safe.
// Every string here is untrusted (it comes from a request) unless its comment says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"

namespace deepinfer::recipe {

// Which prompt format, and with it which control tokens.
enum class ModelVersion { kV4, kV41 };

enum class Role { kSystem, kUser, kAssistant, kTool, kLatestReminder };

enum class ImageDetail { kHigh, kLow, kOriginal, kAuto };

struct Image {
  enum class Kind { kUrl, kDataUrl };
  size_t offset = 0;  // it stands before this byte of its Content's text; ascending within a Content
  Kind kind = Kind::kUrl;
  std::string source;  // an http(s) URL, or "data:image/png;base64,...", as the request spelled it
  ImageDetail detail = ImageDetail::kHigh;
  std::string path;  // JSON pointer of the part in the request, for errors

  bool operator==(const Image&) const = default;
};

// Text with images at byte offsets. The placeholder of an image is no part of `text`: text that spells a placeholder
// is text.
struct Content {
  std::string text;
  std::vector<Image> images;

  Content() = default;
  explicit Content(std::string content) : text(std::move(content)) {}
  bool operator==(const Content&) const = default;

  // Appends `separator` and `other`; the images of `other` move along.
  void Append(std::string_view separator, Content other);
};

struct ToolDefinition {
  std::string name;  // as rendered: a tool of a Responses namespace is "namespace::tool"
  std::optional<std::string> description;
  Json parameters;  // JSON Schema; null where the request has none
  std::optional<bool> strict;
  bool deferred = false;  // not listed at the top; a later system message makes it available

  bool operator==(const ToolDefinition&) const = default;
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // a JSON object as text, unchecked

  bool operator==(const ToolCall&) const = default;
};

// A quick task of the model family: the answer to the message that carries it is one search query, one title, ...
enum class Task { kNone, kAction, kQuery, kAuthority, kDomain, kTitle, kReadUrl };

struct Message {
  Role role = Role::kUser;
  Content content;

  // kAssistant only.
  std::optional<std::string> reasoning;
  std::vector<ToolCall> tool_calls;
  bool prefix = false;  // the last message is continued instead of answered

  // kTool only.
  std::string tool_call_id;

  // kSystem only: deferred tools that become available here.
  std::vector<ToolDefinition> tools;

  // Default profile only. kUser, and kAssistant for kTitle.
  Task task = Task::kNone;
  std::string task_url;  // kReadUrl: the page

  Message() = default;
  explicit Message(Role message_role, Content message_content = {})
      : role(message_role), content(std::move(message_content)) {}

  bool operator==(const Message&) const = default;
};

enum class ToolChoice { kAuto, kNone, kRequired };

enum class Effort { kLow, kHigh, kXhigh, kMax };

enum class FormatKind { kText, kJsonObject, kJsonSchema, kRegex };

struct ResponseFormat {
  FormatKind kind = FormatKind::kText;
  Json schema;        // kJsonSchema: as the request gave it
  std::string regex;  // kRegex

  bool operator==(const ResponseFormat&) const = default;
};

struct Conversation {
  std::vector<Message> messages;
  bool thinking = true;
  std::optional<Effort> effort;       // none when thinking is off
  std::optional<int> effort_percent;  // 1..100, in place of `effort` (V4.1, default profile)
  std::vector<ToolDefinition> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  // kRequired: the answer thinks first and calls then (default profile). Otherwise the prompt itself opens the call.
  bool calls_after_thinking = false;
  ResponseFormat format;

  bool operator==(const Conversation&) const = default;
};

}  // namespace deepinfer::recipe
