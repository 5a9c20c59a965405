// SPDX-License-Identifier: Apache-2.0
// Every stored text gives the stored ids, and every stored id list the stored text (tests/golden/tokenizer), for the
// bundled tokenizer and, where tools/make_v41_tokenizer.py has made it, the published one. What IncrementalDecoder
// gives, joined, is the same text, and no piece of it ends inside a character.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "core/utf8.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

struct Suite {
  const char* name;
  const char* tokenizer_path;
  size_t texts;
};

void PrintTo(const Suite& suite, std::ostream* out) { *out << suite.name; }

std::vector<Json> ReadLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<Json> records;
  std::string line;
  while (std::getline(file, line)) {
    Result<Json> record = ParseJson(line);
    EXPECT_TRUE(record.ok()) << path << ": " << record.status().message();
    if (record.ok()) records.push_back(*record);
  }
  return records;
}

std::vector<TokenId> Ids(const Json& list) {
  std::vector<TokenId> ids;
  for (const Json& id : list.Items()) ids.push_back(static_cast<TokenId>(*id.ToInt64()));
  return ids;
}

std::string TextOf(const Json& record) {
  if (const Json* text = record.Find("text"); text != nullptr) return text->AsString();
  const Json::Array& repeat = record.Find("repeat")->Items();
  std::string text;
  for (int64_t i = 0; i < *repeat[1].ToInt64(); ++i) text += repeat[0].AsString();
  return text;
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

class GoldenTest : public testing::TestWithParam<Suite> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(GetParam().tokenizer_path)) {
      GTEST_SKIP() << GetParam().tokenizer_path << " is not there; make it with tools/make_v41_tokenizer.py";
    }
    Result<std::shared_ptr<const Tokenizer>> loaded = Tokenizer::Load(GetParam().tokenizer_path);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    tokenizer_ = *loaded;
  }

  std::vector<Json> Records(const std::string& suffix) const {
    return ReadLines(DI_SOURCE_DIR "/tests/golden/tokenizer/" + std::string(GetParam().name) + suffix);
  }

  std::string DecodeInSteps(const std::vector<TokenId>& ids, bool skip_special) const {
    IncrementalDecoder decoder(*tokenizer_, skip_special);
    std::string text;
    for (const TokenId id : ids) {
      decoder.Push(id, &text);
      EXPECT_EQ(FindInvalidUtf8(text), std::string_view::npos);
      EXPECT_LE(decoder.pending().size(), 3u);
    }
    decoder.Flush(&text);
    return text;
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_P(GoldenTest, TextsGiveIds) {
  const std::vector<Json> records = Records(".jsonl");
  EXPECT_EQ(records.size(), GetParam().texts);
  for (const Json& record : records) {
    const std::string text = TextOf(record);
    SCOPED_TRACE(WriteJson(record).substr(0, 300));
    const std::vector<TokenId> ids = Ids(*record.Find("ids"));
    EXPECT_EQ(*tokenizer_->Encode(text), ids);
    const Json* plain_ids = record.Find("plain_ids");
    EXPECT_EQ(*tokenizer_->EncodePlain(text), plain_ids == nullptr ? ids : Ids(*plain_ids));
    if (const Json* bytes = record.Find("bytes_hex"); bytes != nullptr) {
      EXPECT_EQ(*tokenizer_->Encode(FromHex(bytes->AsString())), ids);
    }
    const Json* decoded = record.Find("decoded");
    EXPECT_EQ(tokenizer_->Decode(ids), decoded == nullptr ? text : decoded->AsString());
    const Json* skipped = record.Find("decoded_skip_special");
    EXPECT_EQ(tokenizer_->Decode(ids, true), skipped == nullptr ? tokenizer_->Decode(ids) : skipped->AsString());
  }
}

TEST_P(GoldenTest, IdsGiveTexts) {
  const std::vector<Json> records = Records("_decode.jsonl");
  EXPECT_EQ(records.size(), 150u);
  for (const Json& record : records) {
    SCOPED_TRACE(WriteJson(record));
    const std::vector<TokenId> ids = Ids(*record.Find("ids"));
    EXPECT_EQ(tokenizer_->Decode(ids), record.Find("text")->AsString());
    EXPECT_EQ(tokenizer_->Decode(ids, true), record.Find("text_skip_special")->AsString());
    EXPECT_EQ(DecodeInSteps(ids, false), record.Find("text")->AsString());
    EXPECT_EQ(DecodeInSteps(ids, true), record.Find("text_skip_special")->AsString());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tokenizers, GoldenTest,
    testing::Values(Suite{"tiny", DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json", 333},
                    Suite{"v41", DI_BINARY_DIR "/data/v41/tokenizer.json", 760}),
    [](const testing::TestParamInfo<Suite>& suite) { return std::string(suite.param.name); });

}  // namespace
}  // namespace deepinfer
