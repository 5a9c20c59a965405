// SPDX-License-Identifier: Apache-2.0
// The public interface: several prompts of one request, log-probabilities, stored conversations, usage that does not depend
// on how the tokens were cut. Method: requests through Recipe with the bundled tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "deepinfer/recipe.h"

namespace deepinfer::recipe {
namespace {

using testing::HasSubstr;

const Recipe& Bundled() {
  static const std::shared_ptr<const Recipe> recipe = [] {
    std::string why;
    auto loaded = Recipe::Load(DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json", {.default_store = true}, &why);
    EXPECT_NE(loaded, nullptr) << why;
    return loaded;
  }();
  return *recipe;
}

std::shared_ptr<const PreparedRequest> Prepare(Protocol protocol, const std::string& body,
                                               const EarlierItemsFn& earlier = {}) {
  RequestError error;
  auto request = Bundled().Prepare(protocol, body, &error, earlier);
  EXPECT_NE(request, nullptr) << error.body;
  return request;
}

TEST(RecipeApi, SeveralPromptsEachWithItsChoices) {
  const auto request = Prepare(Protocol::kCompletions, R"({"model":"m","prompt":["one","two"],"n":2,"echo":true})");
  ASSERT_EQ(request->prompts().size(), 2U);
  const auto answer = Bundled().Answer(request, {.id = "cmpl-1", .model = "m", .prompt_tokens = 7});
  ASSERT_EQ(answer->num_choices(), 4);
  for (int choice = 0; choice < 4; ++choice) {
    EXPECT_TRUE(answer->PushTokens(choice, Bundled().Tokenize(" x" + std::to_string(choice)), {}, nullptr));
    EXPECT_TRUE(answer->Finish(choice, FinishKind::kLength, nullptr));
  }
  const auto body = ParseJson(answer->Body());
  ASSERT_TRUE(body.ok());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body->Find("choices")->Items()[i].Find("text")->AsString(),
              (i < 2 ? "one" : "two") + std::string(" x") + std::to_string(i));
  }
  RequestError error;
  std::string many = R"({"model":"m","prompt":["a")";
  for (int i = 0; i < 9; ++i) many += R"(,"a")";
  EXPECT_EQ(Bundled().Prepare(Protocol::kCompletions, many + R"(],"n":128})", &error), nullptr);
  EXPECT_THAT(error.message, HasSubstr("1024"));
}

TEST(RecipeApi, LogprobsStreamedAndWhole) {
  const std::string fields = R"({"model":"m","messages":[{"role":"user","content":"q"}],"logprobs":true,"top_logprobs":1,)"
                             R"("thinking":{"type":"disabled"},"stream":)";
  const std::vector<int32_t> ids = Bundled().Tokenize("Hello there");
  ASSERT_GT(ids.size(), 1U);
  std::vector<TokenCandidate> tops(ids.size());
  std::vector<TokenScore> scores;
  for (size_t i = 0; i < ids.size(); ++i) {
    tops[i] = {.id = ids[i], .logprob = -0.25F};
    scores.push_back({.logprob = -0.5F, .top = std::span(&tops[i], 1)});
  }
  const auto whole = Bundled().Answer(Prepare(Protocol::kChat, fields + "false}"), {.id = "c", .model = "m"});
  EXPECT_TRUE(whole->PushTokens(0, ids, scores, nullptr));
  EXPECT_TRUE(whole->Finish(0, FinishKind::kStop, nullptr));
  const auto body = ParseJson(whole->Body());
  ASSERT_TRUE(body.ok());
  const Json& entries = *body->Find("choices")->Items()[0].Find("logprobs")->Find("content");
  ASSERT_EQ(entries.Items().size(), ids.size());
  EXPECT_EQ(entries.Items()[0].Find("logprob")->ToDouble(), -0.5);
  EXPECT_EQ(entries.Items()[0].Find("top_logprobs")->Items()[0].Find("logprob")->ToDouble(), -0.25);

  const auto stream = Bundled().Answer(Prepare(Protocol::kChat, fields + "true}"), {.id = "c", .model = "m"});
  std::string sse;
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_TRUE(stream->PushTokens(0, std::span(&ids[i], 1), std::span(&scores[i], 1), &sse));
  }
  EXPECT_TRUE(stream->Finish(0, FinishKind::kStop, &sse));
  for (const Json& entry : entries.Items()) EXPECT_THAT(sse, HasSubstr(WriteJson(entry)));
}

TEST(RecipeApi, EarlierItemsComeFirst) {
  const auto first = Prepare(Protocol::kResponses, R"({"model":"m","input":"my name is Ann"})");
  EXPECT_TRUE(first->store());
  EXPECT_EQ(first->input_items(), R"([{"type":"message","role":"user","content":"my name is Ann"}])");
  const EarlierItemsFn earlier = [&](std::string_view id) -> std::optional<std::string> {
    if (id != "resp_1") return std::nullopt;
    return R"([{"role":"user","content":"my name is Ann"},{"type":"message","role":"assistant","content":"Hi Ann"}])";
  };
  const auto second =
      Prepare(Protocol::kResponses, R"({"model":"m","input":"who am I?","previous_response_id":"resp_1"})", earlier);
  const auto spelled = Prepare(Protocol::kResponses,
                               R"({"model":"m","input":[{"role":"user","content":"my name is Ann"},{"role":"assistant",)"
                               R"("content":"Hi Ann"},{"role":"user","content":"who am I?"}]})");
  EXPECT_EQ(second->ids(), spelled->ids());
  RequestError error;
  EXPECT_EQ(Bundled().Prepare(Protocol::kResponses, R"({"model":"m","input":"x","previous_response_id":"resp_9"})", &error,
                              earlier),
            nullptr);
  EXPECT_EQ(error.http_status, 400);
  EXPECT_THAT(error.body, HasSubstr(R"("param":"previous_response_id","code":"previous_response_not_found")"));
}

// Usage and text are the same however the tokens were cut, where a stop sequence, one call or a JSON value ends the answer;
// what was generated behind the end does not count. Before min_tokens no stop sequence acts.
TEST(RecipeApi, UsageDoesNotDependOnCuts) {
  const std::vector<int32_t> ids = Bundled().Tokenize("a b STOP c d STOP e f");
  const auto run = [&](const std::string& fields, size_t step) {
    const auto answer = Bundled().Answer(
        Prepare(Protocol::kCompletions, R"({"model":"m","prompt":"q","stop":"STOP",)" + fields + "}"), {.id = "c", .model = "m"});
    for (size_t i = 0; i < ids.size() && !answer->done(0); i += step) {
      EXPECT_TRUE(answer->PushTokens(0, std::span(ids).subspan(i, std::min(step, ids.size() - i)), {}, nullptr));
    }
    EXPECT_TRUE(answer->done(0));
    EXPECT_TRUE(answer->Finish(0, FinishKind::kStop, nullptr));
    return answer->Body();
  };
  const std::string once = run(R"("max_tokens":50)", 1);
  EXPECT_THAT(once, HasSubstr(R"("text":"a b ")"));
  const std::string later = run(R"("max_tokens":50,"min_tokens":9)", 1);
  EXPECT_THAT(later, HasSubstr(R"("text":"a b STOP c d ")"));
  for (const size_t step : {2, 3, 100}) {
    EXPECT_EQ(run(R"("max_tokens":50)", step), once);
    EXPECT_EQ(run(R"("max_tokens":50,"min_tokens":9)", step), later);
  }
}

TEST(RecipeApi, FailuresEndTheAnswerInItsOwnShape) {
  const auto fail = [](Protocol protocol, const std::string& body) {
    const auto answer = Bundled().Answer(Prepare(protocol, body), {.id = "r", .model = "m"});
    std::string sse;
    EXPECT_TRUE(answer->PushTokens(0, Bundled().Tokenize("x"), {}, &sse));
    answer->Fail(FailureKind::kDeadline, "too late", &sse);
    EXPECT_FALSE(answer->PushTokens(0, Bundled().Tokenize("x"), {}, &sse));
    return sse;
  };
  const std::string messages = R"("messages":[{"role":"user","content":"q"}],"max_tokens":9,"stream":true})";
  EXPECT_THAT(fail(Protocol::kChat, R"({"model":"m",)" + messages), HasSubstr(R"(data: {"error":{"message":"too late")"));
  EXPECT_THAT(fail(Protocol::kMessages, R"({"model":"m",)" + messages),
              HasSubstr("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"timeout_error\""));
  EXPECT_THAT(fail(Protocol::kResponses, R"({"model":"m","input":"q","stream":true})"), HasSubstr("event: response.failed"));
}

TEST(RecipeApi, TokenizeAndBack) {
  const std::string text = "Hello <｜User｜> 😀";
  EXPECT_EQ(Bundled().Detokenize(Bundled().Tokenize(text)), text);
  EXPECT_EQ(Bundled().Detokenize(std::vector<int32_t>{-1, 1 << 30}), "");
}

}  // namespace
}  // namespace deepinfer::recipe
