// SPDX-License-Identifier: Apache-2.0
// Stored responses: what they keep, whose they are, and that their memory stays within the stated bound.
#include <gmock/gmock.h>

#include "server/api/api_fixture.h"

namespace deepinfer::server {
namespace {

using testing::HasSubstr;

class StoredTest : public ApiFixture {
 protected:
  std::string Create(const std::string& fields, std::shared_ptr<const ApiKey> key = nullptr) {
    return TextAt(Do("POST", "/v1/responses", R"({"model":"m",)" + fields + "}", std::move(key))->WaitJson(), "id");
  }
  std::shared_ptr<const ApiKey> alice_ = std::make_shared<ApiKey>(ApiKey{.name = "alice"});
  std::shared_ptr<const ApiKey> bob_ = std::make_shared<ApiKey>(ApiKey{.name = "bob"});
};

TEST_F(StoredTest, ReadGoOnDelete) {
  Script("Hi Ann");
  const auto whole = Do("POST", "/v1/responses", R"({"model":"m","input":"I am Ann","reasoning":{"effort":"none"}})");
  const std::string id = TextAt(whole->WaitJson(), "id");
  EXPECT_EQ(Do("GET", "/v1/responses/" + id)->Wait(), whole->Wait());
  EXPECT_EQ(TextAt(Do("GET", "/v1/responses/" + id + "/input_items")->WaitJson(), "data/0/content"), "I am Ann");

  const std::string next = Create(R"("input":"who am I?","previous_response_id":")" + id + "\"");
  const std::vector<int32_t> chained = engine_.requests.back().prompt;
  Create(R"("input":[{"role":"user","content":"I am Ann"},{"role":"assistant","content":"Hi Ann"},)"
         R"({"role":"user","content":"who am I?"}])");
  EXPECT_EQ(recipe_->Detokenize(chained), recipe_->Detokenize(engine_.requests.back().prompt));

  // The conversation goes on although its beginning was deleted.
  EXPECT_EQ(TextAt(Do("DELETE", "/v1/responses/" + id)->WaitJson(), "deleted"), "true");
  EXPECT_EQ(Do("GET", "/v1/responses/" + id)->status(), 404);
  Create(R"("input":"and now?","previous_response_id":")" + next + "\"");
  EXPECT_THAT(recipe_->Detokenize(engine_.requests.back().prompt), HasSubstr("I am Ann"));
  const auto gone = Do("POST", "/v1/responses", R"({"model":"m","input":"x","previous_response_id":")" + id + "\"}");
  EXPECT_EQ(gone->status(), 400);
  EXPECT_EQ(TextAt(gone->WaitJson(), "error/code"), "previous_response_not_found");
}

// Who has an answer can go on from it at once: it is kept before its end is sent. A race, so many times.
TEST_F(StoredTest, AnswersAreKeptBeforeTheyEnd) {
  for (int i = 0; i < 200; ++i) {
    const auto whole = Do("POST", "/v1/responses", R"({"model":"m","input":"x"})");
    const std::string body = whole->Wait();
    ASSERT_EQ(Do("GET", "/v1/responses/" + TextAt(whole->WaitJson(), "id"))->Wait(), body) << "answer " << i;
  }
}

TEST_F(StoredTest, NotStoredWhereDeclined) {
  const std::string id = Create(R"("input":"x","store":false)");
  EXPECT_EQ(Do("GET", "/v1/responses/" + id)->status(), 404);
  EXPECT_EQ(api_->responses().count(), 0U);
}

TEST_F(StoredTest, D12_AnotherKeyCannotSeeThem) {
  const std::string id = Create(R"("input":"secret")", alice_);
  EXPECT_EQ(Do("GET", "/v1/responses/" + id, "", alice_)->status(), 200);
  const std::string unknown = Do("GET", "/v1/responses/resp_0", "", bob_)->Wait();
  std::string other = Do("GET", "/v1/responses/" + id, "", bob_)->Wait();
  other.replace(other.find(id), id.size(), "resp_0");
  EXPECT_EQ(other, unknown);
  EXPECT_EQ(Do("GET", "/v1/responses/" + id + "/input_items", "", bob_)->status(), 404);
  EXPECT_EQ(Do("DELETE", "/v1/responses/" + id, "", bob_)->status(), 404);
  EXPECT_EQ(Do("POST", "/v1/responses/" + id + "/cancel", "", bob_)->status(), 404);
  EXPECT_EQ(Do("POST", "/v1/responses", R"({"model":"m","input":"x","previous_response_id":")" + id + "\"}", bob_)->status(), 400);
}

TEST_F(StoredTest, BackgroundAndCancel) {
  const auto begun = Begin("POST", "/v1/responses", R"({"model":"m","input":"x","background":true})");
  const Json first = begun->WaitJson();
  EXPECT_EQ(TextAt(first, "status"), "in_progress");
  const std::string path = "/v1/responses/" + TextAt(first, "id");
  EXPECT_EQ(TextAt(Begin("GET", path)->WaitJson(), "status"), "in_progress");
  engine_.RunAll();
  for (int i = 0; i < 200 && TextAt(Begin("GET", path)->WaitJson(), "status") == "in_progress"; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const Json done = Begin("GET", path)->WaitJson();
  EXPECT_EQ(TextAt(done, "status"), "completed");
  EXPECT_EQ(TextAt(done, "background"), "true");

  const Json second = Begin("POST", "/v1/responses", R"({"model":"m","input":"x","background":true})")->WaitJson();
  const auto cancel = Begin("POST", "/v1/responses/" + TextAt(second, "id") + "/cancel");
  EXPECT_FALSE(cancel->ended());
  Finish(*cancel);
  EXPECT_EQ(TextAt(cancel->WaitJson(), "status"), "cancelled");
  EXPECT_EQ(TextAt(Do("POST", "/v1/responses/" + TextAt(second, "id") + "/cancel")->WaitJson(), "status"), "cancelled");

  EXPECT_EQ(Do("POST", "/v1/responses", R"({"model":"m","input":"x","background":true,"stream":true})")->status(), 400);
  EXPECT_EQ(Do("POST", "/v1/responses", R"({"model":"m","input":"x","background":true,"store":false})")->status(), 400);
}

TEST_F(StoredTest, ADeletedStreamEnds) {
  const auto stream = Begin("POST", "/v1/responses", R"({"model":"m","input":"x","stream":true})");
  for (int i = 0; i < 2000 && EventsOf(stream->text()).empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::string path = "/v1/responses/" + TextAt(EventsOf(stream->text())[0], "response/id");
  engine_.Step();
  EXPECT_EQ(Begin("DELETE", path)->status(), 200);
  Finish(*stream);
  EXPECT_EQ(TextAt(EventsOf(stream->text()).back(), "response/status"), "cancelled");
  EXPECT_EQ(Begin("GET", path)->status(), 404);
}

// 10,000 small ones and 100 of 1 MB in a store of 20 MB, some deleted, in chains.
TEST(ResponseStore, D12_MemoryStaysWithinItsBound) {
  ResponseStore store({.count_max = 2'000, .bytes_max = size_t{20} << 20, .lifetime_seconds = 100});
  ConversationItems earlier;
  for (int i = 0; i < 10'100; ++i) {
    const std::string id = "resp_" + std::to_string(i);
    const std::string text(i % 101 == 100 ? size_t{1} << 20 : 100, 'x');
    store.Begin({.id = id, .owner = "a", .body = "{}", .earlier = earlier, .input_items = "[\"" + text + "\"]"}, 1000);
    store.Finish(id, "{\"output\":[]}", "[]");
    EXPECT_LE(store.bytes(), size_t{20} << 20);
    EXPECT_LE(store.count(), 2'000U);
    earlier.clear();
    if (const auto items = store.Items(id, "a", 1000); i % 50 != 0 && items) earlier = *items;
    if (i % 7 == 0) store.Delete(id, "a", 1000);
  }
  earlier.clear();
  EXPECT_FALSE(store.Body("resp_0", "a", 1000));
  EXPECT_TRUE(store.Body("resp_10099", "a", 1099));
  EXPECT_FALSE(store.Body("resp_10099", "a", 1100));
  EXPECT_EQ(store.count(), 0U);
  EXPECT_EQ(store.bytes(), 0U);
}

TEST(ResponseStore, OneThatIsDroppedWhileItRunsStillEnds) {
  ResponseStore store({.count_max = 1, .bytes_max = 1 << 20, .lifetime_seconds = 10});
  std::string heard;
  store.Begin({.id = "r1", .owner = "a", .body = "{}", .input_items = "[]"}, 0);
  EXPECT_TRUE(store.Cancel("r1", "a", 0, [&](const std::string& body) { heard = body; }));
  store.Begin({.id = "r2", .owner = "a", .body = "{}", .input_items = "[]"}, 0);
  EXPECT_FALSE(store.Body("r1", "a", 0));
  store.Finish("r1", "the end", "[]");
  EXPECT_EQ(heard, "the end");
}

}  // namespace
}  // namespace deepinfer::server
