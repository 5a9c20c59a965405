// SPDX-License-Identifier: Apache-2.0
// Properties: JSON in prompts is written as Python's json.dumps does (V4 and constraints: as serde_json does); of
// duplicate keys the last value stands at the first one's place; what no double or no text can hold is refused; the
// embedded texts are the bytes that their table says.
#include "recipe/prompt_json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "recipe/fixed_texts.h"

namespace deepinfer::recipe {
namespace {

std::string Written(std::string_view text, JsonForm form) {
  const auto value = ParseRequestJson(text, {});
  return value.ok() ? WritePromptJson(*value, form) : "refused";
}

TEST(PromptJson, Numbers) {
  const struct {
    const char* literal;
    const char* python;
    const char* serde;
  } kCases[] = {
      {"0", "0", "0"},
      {"-0", "-0.0", "-0.0"},
      {"1.0", "1.0", "1.0"},
      {"1E5", "100000.0", "100000.0"},
      {"1e-5", "1e-05", "0.00001"},
      {"1.5e-7", "1.5e-07", "1.5e-7"},
      {"0.0001", "0.0001", "0.0001"},
      {"1e15", "1000000000000000.0", "1000000000000000.0"},
      {"1e16", "1e+16", "1e+16"},
      {"1e-100", "1e-100", "1e-100"},
      {"123456789012345678901234567890", "1.2345678901234568e+29", "1.2345678901234568e+29"},
      {"18446744073709551615", "18446744073709551615", "18446744073709551615"},
      {"-9223372036854775808", "-9223372036854775808", "-9223372036854775808"},
      {"9007199254740993.0", "9007199254740992.0", "9007199254740992.0"},
      {"1e400", "refused", "refused"},
  };
  for (const auto& [literal, python, serde] : kCases) {
    EXPECT_EQ(Written(literal, JsonForm::kPrompt), python) << literal;
    EXPECT_EQ(Written(literal, JsonForm::kPromptV4), serde) << literal;
    EXPECT_EQ(Written(literal, JsonForm::kCompact), serde) << literal;
  }
}

TEST(PromptJson, ObjectsAndStrings) {
  EXPECT_EQ(Written(R"({"b":1,"a":[true,null],"b":2})", JsonForm::kPrompt), R"({"b": 2, "a": [true, null]})");
  EXPECT_EQ(Written(R"({"a":{},"b":[]})", JsonForm::kCompact), R"({"a":{},"b":[]})");
  EXPECT_EQ(Written(R"("\u00e9\u0001\/\n")", JsonForm::kPrompt), "\"é\\u0001/\\n\"");
  EXPECT_EQ(Written(R"("\ude00x")", JsonForm::kPrompt), "refused");
  EXPECT_EQ(Written(R"({"\ud83d":1})", JsonForm::kPrompt), "refused");
}

TEST(FixedTexts, AreTheFilesBytes) {
  const auto bytes = [](const char* name) {
    std::ifstream file(std::string(DI_SOURCE_DIR "/src/recipe/text/") + name, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  };
  EXPECT_EQ(Texts().tools_v41, bytes("tools_v41.txt"));
  EXPECT_EQ(Texts().tools_v4, bytes("tools_v4.txt"));
  EXPECT_EQ(Texts().effort_percent, bytes("effort_percent.txt"));
  EXPECT_EQ(Texts().effort_high_v4, bytes("effort_high_v4.txt"));
  EXPECT_EQ(Texts().effort_max_v4, bytes("effort_max_v4.txt"));
  EXPECT_EQ(Texts().response_format, bytes("response_format.txt"));
  EXPECT_EQ(Texts().apply_patch, bytes("apply_patch.txt"));
  EXPECT_EQ(Texts().tools_v41.size(), 992U);
  EXPECT_EQ(Texts().effort_max_v4.size(), 528U);
}

}  // namespace
}  // namespace deepinfer::recipe
