// SPDX-License-Identifier: Apache-2.0
// Property: of the official JSON-Schema-Test-Suite every case ends as right or as refused with the keyword named; no
// invalid document is accepted and no valid one rejected. Method: each document is fed as bytes under free key order
// (a validator does not care about order). Required files treat `format` as an annotation, as the suite does;
// optional/format files enforce it.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "deepinfer/grammar.h"
#include "xz.h"

namespace deepinfer::grammar {
namespace {

std::shared_ptr<const Vocabulary> ByteVocabulary() {
  std::vector<std::string> bytes;
  for (int i = 0; i < 256; ++i) bytes.emplace_back(1, static_cast<char>(i));
  bytes.emplace_back("");
  const uint32_t stop[] = {256};
  return Vocabulary::Create(bytes, {}, stop);
}

struct Tally {
  int right = 0, refused = 0, wrong_accepts = 0, wrong_rejects = 0;
  int total() const { return right + refused + wrong_accepts + wrong_rejects; }
};

class SuiteTest : public testing::Test {
 protected:
  void SetUp() override {
    for (Json& line : ReadJsonLines(std::string(DI_SOURCE_DIR) + "/tests/data/json_schema/suite.json.xz")) {
      if (const Json* uri = line.Find("uri")) {
        documents_.emplace_back(uri->AsString(), line.Find("document")->AsString());
      } else {
        files_.emplace_back(line.Find("file")->AsString(), *ParseJson(line.Find("groups")->AsString()));
      }
    }
  }

  static Json WithDraft(const Json& schema, const std::string& file) {
    if (!schema.IsObject() || schema.Find("$schema") != nullptr) return schema;
    std::string uri;
    for (const char* draft : {"4", "6", "7"}) {
      if (file.rfind(std::string("draft") + draft + "/", 0) == 0) uri = std::string("http://json-schema.org/draft-0") + draft + "/schema#";
    }
    if (uri.empty()) return schema;
    Json::Object members{{"$schema", Json(uri)}};
    members.insert(members.end(), schema.Members().begin(), schema.Members().end());
    return Json(std::move(members));
  }

  static bool HasPunycode(const Json& data) {
    const std::string text = WriteJson(data);
    return text.find("xn--") != std::string::npos || text.find("XN--") != std::string::npos;
  }

  void RunGroup(const std::string& file, const Json& group, Tally* tally) {
    CompileOptions options;
    options.key_order = KeyOrder::kFree;
    options.assert_formats = file.find("optional/format") != std::string::npos;
    options.documents = documents_;
    const std::string schema = WriteJson(WithDraft(*group.Find("schema"), file));
    auto compiled = Compile(Constraint::JsonSchema(schema), vocabulary_, options);
    const bool empty = !compiled.ok() && compiled.status().message().find("unsatisfiable") != std::string::npos;
    for (const Json& test : group.Find("tests")->Items()) {
      if (!compiled.ok() && !empty) {
        ++tally->refused;
        ++reasons_[compiled.status().message().substr(0, 100)];
        EXPECT_FALSE(compiled.status().message().empty());
        continue;
      }
      const bool valid = test.Find("valid")->AsBool();
      // Canonical form (docs/grammar.md): host names without Punycode labels.
      if (valid && file.find("optional/format/hostname") != std::string::npos && HasPunycode(*test.Find("data"))) {
        ++tally->refused;
        continue;
      }
      bool accepted = false;
      if (compiled.ok()) {
        Matcher matcher(*compiled);
        accepted = matcher.AcceptBytes(WriteJson(*test.Find("data"))).ok() && matcher.IsComplete();
      }
      if (accepted == valid) {
        ++tally->right;
        continue;
      }
      ++(accepted ? tally->wrong_accepts : tally->wrong_rejects);
      ADD_FAILURE() << (accepted ? "wrong accept" : "wrong reject") << " in " << file << ": "
                    << group.Find("description")->AsString() << ": " << test.Find("description")->AsString() << "\n  "
                    << schema << "\n  " << WriteJson(*test.Find("data"));
    }
  }

  Tally Run(const std::string& prefix, bool optional) {
    Tally tally;
    for (const auto& [file, groups] : files_) {
      if (file.rfind(prefix + "/", 0) != 0 || (file.find("/optional/") != std::string::npos) != optional) continue;
      for (const Json& group : groups.Items()) RunGroup(file, group, &tally);
    }
    std::printf("%s%s: %d cases, %d right, %d refused, %d wrong accepts, %d wrong rejects\n", prefix.c_str(),
                optional ? " formats" : "", tally.total(), tally.right, tally.refused, tally.wrong_accepts, tally.wrong_rejects);
    for (const auto& [reason, count] : reasons_) std::printf("  %4d %s\n", count, reason.c_str());
    return tally;
  }

  std::shared_ptr<const Vocabulary> vocabulary_ = ByteVocabulary();
  std::vector<std::pair<std::string, std::string>> documents_;
  std::vector<std::pair<std::string, Json>> files_;
  std::map<std::string, int> reasons_;
};

// The number of right cases is a floor: it may rise.
TEST_F(SuiteTest, Draft202012) { EXPECT_GE(Run("draft2020-12", false).right, 1233); }
TEST_F(SuiteTest, Draft201909) { EXPECT_GE(Run("draft2019-09", false).right, 1206); }
TEST_F(SuiteTest, Draft7) { EXPECT_GE(Run("draft7", false).right, 923); }
TEST_F(SuiteTest, Draft6) { EXPECT_GE(Run("draft6", false).right, 835); }
TEST_F(SuiteTest, Draft4) { EXPECT_GE(Run("draft4", false).right, 614); }
TEST_F(SuiteTest, Formats202012) { EXPECT_GE(Run("draft2020-12", true).right, 620); }

}  // namespace
}  // namespace deepinfer::grammar
