// SPDX-License-Identifier: Apache-2.0
// Property: what is parsed and written again is the same text (order, duplicates, spelling of numbers), and whatever
// RFC 8259 does not allow, or a limit forbids, is an error with its place and never a crash.
#include "core/json.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(Json, KeepsOrderDuplicatesAndSpelling) {
  const std::string text =
      R"({"z":1.0,"a":1e5,"big":12345678901234567890,"huge":123456789012345678901234567890,)"
      R"("neg":-0.0,"dup":1,"dup":2,"f":0.1000,"arr":[1E+2,0,null,true,"x\n"]})";
  const Result<Json> json = ParseJson(text);
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(WriteJson(*json), text);
  EXPECT_EQ(json->Find("dup")->Literal(), "2");
  EXPECT_EQ(json->Find("nothing"), nullptr);
  EXPECT_EQ(json->Find("z")->ToInt64(), std::nullopt);
  EXPECT_EQ(json->Find("z")->ToDouble(), 1.0);
  EXPECT_EQ(json->Find("big")->ToInt64(), std::nullopt);
}

TEST(Json, Writes) {
  Json value(Json::Object{});
  value.Members().emplace_back("k\"", Json("\x01\t\xC3\xA9\xF0\x9F\x98\x80\xFF/"));
  value.Members().emplace_back("n", Json(Json::Array{Json::Integer(-5), Json::Double(0.1), Json(true)}));
  EXPECT_EQ(WriteJson(value, {.item_separator = ", ", .key_separator = ": "}),
            "{\"k\\\"\": \"\\u0001\\t\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBD/\", \"n\": [-5, 0.1, true]}");
  EXPECT_EQ(WriteJson(value, {.ascii_only = true}),
            R"({"k\"":"\u0001\t\u00e9\ud83d\ude00\ufffd/","n":[-5,0.1,true]})");
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const std::string& text :
       {std::string("{}\0", 3), std::string("[1\0]", 4), std::string(""), std::string("{"),
        std::string("[1,]"), std::string("{\"a\":1,}"), std::string("01"), std::string("NaN"), std::string("1 2"),
        std::string("\"\xFF\""), std::string("\"\\ud800\""), std::string("\"a\nb\""),
        std::string("\xEF\xBB\xBF{}"), std::string("'a'")}) {
    const Result<Json> json = ParseJson(text);
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_EQ(json.status().code(), Code::kInvalidArgument);
    EXPECT_NE(json.status().message().find("at byte"), std::string::npos);
  }
}

TEST(Json, HoldsItsLimits) {
  EXPECT_EQ(ParseJson(std::string(10'000'000, '[')).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(ParseJson("[1,2,3]", {.nodes_max = 3}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(ParseJson("[1,2,3]", {.size_bytes_max = 3}).status().code(), Code::kResourceExhausted);
  EXPECT_TRUE(ParseJson("[[1]]", {.depth_max = 2, .nodes_max = 3}).ok());
  EXPECT_EQ(ParseJson("[[1]]", {.depth_max = 1}).status().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace deepinfer
