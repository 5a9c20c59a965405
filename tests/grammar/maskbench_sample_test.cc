// SPDX-License-Identifier: Apache-2.0
// Property: on a fixed sample of 1,000 real schemas (MaskBench) no invalid instance is accepted, and at least 975 schemas
// judge all their instances rightly under the default settings. The others are refused by name, or have valid instances
// whose keys are not in the order of the schema. bench/grammar/maskbench.cc runs the whole suite with a real vocabulary.
#include <gtest/gtest.h>

#include <string>

#include "deepinfer/grammar.h"
#include "xz.h"

namespace deepinfer::grammar {
namespace {

TEST(MaskBenchSample, NoWrongAccepts) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
  const auto vocabulary = Vocabulary::Create(tokens, {}, {});
  CompileOptions options;
  options.limits.time = std::chrono::seconds(10);
  int passed = 0, refused = 0, schemas = 0;
  for (const Json& entry : ReadJsonLines(std::string(DI_SOURCE_DIR) + "/tests/data/json_schema/maskbench_sample.jsonl.xz")) {
    ++schemas;
    auto compiled = Compile(Constraint::JsonSchema(entry.Find("schema")->AsString()), vocabulary, options);
    if (!compiled.ok()) {
      ++refused;
      EXPECT_NE(compiled.status().message().find_first_of("#g"), std::string::npos);
      continue;
    }
    bool fine = true;
    for (const Json& test : entry.Find("tests")->Items()) {
      Matcher matcher(*compiled);
      const bool accepted = matcher.AcceptBytes(test.Find("data")->AsString()).ok() && matcher.IsComplete();
      const bool valid = test.Find("valid")->AsBool();
      fine = fine && accepted == valid;
      EXPECT_FALSE(accepted && !valid) << entry.Find("name")->AsString();
    }
    passed += fine ? 1 : 0;
  }
  std::printf("%d schemas: %d pass, %d refused\n", schemas, passed, refused);
  EXPECT_EQ(schemas, 1000);
  EXPECT_GE(passed, 975);
}

}  // namespace
}  // namespace deepinfer::grammar
