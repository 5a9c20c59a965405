// SPDX-License-Identifier: Apache-2.0
// Property: once its buffers have grown, pushing text or ids through a parser allocates nothing, whatever the stage:
// counted by an operator new of our own over reasoning, content and a long argument, one token at a time.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "recipe/output/output_parser.h"

namespace {
std::atomic<size_t> g_allocations{0};
}  // namespace

[[gnu::noinline]] void* operator new(size_t size) {
  ++g_allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace deepinfer::recipe {
namespace {

class AllocationTest : public testing::TestWithParam<Profile> {
 protected:
  void SetUp() override {
    auto loaded = Tokenizer::Load(DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json");
    ASSERT_TRUE(loaded.ok());
    tokenizer_ = *loaded;
    auto vocabulary = OutputVocabulary::Create(*tokenizer_);
    ASSERT_TRUE(vocabulary.ok());
    vocabulary_ = std::make_unique<OutputVocabulary>(*std::move(vocabulary));
    ParseOptions options;
    options.parse_tool_calls = true;
    options.stage = ThinkingStage::kReasoningStart;
    options.stop_sequences = {"STOP", "\nUser:"};
    auto parser = OutputParser::Create(options, GetParam(), vocabulary_.get());
    ASSERT_TRUE(parser.ok());
    parser_ = *std::move(parser);
  }
  std::vector<TokenId> Ids(std::string_view text) { return *tokenizer_->Encode(text); }
  void Push(const std::vector<TokenId>& ids) {
    for (const TokenId id : ids) {
      events_.Clear();
      ASSERT_TRUE(parser_->PushTokens({&id, 1}, {}, &events_).ok());
    }
  }
  // Allocations of a second pass over `ids`; the first grows the buffers.
  size_t Steady(const std::vector<TokenId>& ids) {
    Push(ids);
    const size_t before = g_allocations;
    Push(ids);
    return g_allocations - before;
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<OutputVocabulary> vocabulary_;
  std::unique_ptr<OutputParser> parser_;
  OutputEvents events_;
};

constexpr std::string_view kProse = "Line one, with <b>markup</b> & \"quotes\".\n\nZeile zwei: größer; 数字 42.\nUs STO 😀\n";

TEST_P(AllocationTest, NoneInTheSteadyState) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += kProse;
  const std::vector<TokenId> prose = Ids(text);
  EXPECT_EQ(Steady(prose), 0u) << "reasoning";
  Push(Ids("</think>"));
  EXPECT_EQ(Steady(prose), 0u) << "content";
  Push(Ids("\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"k\" string=\"true\">"));
  // The default profile keeps a call's raw text, in a buffer that doubles: a handful for thousands of tokens.
  EXPECT_LE(Steady(prose), GetParam() == Profile::kDefault ? 2u : 0u) << "argument";
}

TEST_P(AllocationTest, NoneForText) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += kProse;
  for (int round = 0; round < 3; ++round) {
    const size_t before = g_allocations;
    for (const char& byte : text) {
      events_.Clear();
      ASSERT_TRUE(parser_->PushText({&byte, 1}, 1, &events_).ok());
    }
    if (round > 0) {
      EXPECT_EQ(g_allocations - before, 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Profiles, AllocationTest, testing::Values(Profile::kCompatible, Profile::kDefault),
                         [](const auto& param) {
                           return param.param == Profile::kDefault ? "default_profile" : "compatible_profile";
                         });

}  // namespace
}  // namespace deepinfer::recipe
