// SPDX-License-Identifier: Apache-2.0
// Endpoints over a scripted engine: streamed and whole answers agree, ends and failures reach the client in its protocol's
// shape, and what a client gives up the engine gives up. Cases of the bug list by number.
#include <gmock/gmock.h>

#include "server/api/api_fixture.h"

namespace deepinfer::server {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kUser = R"("messages":[{"role":"user","content":"q"}],"thinking":{"type":"disabled"})";

std::string Chat(const std::string& more) { return R"({"model":"m",)" + kUser + more + "}"; }

std::string ChatText(const std::vector<Json>& events, int choice, const std::string& field = "content") {
  std::string text;
  for (const Json& event : events) {
    if (NumberAt(event, "choices/0/index") != choice) continue;
    const Json delta = At(event, "choices/0/delta/" + field);
    if (delta.IsString()) text += delta.AsString();
  }
  return text;
}

class ApiTest : public ApiFixture {};

TEST_F(ApiTest, ChatStreamedAndWholeAgree) {
  const Json whole = Do("POST", "/v1/chat/completions", Chat(R"(,"n":2,"logprobs":true,"top_logprobs":1,"stop":"there")"))->WaitJson();
  const auto events = EventsOf(
      Do("POST", "/v1/chat/completions",
         Chat(R"(,"n":2,"logprobs":true,"top_logprobs":1,"stop":"there","stream":true,"stream_options":{"include_usage":true})"))
          ->Wait());
  EXPECT_EQ(TextAt(whole, "choices/0/message/content"), "Hello ");
  for (int choice = 0; choice < 2; ++choice) {
    EXPECT_EQ(ChatText(events, choice), TextAt(whole, fmt::format("choices/{}/message/content", choice)));
  }
  EXPECT_EQ(WriteJson(At(events.back(), "usage")), WriteJson(At(whole, "usage")));
  EXPECT_EQ(At(events.back(), "choices").Items().size(), 0U);
  EXPECT_EQ(TextAt(whole, "choices/1/finish_reason"), "stop");
  EXPECT_EQ(TextAt(whole, "system_fingerprint"), api_->system_fingerprint());
  std::string entries;
  for (const Json& event : events) {
    const Json list = At(event, "choices/0/logprobs/content");
    if (!list.IsArray() || NumberAt(event, "choices/0/index") != 1) continue;
    for (const Json& entry : list.Items()) entries += WriteJson(entry) + ",";
  }
  std::string expected;
  const Json list_of_whole = At(whole, "choices/1/logprobs/content");
  for (const Json& entry : list_of_whole.Items()) expected += WriteJson(entry) + ",";
  EXPECT_EQ(entries, expected);
  EXPECT_EQ(engine_.num_open(), 0U);
}

TEST_F(ApiTest, MessagesTellCachedTokensOnce) {
  engine_.cached_tokens = 3;
  const std::string body = R"({"model":"m","max_tokens":50,)" + kUser;
  const Json whole = Do("POST", "/v1/messages", body + "}")->WaitJson();
  const auto events = EventsOf(Do("POST", "/v1/messages", body + R"(,"stream":true})")->Wait());
  EXPECT_EQ(TextAt(events[0], "type"), "message_start");
  EXPECT_EQ(NumberAt(events[0], "message/usage/cache_read_input_tokens"), 3);
  EXPECT_EQ(NumberAt(events[0], "message/usage/input_tokens"), NumberAt(whole, "usage/input_tokens"));
  EXPECT_EQ(NumberAt(whole, "usage/cache_read_input_tokens"), 3);
  EXPECT_EQ(WriteJson(At(events[events.size() - 2], "usage")), WriteJson(At(whole, "usage")));
  const int64_t prompt = static_cast<int64_t>(engine_.requests.back().prompt.size());
  EXPECT_EQ(NumberAt(whole, "usage/input_tokens") + 3, prompt);
  EXPECT_EQ(NumberAt(Do("POST", "/v1/messages/count_tokens", R"({"model":"m",)" + kUser + "}")->WaitJson(), "input_tokens"), prompt);
}

TEST_F(ApiTest, SeveralPromptsOfCompletions) {
  engine_.script = [&](const GenerationRequest& request, int choice) {
    return recipe_->Tokenize(fmt::format(" {}.{}", request.prompt.size(), choice));
  };
  const std::string body = R"({"model":"m","prompt":[[5],[5,6,7]],"n":2)";
  const Json whole = Do("POST", "/v1/completions", body + "}")->WaitJson();
  const auto events = EventsOf(Do("POST", "/v1/completions", body + R"(,"stream":true})")->Wait());
  for (int choice = 0; choice < 4; ++choice) {
    const std::string text = TextAt(whole, fmt::format("choices/{}/text", choice));
    EXPECT_EQ(text, fmt::format(" {}.{}", choice < 2 ? 2 : 4, choice % 2));
    std::string streamed;
    for (const Json& event : events) {
      if (NumberAt(event, "choices/0/index") == choice) streamed += TextAt(event, "choices/0/text");
    }
    EXPECT_EQ(streamed, text);
  }
  EXPECT_EQ(NumberAt(whole, "usage/prompt_tokens"), 6);
  // A queue with room for one of the two takes none.
  engine_.queue_max = 1;
  const auto refused = Begin("POST", "/v1/completions", body + "}");
  EXPECT_EQ(refused->status(), 429);
  engine_.RunAll();
  EXPECT_EQ(engine_.num_open(), 0U);
}

TEST_F(ApiTest, QueueFullIs429WithRetryAfter) {
  engine_.queue_max = 0;
  const auto chat = Do("POST", "/v1/chat/completions", Chat(R"(,"stream":true)"));
  EXPECT_EQ(chat->status(), 429);
  EXPECT_FALSE(chat->streams());
  ASSERT_NE(chat->Header("retry-after"), nullptr);
  EXPECT_GE(std::stoi(*chat->Header("retry-after")), 1);
  EXPECT_EQ(TextAt(chat->WaitJson(), "error/code"), "rate_limit_exceeded");
  const auto messages = Do("POST", "/v1/messages", R"({"model":"m","max_tokens":9,)" + kUser + "}");
  EXPECT_EQ(TextAt(messages->WaitJson(), "error/type"), "rate_limit_error");
  const auto responses = Do("POST", "/v1/responses", R"({"model":"m","input":"q"})");
  EXPECT_EQ(responses->status(), 429);
  EXPECT_EQ(api_->responses().count(), 0U);
}

TEST_F(ApiTest, AClientThatGoesAwayGivesItsRequestUp) {
  const auto client = Begin("POST", "/v1/chat/completions", Chat(R"(,"n":3,"stream":true)"));
  engine_.Step();
  client->GoAway();
  EXPECT_GE(engine_.cancels, 1);
  engine_.Step();
  EXPECT_EQ(engine_.num_open(), 0U);
}

TEST_F(ApiTest, AStopSequenceGivesOneChoiceUp) {
  engine_.script = [&](const GenerationRequest&, int choice) {
    return recipe_->Tokenize(choice == 1 ? "one END two three four five six seven" : "one two three four five six seven");
  };
  const auto client = Begin("POST", "/v1/chat/completions", Chat(R"(,"n":2,"stop":"END")"));
  // Steps wait for the pump here, so the cancel comes while the other choice runs.
  while (engine_.Step()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const Json answer = client->WaitJson();
  EXPECT_EQ(TextAt(answer, "choices/1/message/content"), "one ");
  EXPECT_EQ(TextAt(answer, "choices/0/message/content"), "one two three four five six seven");
  EXPECT_EQ(engine_.cancels, 1);
}

TEST_F(ApiTest, LimitsOfKeysAndDeadlines) {
  const auto key = std::make_shared<ApiKey>(ApiKey{.name = "k", .cache_salt = "salt", .max_tokens_max = 2, .deadline_ms_max = 500});
  const Json short_answer = Do("POST", "/v1/chat/completions", Chat(""), key)->WaitJson();
  EXPECT_EQ(TextAt(short_answer, "choices/0/finish_reason"), "length");
  EXPECT_EQ(NumberAt(short_answer, "usage/completion_tokens"), 2);
  EXPECT_EQ(engine_.requests.back().cache_salt, "salt");
  EXPECT_EQ(engine_.requests.back().deadline_ms, 500);
  const auto refused = Do("POST", "/v1/chat/completions", Chat(R"(,"max_tokens":3)"), key);
  EXPECT_EQ(refused->status(), 400);
  EXPECT_THAT(refused->Wait(), HasSubstr("limit of 2"));
  Do("POST", "/v1/chat/completions", Chat(""), key, {{"X-Request-Timeout-Ms", "100"}});
  EXPECT_EQ(engine_.requests.back().deadline_ms, 100);
  EXPECT_EQ(Do("POST", "/v1/chat/completions", Chat(""), key, {{"X-Request-Timeout-Ms", "soon"}})->status(), 400);
}

TEST_F(ApiTest, SeedIsDrawnOnceAndTold) {
  const auto drawn = Do("POST", "/v1/completions", R"({"model":"m","prompt":["a","b"]})");
  ASSERT_NE(drawn->Header("x-deepinfer-seed"), nullptr);
  const uint64_t seed = std::stoull(*drawn->Header("x-deepinfer-seed"));
  EXPECT_LT(seed, uint64_t{1} << 53);
  EXPECT_EQ(engine_.requests[0].seed, seed);
  EXPECT_EQ(engine_.requests[1].seed, seed);
  const auto given = Do("POST", "/v1/completions", R"({"model":"m","prompt":"a","seed":7,"stream":true})");
  EXPECT_EQ(*given->Header("x-deepinfer-seed"), "7");
}

TEST_F(ApiTest, ModelsAndNames) {
  const Json list = Do("GET", "/v1/models")->WaitJson();
  EXPECT_EQ(TextAt(list, "data/1/id"), "second");
  EXPECT_EQ(TextAt(list, "data/0/type"), "model");
  EXPECT_EQ(TextAt(Do("GET", "/v1/models/second")->WaitJson(), "id"), "second");
  const auto unknown = Do("GET", "/v1/models/third");
  EXPECT_EQ(unknown->status(), 404);
  EXPECT_THAT(unknown->Wait(), HasSubstr("m, second"));
  const auto chat = Do("POST", "/v1/chat/completions", R"({"model":"third",)" + kUser + "}");
  EXPECT_EQ(chat->status(), 404);
  EXPECT_EQ(TextAt(chat->WaitJson(), "error/code"), "model_not_found");
  EXPECT_THAT(chat->Wait(), HasSubstr("m, second"));
  const auto messages = Do("POST", "/v1/messages", R"({"model":"third","max_tokens":1,)" + kUser + "}");
  EXPECT_EQ(messages->status(), 404);
  EXPECT_EQ(TextAt(messages->WaitJson(), "error/type"), "not_found_error");
}

TEST_F(ApiTest, TokensThereAndBack) {
  const Json tokens =
      Do("POST", "/tokenize", R"({"prompt":"Hello there","add_special_tokens":false,"return_token_strs":true})")->WaitJson();
  const Json text = Do("POST", "/detokenize", R"({"tokens":)" + WriteJson(At(tokens, "tokens")) + "}")->WaitJson();
  EXPECT_EQ(TextAt(text, "prompt"), "Hello there");
  EXPECT_EQ(NumberAt(tokens, "count"), static_cast<int64_t>(At(tokens, "token_strs").Items().size()));
  const Json chat = Do("POST", "/tokenize", "{" + kUser + "}")->WaitJson();
  Do("POST", "/v1/chat/completions", Chat(""));
  EXPECT_EQ(NumberAt(chat, "count"), static_cast<int64_t>(engine_.requests.back().prompt.size()));
  for (const char* bad : {R"({"tokens":[-1]})", R"({"tokens":["a"]})", R"({"tokens":7})", "{}", "[]", ""}) {
    EXPECT_EQ(Do("POST", "/detokenize", bad)->status(), 400) << bad;
  }
  EXPECT_EQ(Do("POST", "/tokenize", R"({"prompt":7})")->status(), 400);
}

// Errors within a stream have the shape of the protocol, after what was sent already; whole answers become plain errors.
TEST_F(ApiTest, D16_ErrorsWithinStreams) {
  engine_.fail_after = 2;
  const std::string messages = R"({"model":"m","max_tokens":9,)" + kUser;
  EXPECT_THAT(Do("POST", "/v1/chat/completions", Chat(R"(,"stream":true)"))->Wait(),
              HasSubstr(R"(data: {"error":{"message":"the device is gone","type":"internal_error")"));
  EXPECT_THAT(Do("POST", "/v1/messages", messages + R"(,"stream":true})")->Wait(),
              HasSubstr("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"the device is gone\"}"));
  const auto events = EventsOf(Do("POST", "/v1/responses", R"({"model":"m","input":"q","stream":true})")->Wait());
  EXPECT_EQ(TextAt(events.back(), "type"), "response.failed");
  EXPECT_EQ(TextAt(events.back(), "response/error/message"), "the device is gone");
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(NumberAt(events[i], "sequence_number"), static_cast<int64_t>(i));
  EXPECT_EQ(Do("POST", "/v1/chat/completions", Chat(""))->status(), 500);
  const auto whole = Do("POST", "/v1/messages", messages + "}");
  EXPECT_EQ(whole->status(), 500);
  EXPECT_EQ(TextAt(whole->WaitJson(), "error/type"), "api_error");
}

// Streams begin before the first token, with something to send meanwhile that clients ignore; whole answers have nothing.
TEST_F(ApiTest, D18_SomethingToSendWhileThePromptRuns) {
  const std::string messages = R"({"model":"m","max_tokens":9,)" + kUser;
  const std::pair<std::shared_ptr<FakeResponder>, std::string> streams[] = {
      {Begin("POST", "/v1/chat/completions", Chat(R"(,"stream":true)")), ": "},
      {Begin("POST", "/v1/messages", messages + R"(,"stream":true})"), "event: ping\ndata: {\"type\":\"ping\"}\n\n"},
      {Begin("POST", "/v1/responses", R"({"model":"m","input":"q","stream":true})"), ": "}};
  for (const auto& [client, heartbeat] : streams) {
    for (int i = 0; i < 2000 && !client->streams(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(client->streams());
    EXPECT_TRUE(client->heartbeat().starts_with(heartbeat)) << client->heartbeat();
  }
  const auto whole = Begin("POST", "/v1/messages", messages + "}");
  EXPECT_EQ(whole->text(), "");
  engine_.RunAll();
  for (const auto& [client, heartbeat] : streams) client->Wait();
  EXPECT_EQ(TextAt(whole->WaitJson(), "type"), "message");
}

TEST_F(ApiTest, E20_DeadlinesEndWithAClearError) {
  engine_.fail_after = 1;
  engine_.fail_reason = FinishReason::kDeadline;
  EXPECT_EQ(Do("POST", "/v1/chat/completions", Chat(""))->status(), 504);
  const auto messages = Do("POST", "/v1/messages", R"({"model":"m","max_tokens":9,"stream":true,)" + kUser + "}");
  EXPECT_THAT(messages->Wait(), HasSubstr("timeout_error"));
}

TEST_F(ApiTest, E21_PromptsThatCanNeverRun) {
  engine_.context = 100;
  std::string words;
  for (int i = 0; i < 200; ++i) words += " word";
  for (const char* stream : {"false", "true"}) {
    const auto refused = Do("POST", "/v1/completions", R"({"model":"m","prompt":")" + words + R"(","stream":)" + stream + "}");
    EXPECT_EQ(refused->status(), 400);
    EXPECT_THAT(refused->Wait(), HasSubstr("100"));
  }
  EXPECT_TRUE(engine_.requests.empty());
}

// Pictures are refused before anything of them is read, and nothing of them is repeated.
TEST_F(ApiTest, E02_E03_ImagesAreRefused) {
  const std::string picture = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ";
  const auto chat = Do("POST", "/v1/chat/completions",
                       R"({"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":")" +
                           picture + R"("}}]}]})");
  const auto messages =
      Do("POST", "/v1/messages",
         R"({"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64",)"
         R"("media_type":"image/png","data":"iVBORw0KGgo="}}]}]})");
  const auto responses = Do("POST", "/v1/responses",
                            R"({"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":")" + picture +
                                R"("}]}]})");
  for (const auto& answer : {chat, messages, responses}) {
    EXPECT_EQ(answer->status(), 400);
    EXPECT_THAT(answer->Wait(), HasSubstr("images are not supported"));
    EXPECT_THAT(answer->Wait(), Not(HasSubstr("iVBOR")));
  }
  EXPECT_TRUE(engine_.requests.empty());
}

TEST_F(ApiTest, E06_E22_MalformedJson) {
  const std::string deep = std::string(100'000, '[');
  const std::string nested = Chat(R"(,"extra":)" + std::string(10'000, '[') + std::string(10'000, ']'));
  for (const std::string& body :
       {std::string(), std::string("null"), std::string("[]"), std::string("{}"), Chat("") + "x", Chat(","), "{'model':'m'}" + deep,
        Chat(R"(,"temperature":NaN)"), Chat(R"(,"temperature":1e999)"), Chat("/* */"), std::string("model=m"), deep, nested,
        std::string("\xff\xfe")}) {
    for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/tokenize"}) {
      const auto answer = Do("POST", path, body);
      if (answer->status() == 200) {
        EXPECT_EQ(std::string(path), "/tokenize") << body.substr(0, 40);  // which ignores unknown fields
        continue;
      }
      EXPECT_TRUE(answer->status() == 400 || answer->status() == 404) << path << " " << body.substr(0, 40);
      EXPECT_TRUE(At(answer->WaitJson(), "error/message").IsString());
    }
  }
  // Of duplicate keys the last counts; unknown fields are ignored.
  EXPECT_EQ(Do("POST", "/v1/chat/completions", R"({"model":"nobody","model":"m","unknown":{"a":[1]},)" + kUser + "}")->status(), 200);
}

// A body that breaks off at any byte, or has a byte that is no UTF-8 there, is an error and nothing else.
TEST_F(ApiTest, BodiesThatAreCutOrDamagedAnywhere) {
  const std::pair<const char*, std::string> bodies[] = {
      {"/v1/chat/completions", Chat(R"(,"stop":["é","b"],"logit_bias":{"5":1.5})")},
      {"/v1/responses", R"({"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"é"}]}],"store":false})"},
      {"/v1/messages", R"({"model":"m","max_tokens":1,)" + kUser + "}"},
      {"/v1/completions", R"({"model":"m","prompt":[[1,2],[3]]})"},
      {"/tokenize", R"({"prompt":"é"})"},
      {"/detokenize", R"({"tokens":[1,2]})"}};
  for (const auto& [path, body] : bodies) {
    EXPECT_EQ(Do("POST", path, body)->status(), 200) << body;
    for (size_t i = 0; i < body.size(); ++i) {
      EXPECT_EQ(Do("POST", path, body.substr(0, i))->status(), 400) << body.substr(0, i);
      std::string damaged = body;
      damaged[i] = '\xFF';
      const int status = Do("POST", path, damaged)->status();
      EXPECT_TRUE(status == 400 || status == 404) << status << " " << i << " " << body;
    }
  }
}

TEST_F(ApiTest, E10_NamesAreNoPaths) {
  for (const std::string& name : {std::string("../../etc/passwd"), std::string("..\\\\x"), std::string("/abs"),
                                  std::string("a\\u0000b"), std::string(5000, 'x')}) {
    EXPECT_EQ(Do("POST", "/v1/chat/completions", R"({"model":")" + name + R"(",)" + kUser + "}")->status(), 404) << name.substr(0, 20);
    EXPECT_EQ(Do("POST", "/v1/responses", R"({"model":"m","input":"q","previous_response_id":")" + name + R"("})")->status(), 400);
  }
  for (const char* id : {"..%2f..%2fetc%2fpasswd", "%2e%2e/x", "a%00b", "/abs", "nobody"}) {
    EXPECT_EQ(Do("GET", std::string("/v1/responses/") + id)->status(), 404) << id;
  }
}

// Clients that leave at any moment: nothing is left behind.
TEST_F(ApiTest, E14_MassAborts) {
  Script("one two three four five six seven eight nine ten");
  for (int round = 0; round < 5; ++round) {
    std::vector<std::shared_ptr<FakeResponder>> clients;
    for (int i = 0; i < 200; ++i) {
      clients.push_back(Begin("POST", "/v1/chat/completions", Chat(i % 2 == 0 ? R"(,"stream":true)" : R"(,"n":2)")));
      if (i % 3 == 0) clients[static_cast<size_t>(i / 2)]->GoAway();
      if (i % 20 == 0) engine_.Step();
    }
    for (size_t i = 0; i < clients.size(); i += 2) clients[i]->GoAway(), clients[i]->GoAway();
    engine_.RunAll();
    for (const auto& client : clients) client->Wait();
    EXPECT_EQ(engine_.num_open(), 0U);
  }
}

}  // namespace
}  // namespace deepinfer::server
