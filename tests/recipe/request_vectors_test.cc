// SPDX-License-Identifier: Apache-2.0
// Property: in the compatible profile every request vector of an independent implementation is reproduced: prompt text,
// control ranges, token ids with both tokenizers, sampling, format and parse options, resolved max tokens; and every
// refused one is refused with a message that names the field. Method: all of tests/golden/recipe/requests.jsonl.xz.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/recipe/vector_check.h"

namespace deepinfer::recipe {
namespace {

constexpr size_t kNumVectors = 2183;
constexpr size_t kShown = 10;

std::shared_ptr<PromptEncoder> LoadEncoder(const std::string& path) {
  if (!std::filesystem::exists(path)) return nullptr;
  const auto tokenizer = Tokenizer::Load(path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto encoder = PromptEncoder::Make(*tokenizer);
  EXPECT_TRUE(encoder.ok()) << encoder.status().message();
  return *encoder;
}

void CheckAllVectors(const VectorEncoders& encoders) {
  const auto lines = ReadLines(DI_SOURCE_DIR "/tests/golden/recipe/requests.jsonl.xz");
  ASSERT_TRUE(lines.ok()) << lines.status().message();
  ASSERT_EQ(lines->size(), kNumVectors);
  const std::vector<std::string> differences = CheckAll(
      *lines, [&](const Json& record) { return CheckRequestVector(record, Profile::kCompatible, encoders); });
  for (size_t i = 0; i < std::min(kShown, differences.size()); ++i) ADD_FAILURE() << differences[i];
  EXPECT_EQ(differences.size(), 0U);
}

TEST(RequestVectors, CompatibleProfileWithTheBundledTokenizer) {
  const auto bundled = LoadEncoder(DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json");
  ASSERT_NE(bundled, nullptr);
  CheckAllVectors({nullptr, bundled});
}

// The ids of V4 prompts are checked with the V4.1 file too: the vocabularies differ only in tokens that no V4 prompt has.
TEST(RequestVectors, CompatibleProfileWithThePublishedTokenizer) {
  const auto published = LoadEncoder(DI_BINARY_DIR "/data/v41/tokenizer.json");
  if (published == nullptr) GTEST_SKIP() << "no " DI_BINARY_DIR "/data/v41/tokenizer.json";
  CheckAllVectors({published, nullptr});
}

}  // namespace
}  // namespace deepinfer::recipe
