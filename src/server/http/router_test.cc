// SPDX-License-Identifier: Apache-2.0
// Properties: a path finds exactly its route; other methods are told what is allowed; a capture is never a path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http/exchange.h"

namespace deepinfer::server {
namespace {

using ::testing::IsEmpty;

Router Sample() {
  Router router;
  const Handler handler = [](std::shared_ptr<const HttpRequest>, std::shared_ptr<Responder>) {};
  router.Add({.method = "GET", .pattern = "/", .handler = handler});
  router.Add({.method = "GET", .pattern = "/v1/models", .handler = handler});
  router.Add({.method = "GET", .pattern = "/v1/responses/{id}", .handler = handler});
  router.Add({.method = "DELETE", .pattern = "/v1/responses/{id}", .handler = handler});
  router.Add({.method = "POST", .pattern = "/v1/responses/{id}/cancel", .handler = handler});
  return router;
}

TEST(Router, FindsExactPaths) {
  const Router router = Sample();
  EXPECT_EQ(router.Find("GET", "/").route, &router.routes()[0]);
  EXPECT_EQ(router.Find("GET", "/v1/models").route, &router.routes()[1]);
  EXPECT_EQ(router.Find("HEAD", "/v1/models").route, &router.routes()[1]);
  EXPECT_EQ(router.Find("GET", "/v1/responses/resp_1").captures[0].second, "resp_1");
  EXPECT_EQ(router.Find("POST", "/v1/responses/resp%5F1/cancel").captures[0].second, "resp_1");
}

TEST(Router, UnknownPathsAndSpellings) {
  const Router router = Sample();
  for (const char* path :
       {"", "v1/models", "//v1/models", "/v1//models", "/v1/models/", "/V1/models", "/%761/models", "/v1/../v1/models",
        "/v1/responses/", "/v1/responses", "/v1/responses/../models", "/v1/responses/%2e%2e", "/v1/responses/a%2fb",
        "/v1/responses/a%00b", "/v1/responses/a%", "/v1/responses/a b", "/v1/responses/.x"}) {
    const Router::Match match = router.Find("GET", path);
    EXPECT_EQ(match.route, nullptr) << path;
    EXPECT_THAT(match.allow, IsEmpty()) << path;
  }
  EXPECT_EQ(router.Find("GET", "/v1/responses/" + std::string(257, 'a')).route, nullptr);
}

TEST(Router, OtherMethodsAreTold) {
  const Router router = Sample();
  EXPECT_EQ(router.Find("POST", "/v1/responses/x").route, nullptr);
  EXPECT_EQ(router.Find("POST", "/v1/responses/x").allow, "GET, HEAD, DELETE");
}

TEST(HttpRequest, Lookups) {
  const HttpRequest request{.query = "a=1&b=x%20y+z&bad=%4&c",
                            .headers = {{"X-Api-Key", "k"}, {"x-api-key", "second"}}};
  EXPECT_EQ(*request.Header("x-API-key"), "k");
  EXPECT_EQ(request.Header("absent"), nullptr);
  EXPECT_EQ(request.QueryValue("b"), "x y z");
  EXPECT_EQ(request.QueryValue("c"), "");
  EXPECT_EQ(request.QueryValue("bad"), std::nullopt);
  EXPECT_EQ(request.QueryValue("d"), std::nullopt);
}

}  // namespace
}  // namespace deepinfer::server
