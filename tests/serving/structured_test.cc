// SPDX-License-Identifier: Apache-2.0
// Property: requests with formats and strict tools, from their JSON through recipe, builder and engine, give answers that
// match what was asked for. tools/grammar/model_answers.py does the same with 200 requests and the jsonschema package.
#include <gtest/gtest.h>

#include "core/json.h"
#include "deepinfer/grammar.h"
#include "engine/batch_engine.h"
#include "serving/request_builder.h"

namespace deepinfer::serving {
namespace {

constexpr const char* kSchema = R"({"type":"object","properties":{"name":{"type":"string","maxLength":20},"sizes":{"type":"array",
    "items":{"type":"integer","minimum":-5,"maximum":5},"minItems":2,"maxItems":4},"of":{"$ref":"#/$defs/of"}},
    "required":["name","sizes"],"additionalProperties":false,"$defs":{"of":{"enum":["a","b",null]}}})";

class StructuredTest : public ::testing::Test {
 protected:
  StructuredTest() {
    const std::string model = DI_SOURCE_DIR "/models/deepseek-v41-tiny";
    EngineOptions options{.model_directory = model, .num_threads = 2};
    options.context_max = 2048;
    options.own_thread = false;
    std::string why;
    engine_ = Engine::Open(options, &why);
    EXPECT_NE(engine_, nullptr) << why;
    recipe_ = recipe::Recipe::Load(model + "/tokenizer.json", {}, &why);
    EXPECT_NE(recipe_, nullptr) << why;
    builder_ = std::make_unique<RequestBuilder>(*engine_);
  }

  // The whole answer's body.
  Json Answer(recipe::Protocol protocol, const std::string& body) {
    recipe::RequestError error;
    const auto prepared = recipe_->Prepare(protocol, body, &error);
    EXPECT_NE(prepared, nullptr) << error.message;
    if (prepared == nullptr) return {};
    const auto built = builder_->Build(*prepared);
    EXPECT_TRUE(built.ok()) << built.status().message();
    if (!built.ok()) return {};
    const auto answer = recipe_->Answer(prepared, {.id = "x", .model = "m"});
    const auto consume = [&](const Output& output) {
      if (output.token >= 0 && !output.is_end_token && !answer->done(output.choice)) {
        answer->PushTokens(output.choice, {&output.token, 1}, {}, nullptr);
      }
      if (!output.finished) return;
      EXPECT_NE(output.reason, FinishReason::kError) << output.error;
      const bool cut = output.reason == FinishReason::kLength;
      answer->Finish(output.choice, cut ? recipe::FinishKind::kLength : recipe::FinishKind::kStop, nullptr);
    };
    std::string why;
    EXPECT_NE(engine_->Submit((*built)[0], consume, &why), 0u) << why;
    while (engine_->Step()) {
    }
    return *ParseJson(answer->Body());
  }

  void ExpectValid(std::string_view document) {
    grammar::CompileOptions any;
    any.key_order = grammar::KeyOrder::kFree;
    const auto compiled = grammar::Compile(grammar::Constraint::JsonSchema(kSchema), engine_->grammar_vocabulary(), any);
    ASSERT_TRUE(compiled.ok()) << compiled.status().message();
    grammar::Matcher matcher(*compiled);
    EXPECT_TRUE(matcher.AcceptBytes(document).ok() && matcher.IsComplete()) << document;
  }

  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const recipe::Recipe> recipe_;
  std::unique_ptr<RequestBuilder> builder_;
};

TEST_F(StructuredTest, FormatsAreKept) {
  for (int seed = 0; seed < 4; ++seed) {
    const Json body = Answer(recipe::Protocol::kChat, R"({"model":"m","thinking":{"type":"disabled"},"max_tokens":400,"n":2,"seed":)" +
                                                          std::to_string(seed) + R"(,"messages":[{"role":"user","content":"x"}],
        "response_format":{"type":"json_schema","json_schema":{"name":"t","schema":)" + kSchema + "}}}");
    for (const Json& choice : body.Find("choices")->Items()) {
      EXPECT_EQ(choice.Find("finish_reason")->AsString(), "stop");
      ExpectValid(choice.Find("message")->Find("content")->AsString());
    }
  }
}

TEST_F(StructuredTest, APrefixCountsAsRead) {
  const Json body = Answer(recipe::Protocol::kChat, R"({"model":"m","thinking":{"type":"disabled"},"max_tokens":400,"messages":[
      {"role":"user","content":"x"},{"role":"assistant","content":"{\"name\": \"Ann","prefix":true}],"guided_json":)" +
                                                        std::string(kSchema) + "}");
  ExpectValid("{\"name\": \"Ann" + body.Find("choices")->Items()[0].Find("message")->Find("content")->AsString());
}

TEST_F(StructuredTest, StrictCallsFollowTheirSchema) {
  for (const char* choice : {R"({"type":"any"})", R"({"type":"tool","name":"submit"})"}) {
    const Json body = Answer(recipe::Protocol::kMessages, R"({"model":"m","thinking":{"type":"disabled"},"max_tokens":400,"messages":[
        {"role":"user","content":"x"}],"tools":[{"name":"submit","strict":true,"input_schema":)" +
                                                              std::string(kSchema) + R"(}],"tool_choice":)" + choice + "}");
    EXPECT_EQ(body.Find("malformed_tool_calls"), nullptr);
    EXPECT_EQ(body.Find("stop_reason")->AsString(), "tool_use");
    for (const Json& part : body.Find("content")->Items()) ExpectValid(WriteJson(*part.Find("input")));
  }
}

TEST_F(StructuredTest, B34AToolWithoutParametersIsCalledAtOnce) {
  const Json body = Answer(recipe::Protocol::kChat, R"({"model":"m","thinking":{"type":"disabled"},"max_tokens":40,"messages":[
      {"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"now"}}],"tool_choice":"required",
      "parallel_tool_calls":false})");
  const Json& choice = body.Find("choices")->Items()[0];
  EXPECT_EQ(choice.Find("finish_reason")->AsString(), "tool_calls");
  const Json::Array& calls = choice.Find("message")->Find("tool_calls")->Items();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].Find("function")->Find("arguments")->AsString(), "{}");
}

TEST_F(StructuredTest, RefusedWithTheField) {
  recipe::RequestError error;
  const auto prepared = recipe_->Prepare(recipe::Protocol::kChat, R"re({"model":"m","messages":[{"role":"user","content":"x"}],
      "guided_regex":"(?<=a)b"})re", &error);
  ASSERT_NE(prepared, nullptr) << error.message;
  const auto built = builder_->Build(*prepared);
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(built.status().message().rfind("/guided_regex: ", 0), 0u) << built.status().message();
}

}  // namespace
}  // namespace deepinfer::serving
