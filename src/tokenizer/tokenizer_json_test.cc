// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json that is broken, contradictory or of another kind is refused with a message that names the place;
// both spellings of merges, and options without effect, are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "core/json.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

using testing::HasSubstr;

// A small tokenizer with all bytes, "ab" and "abc", and one added token.
Json Small() {
  Json::Object vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelling;
    const uint32_t c = ByteLevelChar(static_cast<uint8_t>(byte));
    if (c < 0x80) {
      spelling += static_cast<char>(c);
    } else {
      spelling += static_cast<char>(0xC0 | c >> 6);
      spelling += static_cast<char>(0x80 | (c & 0x3F));
    }
    vocab.emplace_back(spelling, Json::Integer(byte));
  }
  vocab.emplace_back("ab", Json::Integer(256));
  vocab.emplace_back("abc", Json::Integer(257));
  const auto merge = [](const char* left, const char* right) { return Json(Json::Array{Json(left), Json(right)}); };
  return *ParseJson(R"({"version":"1.0","truncation":null,"padding":null,
    "added_tokens":[{"id":300,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
    "normalizer":null,
    "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false},
    "decoder":{"type":"ByteLevel"},
    "model":{"type":"BPE","dropout":null,"unk_token":null,"vocab":)" + WriteJson(Json(vocab)) + R"(,"merges":)" +
                    WriteJson(Json(Json::Array{merge("a", "b"), merge("ab", "c")})) + "}}");
}

Result<std::shared_ptr<const Tokenizer>> Load(const Json& json) {
  return Tokenizer::FromBytes(WriteJson(json), "t.json");
}

// Small() with `value` (JSON text) at `path`, "-" for a member that is taken away.
Json With(std::initializer_list<const char*> path, const std::string& value) {
  Json root = Small();
  Json* place = &root;
  Json* parent = nullptr;
  const char* last = "";
  for (const char* key : path) {
    parent = place;
    last = key;
    place = parent->IsArray() ? &parent->Items()[std::stoul(key)] : parent->Find(key);
    if (place == nullptr) {
      parent->Members().emplace_back(key, Json());
      place = &parent->Members().back().second;
    }
  }
  if (value == "-") {
    std::erase_if(parent->Members(), [&](const Json::Member& member) { return member.first == last; });
  } else {
    *place = *ParseJson(value);
  }
  return root;
}

struct Refusal {
  std::initializer_list<const char*> path;
  const char* value;
  Code code;
  const char* message;
};

TEST(TokenizerJson, RefusesByName) {
  const Refusal cases[] = {
      {{"truncation"}, R"({"max_length":5})", Code::kUnimplemented, "truncation"},
      {{"padding"}, R"({"strategy":"BatchLongest"})", Code::kUnimplemented, "padding"},
      {{"normalizer"}, R"({"type":"NFC"})", Code::kUnimplemented, "normalizer: type \"NFC\""},
      {{"normalizer"}, R"({"type":"Sequence","normalizers":[{"type":"Lowercase"}]})", Code::kUnimplemented, "Lowercase"},
      {{"pre_tokenizer"}, "-", Code::kDataLoss, "pre_tokenizer"},
      {{"pre_tokenizer"}, R"({"type":"Metaspace"})", Code::kUnimplemented, "Metaspace"},
      {{"pre_tokenizer"}, R"({"type":"Sequence","pretokenizers":[]})", Code::kUnimplemented, "no ByteLevel"},
      {{"pre_tokenizer", "add_prefix_space"}, "true", Code::kUnimplemented, "add_prefix_space"},
      {{"pre_tokenizer", "use_regex"}, "3", Code::kDataLoss, "use_regex"},
      {{"pre_tokenizer"},
       R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"a"},"behavior":"Removed"}]})",
       Code::kUnimplemented, "pretokenizers[0].behavior"},
      {{"pre_tokenizer"},
       R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"String":"a"},"behavior":"Isolated"}]})",
       Code::kDataLoss, "pattern.Regex"},
      {{"pre_tokenizer"},
       R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated"},
          {"type":"ByteLevel","use_regex":false}]})",
       Code::kDataLoss, "(a"},
      {{"pre_tokenizer"},
       R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{Han}"},"behavior":"Isolated"},
          {"type":"ByteLevel","use_regex":false}]})",
       Code::kUnimplemented, "\\p{Han}"},
      {{"decoder"}, "-", Code::kDataLoss, "decoder"},
      {{"decoder"}, R"({"type":"WordPiece"})", Code::kUnimplemented, "WordPiece"},
      {{"model"}, "-", Code::kDataLoss, "model"},
      {{"model", "type"}, R"("Unigram")", Code::kUnimplemented, "Unigram"},
      {{"model", "dropout"}, "0.1", Code::kUnimplemented, "dropout"},
      {{"model", "end_of_word_suffix"}, R"("</w>")", Code::kUnimplemented, "end_of_word_suffix"},
      {{"model", "byte_fallback"}, "true", Code::kUnimplemented, "byte_fallback"},
      {{"model", "vocab"}, "-", Code::kDataLoss, "model.vocab"},
      {{"model", "vocab"}, "{}", Code::kDataLoss, "empty"},
      {{"model", "vocab", "ab"}, "255", Code::kDataLoss, "is also the id of"},
      {{"model", "vocab", "ab"}, "-1", Code::kDataLoss, "-1"},
      {{"model", "vocab", "ab"}, "2e3", Code::kDataLoss, "integer"},
      {{"model", "vocab", "ab"}, "99999999999", Code::kDataLoss, "99999999999"},
      {{"model", "vocab", "ab"}, "-", Code::kDataLoss, "\"ab\" is not in model.vocab"},
      {{"model", "vocab", "abc"}, "-", Code::kDataLoss, "model.merges[1]: the merged token \"abc\""},
      {{"model", "merges"}, "-", Code::kDataLoss, "model.merges"},
      {{"model", "merges", "1"}, R"(["ab","nowhere"])", Code::kDataLoss, "model.merges[1]: \"nowhere\""},
      {{"model", "merges", "1"}, R"("abc")", Code::kDataLoss, "model.merges[1]"},
      {{"model", "merges", "1"}, R"("a b c")", Code::kDataLoss, "model.merges[1]"},
      {{"model", "merges", "1"}, R"(["a"])", Code::kDataLoss, "model.merges[1]"},
      {{"added_tokens"}, "5", Code::kDataLoss, "added_tokens"},
      {{"added_tokens", "0", "id"}, "7", Code::kDataLoss, "id 7 of \"<s>\" is also"},
      {{"added_tokens", "0", "id"}, "-", Code::kDataLoss, "added_tokens[0].id"},
      {{"added_tokens", "0", "id"}, "1048576", Code::kDataLoss, "1048576"},
      {{"added_tokens", "0", "content"}, R"("")", Code::kDataLoss, "added_tokens[0]"},
      {{"added_tokens", "0", "content"}, R"("ab")", Code::kDataLoss, "id 300 here and 256"},
      {{"added_tokens", "0", "single_word"}, "true", Code::kUnimplemented, "added_tokens[0].single_word"},
      {{"added_tokens", "0", "lstrip"}, "true", Code::kUnimplemented, "added_tokens[0].lstrip"},
      {{"added_tokens", "0", "rstrip"}, "true", Code::kUnimplemented, "added_tokens[0].rstrip"},
      {{"added_tokens", "0", "special"}, "1", Code::kDataLoss, "added_tokens[0].special"},
  };
  for (const Refusal& refusal : cases) {
    const auto result = Load(With(refusal.path, refusal.value));
    ASSERT_FALSE(result.ok()) << refusal.message;
    EXPECT_EQ(result.status().code(), refusal.code) << result.status().message();
    EXPECT_THAT(result.status().message(), HasSubstr(refusal.message));
    EXPECT_THAT(result.status().message(), HasSubstr("t.json: "));
  }
}

TEST(TokenizerJson, RefusesWhatIsNoJson) {
  const std::string whole = WriteJson(Small());
  for (const std::string& text : {std::string(), std::string("[]"), std::string("null"), whole.substr(0, 500),
                                  whole + "x", std::string("\x1f\x8b\x08"), std::string(1'000'000, '[')}) {
    EXPECT_FALSE(Tokenizer::FromBytes(text, "t.json").ok());
  }
  const auto pointer = Tokenizer::FromBytes(
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 6367257\n", "t.json");
  EXPECT_EQ(pointer.status().code(), Code::kDataLoss);
  EXPECT_THAT(pointer.status().message(), HasSubstr("Git LFS pointer"));
  EXPECT_EQ(Tokenizer::Load("/nonexistent/tokenizer.json").status().code(), Code::kNotFound);
  EXPECT_FALSE(Tokenizer::Load("/").ok());
  EXPECT_EQ(Tokenizer::FromBytes(whole, "t.json", {.file_bytes_max = 100}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(Tokenizer::FromBytes(whole, "t.json", {.id_max = 200}).status().code(), Code::kDataLoss);
}

TEST(TokenizerJson, ReadsBothSpellingsOfMerges) {
  EXPECT_EQ(*(*Load(Small()))->Encode("abcab"), (std::vector<TokenId>{257, 256}));
  EXPECT_EQ(*(*Load(With({"model", "merges"}, R"(["a b", "ab c"])")))->Encode("abcab"), (std::vector<TokenId>{257, 256}));
  EXPECT_EQ(*(*Load(With({"model", "merges"}, "[]")))->Encode("ab"), (std::vector<TokenId>{'a', 'b'}));
}

TEST(TokenizerJson, OptionsWithoutEffect) {
  for (const auto& json : {With({"normalizer"}, R"({"type":"Sequence","normalizers":[]})"), With({"normalizer"}, "-"),
                           With({"truncation"}, "-"), With({"model", "end_of_word_suffix"}, R"("")"),
                           With({"model", "unk_token"}, R"("a")"), With({"model", "dropout"}, "0.0"),
                           With({"post_processor"}, R"({"type":"ByteLevel"})")}) {
    const auto tokenizer = Load(json);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    EXPECT_EQ(*(*tokenizer)->Encode("abc<s>"), (std::vector<TokenId>{257, 300}));
  }
}

TEST(TokenizerJson, IgnoreMergesTakesWholePieces) {
  // "abc" cannot be built by merges here.
  Json json = With({"model", "merges"}, R"(["a b"])");
  EXPECT_EQ(*(*Load(json))->Encode("abc"), (std::vector<TokenId>{256, 'c'}));
  json.Find("model")->Members().emplace_back("ignore_merges", Json(true));
  EXPECT_EQ(*(*Load(json))->Encode("abc"), (std::vector<TokenId>{257}));
}

TEST(TokenizerJson, ByteLevelRegexIsGpt2s) {
  const auto tokenizer = *Load(With({"pre_tokenizer", "use_regex"}, "true"));
  EXPECT_EQ(*tokenizer->Encode("abc abc"), (std::vector<TokenId>{257, ' ', 257}));
  // The split between letters and digits keeps a pair apart that the merges would join.
  const auto split = *Load(With({"pre_tokenizer", "use_regex"}, "-"));
  EXPECT_EQ(*split->Encode("abc"), (std::vector<TokenId>{257}));
}

TEST(TokenizerJson, HolesInTheIds) {
  const auto tokenizer = *Load(Small());
  EXPECT_EQ(tokenizer->vocab_size(), 301);
  EXPECT_EQ(tokenizer->IdToToken(280), std::nullopt);
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{'a', 280, 'b'}), "ab");
  EXPECT_EQ(tokenizer->TokenToId(""), std::nullopt);
}

TEST(TokenizerJson, MissingBytesGiveNoIds) {
  const auto tokenizer = *Load(With({"model", "vocab", "z"}, "-"));
  EXPECT_EQ(*tokenizer->Encode("azbz"), (std::vector<TokenId>{256}));  // as published tokenizers do
}

// Case C31: added tokens spelled with letters of the byte alphabet, with a leading blank, one a prefix of another.
TEST(AddedTokens, C31_AnyTextComesBackExactly) {
  const auto tokenizer = *Load(With({"added_tokens"}, R"([
      {"id":300,"content":"<s>","special":true},{"id":301,"content":"il\u00d6veyou"},{"id":302,"content":" blank"},
      {"id":303,"content":"il\u00d6ve"}])"));
  const std::string love = "il\xc3\x96veyou", prefix = "il\xc3\x96ve";
  EXPECT_EQ(*tokenizer->Encode(love + prefix + "x blank"), (std::vector<TokenId>{301, 303, 'x', 302}));
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += (i % 3 == 0 ? love : i % 3 == 1 ? prefix : " blank") + std::string(90, "az \n"[i % 4]);
  const std::vector<TokenId> ids = *tokenizer->Encode(text);
  EXPECT_EQ(std::count_if(ids.begin(), ids.end(), [](TokenId id) { return id >= 300; }), 10'000);
  // Compared without EXPECT_EQ, which would print and align a megabyte.
  EXPECT_TRUE(tokenizer->Decode(ids) == text);
  EXPECT_TRUE(tokenizer->Decode(ids, true) == text);  // none of these is special
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{300, 'a', 301}, true), "a" + love);
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{300, 'a', 301}), "<s>a" + love);
}

TEST(AddedTokens, LongestFirstAndInTwoRounds) {
  const auto tokenizer = *Load(With({"added_tokens"}, R"([
      {"id":300,"content":"<s>"},{"id":301,"content":"<s><s>"},{"id":256,"content":"ab"},
      {"id":303,"content":"b<","normalized":true},{"id":304,"content":"st","normalized":true},
      {"id":305,"content":"bcd","normalized":true},{"id":306,"content":"bc","normalized":true}])"));
  const auto encode = [&](const char* text) { return *tokenizer->Encode(text); };
  EXPECT_EQ(encode("<s><s><s>"), (std::vector<TokenId>{301, 300}));
  // Tokens that are not normalized win over those that are, even where these begin earlier.
  EXPECT_EQ(encode("b<s>"), (std::vector<TokenId>{'b', 300}));
  EXPECT_EQ(encode("b<x"), (std::vector<TokenId>{303, 'x'}));
  EXPECT_EQ(encode("bcdst"), (std::vector<TokenId>{305, 304}));
  EXPECT_EQ(encode("bcx"), (std::vector<TokenId>{306, 'x'}));
  EXPECT_EQ(encode("<st"), (std::vector<TokenId>{'<', 304}));
  EXPECT_EQ(encode("xab"), (std::vector<TokenId>{'x', 256}));
  EXPECT_EQ(*tokenizer->EncodePlain("<s>"), (std::vector<TokenId>{'<', 's', '>'}));
}

}  // namespace
}  // namespace deepinfer
