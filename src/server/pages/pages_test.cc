// SPDX-License-Identifier: Apache-2.0
// Property: both pages and all that they refer to are served without a key, with a policy that forbids foreign and inline
// scripts, and without being sent again where nothing changed; nothing in the pages would need what the policy forbids.
#include "server/pages/pages.h"

#include <gtest/gtest.h>

#include <regex>

namespace deepinfer::server {
namespace {

struct Sent final : Responder {
  int status = 0;
  std::string type, body;
  HeaderList headers;

  void Send(int s, std::string_view t, std::string b, HeaderList h) override {
    status = s;
    type = t;
    body = std::move(b);
    headers = std::move(h);
  }
  std::string Header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return "";
  }
  void BeginStream(StreamOptions) override {}
  bool Write(std::string_view) override { return false; }
  void End() override {}
  void OnGone(std::function<void()>) override {}
  bool gone() const override { return false; }
  void Annotate(std::string_view, std::string_view) override {}
  void Annotate(std::string_view, int64_t) override {}
};

class Pages : public ::testing::Test {
 protected:
  Pages() { AddPageRoutes(&router_); }
  std::shared_ptr<Sent> Get(const std::string& path, HeaderList headers = {}) {
    auto sent = std::make_shared<Sent>();
    const Router::Match match = router_.Find("GET", path);
    if (match.route == nullptr) return sent;
    EXPECT_EQ(match.route->access, Access::kPublic);
    auto request = std::make_shared<HttpRequest>();
    request->path = path;
    request->headers = std::move(headers);
    match.route->handler(request, sent);
    return sent;
  }
  Router router_;
};

TEST_F(Pages, EverythingThatAPageRefersToIsThere) {
  for (const std::string page : {"/", "/status"}) {
    const auto sent = Get(page);
    ASSERT_EQ(sent->status, 200) << page;
    EXPECT_EQ(sent->type, "text/html; charset=utf-8");
    const std::regex reference("(?:src|href)=\"([^#\"]+)\"");
    int references = 0;
    for (std::sregex_iterator it(sent->body.begin(), sent->body.end(), reference), end; it != end; ++it, ++references) {
      const std::string target = (*it)[1];
      EXPECT_EQ(target.find(':'), std::string::npos) << "from elsewhere: " << target;
      EXPECT_EQ(Get(target == "./" ? "/" : "/" + target)->status, 200) << target;
    }
    EXPECT_GE(references, 5);
  }
}

TEST_F(Pages, ThePolicyForbidsForeignAndInlineCode) {
  for (const std::string page : {"/", "/status"}) {
    const auto sent = Get(page);
    const std::string policy = sent->Header("Content-Security-Policy");
    EXPECT_NE(policy.find("default-src 'none'"), std::string::npos);
    EXPECT_EQ(policy.find("unsafe"), std::string::npos);
    EXPECT_EQ(sent->Header("X-Content-Type-Options"), "nosniff");
    // What the policy would block must not be in the pages.
    EXPECT_FALSE(std::regex_search(sent->body, std::regex("<script>|<style|\\son[a-z]+=|\\sstyle="))) << page;
  }
  for (const std::string script : {"/chat.js", "/status.js", "/common.js"}) {
    const std::string text = Get(script)->body;
    ASSERT_FALSE(text.empty());
    EXPECT_FALSE(std::regex_search(text, std::regex("innerHTML|outerHTML|insertAdjacentHTML|document\\.write|eval\\("))) << script;
  }
}

TEST_F(Pages, UnchangedPagesAreNotSentAgain) {
  const auto first = Get("/chat.js");
  ASSERT_EQ(first->status, 200);
  const auto again = Get("/chat.js", {{"If-None-Match", first->Header("ETag")}});
  EXPECT_EQ(again->status, 304);
  EXPECT_TRUE(again->body.empty());
  EXPECT_EQ(Get("/chat.js", {{"If-None-Match", "\"other\""}})->status, 200);
}

}  // namespace
}  // namespace deepinfer::server
