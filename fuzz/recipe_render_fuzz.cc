// SPDX-License-Identifier: Apache-2.0
// Any bytes as the texts of a conversation: its control tokens are those of the same conversation with harmless texts,
// whatever the texts are. Bytes before the first 0xFF pick the shape, texts are separated by 0xFF.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/utf8.h"
#include "recipe/render.h"

namespace deepinfer::recipe {
namespace {

std::vector<Control> ControlsOf(const Conversation& conversation, ModelVersion version) {
  std::vector<Control> controls;
  const Prompt prompt = RenderConversation(conversation, version);
  for (const Segment& segment : prompt.segments()) {
    if (segment.control) controls.push_back(*segment.control);
  }
  return controls;
}

// Valid UTF-8 without grounding spellings, which are tokens in the assistant's own text by design.
std::string Clean(std::string text) {
  std::string valid;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(std::string_view(text).substr(i));
    if (c.valid) valid += text.substr(i, c.size);
    i += c.size;
  }
  while (const auto match = FindGrounding(valid, 0)) valid.erase(match->position, 1);
  return valid;
}

struct Shape {
  std::vector<uint8_t> roles;
  bool thinking = false;
  bool tools = false;
  bool schema = false;
};

Conversation Build(const Shape& shape, const std::function<std::string()>& text) {
  Conversation conversation;
  conversation.thinking = shape.thinking;
  if (shape.tools) {
    ToolDefinition tool;
    tool.name = text();
    tool.description = text();
    tool.parameters = Json(Json::Object{{text(), Json(text())}});
    conversation.tools.push_back(std::move(tool));
  }
  if (shape.schema) {
    conversation.format.kind = FormatKind::kJsonSchema;
    conversation.format.schema = Json(Json::Object{{text(), Json(text())}});
  }
  for (const uint8_t role : shape.roles) {
    Message message(static_cast<Role>(role % 5), Content("." + text()));
    if (message.role == Role::kAssistant) {
      message.reasoning = text();
      if ((role & 64) != 0) {
        message.tool_calls.push_back({"c", text(), WriteJson(Json(Json::Object{{"k", Json(text())}}))});
      }
    }
    message.tool_call_id = "c";
    conversation.messages.push_back(std::move(message));
  }
  return conversation;
}

void Run(const uint8_t* data, size_t size) {
  FuzzedDataProvider provider(data, size);
  Shape shape;
  shape.thinking = provider.ConsumeBool();
  shape.tools = provider.ConsumeBool();
  shape.schema = provider.ConsumeBool();
  const ModelVersion version = provider.ConsumeBool() ? ModelVersion::kV4 : ModelVersion::kV41;
  for (int n = provider.ConsumeIntegralInRange(0, 8); n > 0; --n) {
    shape.roles.push_back(provider.ConsumeIntegral<uint8_t>());
  }
  const Conversation hostile = Build(shape, [&] { return Clean(provider.ConsumeRandomLengthString(200)); });
  const Conversation plain = Build(shape, [] { return std::string("x"); });
  DI_CHECK(ControlsOf(hostile, version) == ControlsOf(plain, version));
}

}  // namespace
}  // namespace deepinfer::recipe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  deepinfer::recipe::Run(data, size);
  return 0;
}
