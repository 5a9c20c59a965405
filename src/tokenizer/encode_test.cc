// SPDX-License-Identifier: Apache-2.0
// Encoding does not depend on how it is done: from caches or not, on one thread or several, alone or beside others.
// Decode(Encode(text)) is the text with U+FFFD for what is no UTF-8, and EncodePlain never gives an added token.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "core/utf8.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

std::shared_ptr<const Tokenizer> Bundled() {
  Result<std::shared_ptr<const Tokenizer>> loaded =
      Tokenizer::Load(DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json");
  DI_CHECK(loaded.ok());
  return *loaded;
}

constexpr const char* kSnippets[] = {
    "the ", "Once upon a time", "\n", "\n\n", "  ", "\t", "don't", "HTTPServer2", "1234567", " 3.14", "!a", "(x)",
    "日本語", "中・中", "カタカナ", "。\n", "é", "e\u0301", "😀", "👩‍💻", "<think>", "</think>", "<｜User｜>",
    "｜DSML｜", "<｜begin▁of▁sentence｜>", "<｜", "｜>", "\u3000", "\u200b", "\xff", "\xe4\xb8", "\xf0\x9f", "\x01",
};

std::string RandomText(std::mt19937& random, size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    const char* snippet = kSnippets[random() % std::size(kSnippets)];
    for (size_t n = random() % 40 == 0 ? random() % 300 : 1; n > 0; --n) text += snippet;
  }
  return text;
}

std::string Repaired(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    AppendUtf8(c.valid ? c.code_point : 0xFFFD, &out);
    text.remove_prefix(c.size);
  }
  return out;
}

TEST(Encode, DecodeGivesTheTextBack) {
  const auto tokenizer = Bundled();
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    const std::string text = RandomText(random, random() % 400);
    const std::vector<TokenId> plain = *tokenizer->EncodePlain(text);
    EXPECT_EQ(tokenizer->Decode(plain), Repaired(text));
    EXPECT_EQ(tokenizer->Decode(*tokenizer->Encode(text)), Repaired(text));
    for (const TokenId id : plain) ASSERT_FALSE(tokenizer->IsAdded(id)) << id;
  }
}

TEST(Encode, CachesDoNotChangeIds) {
  const auto warm = Bundled();
  std::mt19937 random(2);
  for (int i = 0; i < 40; ++i) {
    const std::string text = RandomText(random, 3000);
    const std::vector<TokenId> first = *warm->Encode(text);
    EXPECT_EQ(*warm->Encode(text), first);
    EXPECT_EQ(*Bundled()->Encode(text), first);
  }
}

TEST(Encode, ThreadsDoNotChangeIds) {
  const auto tokenizer = Bundled();
  std::mt19937 random(3);
  for (int i = 0; i < 30; ++i) {
    std::string text = RandomText(random, 200'000);
    if (i % 5 == 0) text.insert(random() % 100'000, std::string(100'000, i % 2 ? ' ' : 'x'));
    const std::vector<TokenId> serial = *tokenizer->Encode(text);
    for (const int threads : {2, 3, 8}) {
      EXPECT_EQ(*tokenizer->Encode(text, {.threads = threads}), serial);
      EXPECT_EQ(*tokenizer->Encode(text, {.added_tokens = false, .threads = threads}), *tokenizer->EncodePlain(text));
    }
  }
}

TEST(Encode, ManyCallersAtOnce) {
  const auto tokenizer = Bundled();
  std::mt19937 random(4);
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> expected;
  for (int i = 0; i < 50; ++i) {
    texts.push_back(RandomText(random, 2000));
    expected.push_back(*tokenizer->Encode(texts.back()));
  }
  std::vector<std::thread> callers;
  std::atomic<int> wrong = 0;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        for (size_t i = 0; i < texts.size(); ++i) {
          if (*tokenizer->Encode(texts[i]) != expected[i]) ++wrong;
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

// 10 MB that is one piece each: the time is that of any other text, and no limit of a library is met.
TEST(Encode, HugePieces) {
  const auto tokenizer = Bundled();
  for (const char* character : {"a", " ", "!", "\n", "中", "\u0301", "1"}) {
    std::string text;
    while (text.size() < 2'000'000) text += character;
    const std::vector<TokenId> ids = *tokenizer->EncodePlain(text);
    EXPECT_EQ(tokenizer->Decode(ids), text);
  }
}

TEST(Encode, RefusesWhatIsTooLong) {
  const auto tokenizer = Bundled();
  std::vector<TokenId> ids = {7};
  // The address space only: no byte of it is read.
  const std::string_view text("x", kEncodeBytesMax + 1);
  EXPECT_EQ(tokenizer->AppendEncoded(text, {}, &ids).code(), Code::kResourceExhausted);
  EXPECT_EQ(ids, std::vector<TokenId>{7});
}

TEST(Encode, EmptyText) {
  EXPECT_TRUE(Bundled()->Encode("")->empty());
  EXPECT_EQ(Bundled()->Decode({}), "");
}

TEST(Lookup, IdsAndSpellings) {
  const auto tokenizer = Bundled();
  EXPECT_EQ(tokenizer->vocab_size(), 8192);
  EXPECT_EQ(tokenizer->TokenToId("<｜User｜>"), 8068);
  EXPECT_EQ(tokenizer->TokenToId("<｜Nobody｜>"), std::nullopt);
  EXPECT_EQ(tokenizer->TokenToId(""), std::nullopt);
  for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
    ASSERT_TRUE(tokenizer->IdToToken(id).has_value()) << id;
    EXPECT_EQ(tokenizer->TokenToId(*tokenizer->IdToToken(id)), id);
    EXPECT_FALSE(tokenizer->TokenBytes(id).empty());
  }
  for (const TokenId id : {-1, 8192, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->IdToToken(id), std::nullopt);
    EXPECT_EQ(tokenizer->TokenBytes(id), "");
    EXPECT_FALSE(tokenizer->IsSpecial(id));
    EXPECT_FALSE(tokenizer->IsAdded(id));
    EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{id}), "");
  }
  EXPECT_TRUE(tokenizer->IsSpecial(0));
  EXPECT_FALSE(tokenizer->IsSpecial(8068));
  EXPECT_TRUE(tokenizer->IsAdded(8068));
  EXPECT_EQ(tokenizer->added_tokens().size(), 131u);
  EXPECT_EQ(tokenizer->added_tokens()[3].content, "<｜System｜>");
}

TEST(IncrementalDecoder, HoldsBackHalfCharactersOnly) {
  const auto tokenizer = Bundled();
  // U+1F600 in its four bytes, as single-byte tokens.
  std::vector<TokenId> bytes;
  for (const char* spelling : {"ð", "Ł", "ĺ", "Ģ"}) bytes.push_back(*tokenizer->TokenToId(spelling));
  IncrementalDecoder decoder(*tokenizer);
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    decoder.Push(bytes[i], &text);
    EXPECT_EQ(text, i < 3 ? "" : "😀");
  }
  // Broken off by an ASCII character: known to be wrong at once.
  decoder.Push(bytes[0], &text);
  decoder.Push(*tokenizer->TokenToId("a"), &text);
  EXPECT_EQ(text, "😀\uFFFDa");
  decoder.Push(bytes[0], &text);
  EXPECT_EQ(decoder.pending().size(), 1u);
  decoder.Flush(&text);
  EXPECT_EQ(text, "😀\uFFFDa\uFFFD");
  decoder.Push(-5, &text);
  decoder.Flush(&text);
  EXPECT_EQ(text, "😀\uFFFDa\uFFFD");
}

}  // namespace
}  // namespace deepinfer
