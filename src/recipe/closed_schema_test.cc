// SPDX-License-Identifier: Apache-2.0
// Property: strict mode of the default profile keeps every keyword, closes every object that one schema alone
// describes, and refuses what contradicts it by its place; closing alone asks for nothing else.
#include <gtest/gtest.h>

#include "recipe/schema.h"

namespace deepinfer::recipe {
namespace {

std::string Strict(std::string_view schema, StrictUse use = StrictUse::kResponse) {
  const Json json = *ParseJson(schema);
  const Result<Json> form = StrictSchemaInFull(Field(json), use);
  return form.ok() ? WriteJson(*form) : form.status().message();
}

std::string Formed(std::string_view schema, const SchemaForm& form) {
  const Json json = *ParseJson(schema);
  return WriteJson(FormedSchema(Field(json), form));
}
std::string Closed(std::string_view schema) { return Formed(schema, {.closed = true}); }

TEST(StrictSchemaInFull, KeepsEveryKeyword) {
  EXPECT_EQ(
      Strict(
          R"({"type":"object","properties":{"s":{"type":"string","maxLength":3},"n":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},
                       "$defs":{"n":{"type":"object","properties":{"x":{"enum":[1]}}}}})"),
      R"({"type":"object","properties":{"s":{"type":"string","maxLength":3},"n":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},)"
      R"("$defs":{"n":{"type":"object","properties":{"x":{"enum":[1]}},"additionalProperties":false,"required":["x"]}},)"
      R"("additionalProperties":false,"required":["s","n"]})");
}

// Where strict mode's own form says the same, the model sees that: it was trained with it.
TEST(StrictSchemaInFull, IsTheUsualFormWhereThatLosesNothing) {
  const char* schema =
      R"({"title":"T","type":"object","required":["title"],"properties":{"title":{"title":"x","description":"d","type":"string"}}})";
  EXPECT_EQ(
      Strict(schema),
      R"({"type":"object","properties":{"title":{"type":"string","description":"d"}},"additionalProperties":false,"required":["title"]})");
}

TEST(StrictSchemaInFull, RefusesByPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"array","items":{"type":"string"}})", "\"object\""},
      {R"({"type":"object","properties":{}})", "without properties"},
      {R"({"type":"object","properties":{"a":true}})", "/properties/a: "},
      {R"({"type":"object","properties":{"a":{}}})", "/properties/a: "},
      {R"({"type":"object","properties":{"a":{"type":"array"}}})", "/properties/a/items"},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"required":[]})", "/required: "},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"required":["b"]})", "/required/0: "},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":{"type":"null"}})",
       "/additionalProperties: "},
      {R"({"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"type":"object"}}})", "/$defs/b: "},
  };
  for (const auto& [schema, what] : cases)
    EXPECT_NE(Strict(schema).find(what), std::string::npos) << schema << "\n  " << Strict(schema);
  EXPECT_EQ(Strict(R"({"type":"object","properties":{}})", StrictUse::kTool),
            R"({"type":"object","properties":{},"additionalProperties":false,"required":[]})");
}

TEST(FormedSchema, LimitsWhatIsLeftOpen) {
  const SchemaForm form{.max_length = 9, .max_items = 3};
  EXPECT_EQ(
      Formed(R"({"properties":{"s":{"type":"string"},"l":{"type":["array","null"],"items":{"pattern":"x"}}}})", form),
      R"({"properties":{"s":{"type":"string","maxLength":9},"l":{"type":["array","null"],"items":)"
      R"({"pattern":"x","maxLength":9,"maxItems":3},"maxItems":3}},"maxLength":9,"maxItems":3})");
  for (const char* stated :
       {R"({"type":"string","maxLength":99})", R"({"type":"string","minLength":10})",
        R"({"type":"string","enum":["long enough"]})", R"({"type":"integer"})",
        R"({"type":"array","minItems":4,"items":{"type":"null"}})", R"({"const":[1,2,3,4]})",
        R"({"type":"array","contains":{"const":1}})", "true",
        R"({"type":"string","oneOf":[{"type":"string","pattern":"a"},{"type":"string","pattern":"b"}]})"}) {
    EXPECT_EQ(Formed(stated, form), stated);
  }
  EXPECT_EQ(Formed(R"({"type":"string"})", {}), R"({"type":"string"})");
  EXPECT_EQ(Formed(R"({"type":["string","null"],"anyOf":[{"type":"string"},{"type":"null"}]})", form),
            R"({"type":["string","null"],"anyOf":[{"type":"string","maxLength":9},{"type":"null"}],"maxLength":9})");
}

TEST(FormedSchema, ClosesWhatOneSchemaAloneDescribes) {
  EXPECT_EQ(
      Closed(R"({"properties":{"a":{"items":{"properties":{}}}},"required":["a"]})"),
      R"({"properties":{"a":{"items":{"properties":{},"additionalProperties":false}}},"required":["a"],"additionalProperties":false})");
  for (const char* open :
       {R"({"type":"object"})", "true", R"({"properties":{},"additionalProperties":true})",
        R"({"properties":{},"unevaluatedProperties":{}})",
        R"({"allOf":[{"properties":{"a":true}},{"properties":{"b":true}}]})", R"({"properties":{},"$ref":"#/$defs/x"})",
        R"({"properties":{},"anyOf":[{"properties":{"c":true}}]})", R"({"enum":[{"properties":{}}]})",
        R"({"default":{"properties":{}}})", R"({"properties":{},"dependencies":{"a":["b"],"c":{"properties":{}}}})"}) {
    EXPECT_EQ(Closed(open), open);
  }
  EXPECT_EQ(Closed(R"({"anyOf":[{"properties":{"a":true}},{"type":"null"}]})"),
            R"({"anyOf":[{"properties":{"a":true},"additionalProperties":false},{"type":"null"}]})");
}

}  // namespace
}  // namespace deepinfer::recipe
