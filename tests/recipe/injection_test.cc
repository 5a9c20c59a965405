// SPDX-License-Identifier: Apache-2.0
// Properties: (1) which control tokens a prompt has depends on the shape of the conversation alone, never on its texts,
// however control tokens are spelled in them; (2) the ids have exactly the control ids that the segments say;
// (3) decoding the ids gives the prompt's text. Method: conversations of every shape whose texts are drawn from all
// spellings in the tokenizer's added vocabulary, pieces of them, and look-alikes; the request vectors' bodies with such
// texts put in place of all their strings.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "core/utf8.h"
#include "recipe/encode.h"
#include "recipe/parse_request.h"
#include "recipe/prompt_json.h"
#include "recipe/render.h"
#include "tests/recipe/vector_check.h"

namespace deepinfer::recipe {
namespace {

class TextSource {
 public:
  TextSource(const Tokenizer& tokenizer, unsigned seed) : random_(seed) {
    for (const AddedToken& token : tokenizer.added_tokens()) {
      // Grounding spellings are tokens in the assistant's own text, by design.
      if (!FindGrounding(token.content, 0)) spellings_.push_back(token.content);
    }
  }

  std::string Next() {
    std::string text;
    for (int n = 1 + static_cast<int>(random_() % 4); n > 0; --n) {
      const std::string& spelling = spellings_[random_() % spellings_.size()];
      switch (random_() % 6) {
        case 0:
          text += spelling.substr(0, random_() % (spelling.size() + 1));
          break;
        case 1:
          text += spelling.substr(random_() % (spelling.size() + 1));
          break;
        case 2:
          text += "plain words, 12345 日本";
          break;
        default:
          text += spelling;
      }
      if (random_() % 3 == 0) text += "\n\n";
    }
    // Cutting anywhere may leave part of a character, which no request has.
    std::string valid;
    for (size_t i = 0; i < text.size();) {
      const Utf8Char c = DecodeUtf8(std::string_view(text).substr(i));
      if (c.valid) valid += text.substr(i, c.size);
      i += c.size;
    }
    return valid;
  }

 private:
  std::mt19937 random_;
  std::vector<std::string> spellings_;
};

std::vector<Control> ControlsOf(const Prompt& prompt) {
  std::vector<Control> controls;
  for (const Segment& segment : prompt.segments()) {
    if (segment.control) controls.push_back(*segment.control);
  }
  return controls;
}

class Injection : public testing::Test {
 protected:
  void SetUp() override {
    const auto tokenizer = Tokenizer::Load(DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    const auto encoder = PromptEncoder::Make(*tokenizer);
    ASSERT_TRUE(encoder.ok()) << encoder.status().message();
    encoder_ = *encoder;
  }

  void CheckIds(const Prompt& prompt) const {
    const auto ids = encoder_->Encode(prompt);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    std::vector<TokenId> expected;
    for (const Control control : ControlsOf(prompt)) expected.push_back(*encoder_->Id(control));
    std::vector<TokenId> found;
    std::copy_if(ids->begin(), ids->end(), std::back_inserter(found),
                 [&](TokenId id) { return encoder_->tokenizer().IsAdded(id); });
    EXPECT_EQ(found, expected) << prompt.Text();
    EXPECT_EQ(encoder_->tokenizer().Decode(*ids), prompt.Text());
  }

  std::shared_ptr<PromptEncoder> encoder_;
};

Conversation MakeConversation(unsigned shape, const std::function<std::string()>& text) {
  Conversation conversation;
  conversation.thinking = (shape & 1) != 0;
  if ((shape & 2) != 0) {
    ToolDefinition tool;
    tool.name = text();
    tool.description = text();
    tool.parameters = Json(Json::Object{{text(), Json(text())}});
    conversation.tools.push_back(std::move(tool));
  }
  if ((shape & 4) != 0) {
    conversation.format.kind = FormatKind::kJsonSchema;
    conversation.format.schema = Json(Json::Object{{text(), Json(text())}});
  }
  conversation.messages.emplace_back(Role::kSystem, Content(text()));
  conversation.messages.emplace_back(Role::kLatestReminder, Content(text()));
  conversation.messages.emplace_back(Role::kUser, Content(text()));
  Message assistant(Role::kAssistant, Content(text()));
  assistant.reasoning = text();
  const std::string arguments = (shape & 8) != 0
                                    ? text()
                                    : WriteJson(Json(Json::Object{{"k" + text(), Json(text())},
                                                                  {"l" + text(), Json(Json::Array{Json(text())})}}),
                                                {.ascii_only = true});
  assistant.tool_calls.push_back({"c", text(), arguments});
  conversation.messages.push_back(std::move(assistant));
  Message result(Role::kTool, Content(text()));
  result.tool_call_id = "c";
  conversation.messages.push_back(std::move(result));
  return conversation;
}

TEST_F(Injection, ControlTokensDependOnTheShapeAlone) {
  TextSource source(encoder_->tokenizer(), 3);
  for (int i = 0; i < 4'000; ++i) {
    const auto shape = static_cast<unsigned>(i) % 16;
    const ModelVersion version = i % 3 == 0 ? ModelVersion::kV4 : ModelVersion::kV41;
    // The same shape with harmless texts; "x" is no JSON, as no spelling is.
    const Prompt plain = RenderConversation(MakeConversation(shape, [] { return std::string("x"); }), version);
    const Prompt hostile = RenderConversation(MakeConversation(shape, [&] { return source.Next(); }), version);
    ASSERT_EQ(ControlsOf(hostile), ControlsOf(plain)) << hostile.Text();
    CheckIds(hostile);
  }
}

// Appends a hostile text to every string of the body that reaches the prompt.
void Poison(Json* value, TextSource* source) {
  if (value->IsString()) return;
  if (value->IsArray()) {
    for (Json& item : value->Items()) Poison(&item, source);
  } else if (value->IsObject()) {
    for (auto& [key, member] : value->Members()) {
      const bool is_text = key == "content" || key == "text" || key == "description" || key == "output" ||
                           key == "instructions" || key == "input" || key == "thinking" || key == "system" ||
                           key == "reasoning_content";
      if (is_text && member.IsString()) member = Json(member.AsString() + source->Next());
      Poison(&member, source);
    }
  }
}

TEST_F(Injection, RequestBodiesWithHostileTexts) {
  const auto lines = ReadLines(DI_SOURCE_DIR "/tests/golden/recipe/requests.jsonl.xz");
  ASSERT_TRUE(lines.ok());
  TextSource source(encoder_->tokenizer(), 5);
  int num_checked = 0;
  for (const std::string& line : *lines) {
    const auto record = ParseJson(line);
    ASSERT_TRUE(record.ok());
    const Json* const body = record->Find("body");
    const std::string protocol = record->Find("protocol")->AsString();
    if (body == nullptr || !record->Find("ok")->AsBool()) continue;
    auto poisoned = ParseJson(body->AsString());
    ASSERT_TRUE(poisoned.ok());
    Poison(&*poisoned, &source);
    const auto request = ParseRequest(protocol == "chat"        ? Protocol::kChat
                                      : protocol == "responses" ? Protocol::kResponses
                                                                : Protocol::kMessages,
                                      WriteJson(*poisoned, {.ascii_only = num_checked % 2 == 0}), RecipeOptions());
    if (!request.ok()) continue;  // "type": "text" is text too, for this poison
    CheckIds(RenderRequest(*request));
    ++num_checked;
  }
  EXPECT_GT(num_checked, 1'000);
}

}  // namespace
}  // namespace deepinfer::recipe
