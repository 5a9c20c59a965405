// SPDX-License-Identifier: Apache-2.0
// The compressed vocabulary equals the stored maps of the golden checkpoints, and has the known sizes for the bundled
// tokenizer (6,898) and the published one (99,092).
#include "tokenizer/compressed_vocab.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/json.h"

namespace deepinfer {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// An int32 tensor of a safetensors file; empty where the file has none of that name.
std::vector<int32_t> ReadInt32Tensor(const std::string& path, const char* name) {
  const std::string content = ReadAll(path);
  uint64_t header_size = 0;
  std::memcpy(&header_size, content.data(), 8);
  const Result<Json> header = ParseJson(std::string_view(content).substr(8, header_size));
  EXPECT_TRUE(header.ok());
  const Json* tensor = header->Find(name);
  if (tensor == nullptr) return {};
  EXPECT_EQ(tensor->Find("dtype")->AsString(), "I32");
  const Json::Array& offsets = tensor->Find("data_offsets")->Items();
  const auto begin = *offsets[0].ToInt64();
  std::vector<int32_t> values((*offsets[1].ToInt64() - begin) / 4);
  std::memcpy(values.data(), content.data() + 8 + header_size + begin, values.size() * 4);
  return values;
}

CompressedVocab Compress(const std::string& path) {
  const Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::Load(path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const Result<CompressedVocab> vocab = CompressVocab(**tokenizer);
  EXPECT_TRUE(vocab.ok()) << vocab.status().message();
  return *vocab;
}

TEST(CompressedVocab, EqualsTheStoredMaps) {
  int maps = 0;
  for (const auto& folder : std::filesystem::recursive_directory_iterator(DI_SOURCE_DIR "/tests/golden")) {
    const std::filesystem::path golden = folder.path() / "golden.safetensors";
    if (!folder.is_directory() || !std::filesystem::exists(golden)) continue;
    const std::vector<int32_t> expected = ReadInt32Tensor(golden, "engram_map");
    if (expected.empty()) continue;
    ++maps;
    EXPECT_EQ(Compress(folder.path() / "tokenizer.json").ids, expected) << golden;
  }
  EXPECT_GE(maps, 1);
}

TEST(CompressedVocab, BundledTokenizer) {
  const CompressedVocab vocab = Compress(DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json");
  EXPECT_EQ(vocab.ids.size(), 8192u);
  EXPECT_EQ(vocab.size, 6898);
}

TEST(CompressedVocab, PublishedTokenizer) {
  const std::string path = DI_BINARY_DIR "/data/v41/tokenizer.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there; make it with tools/make_v41_tokenizer.py";
  const CompressedVocab vocab = Compress(path);
  EXPECT_EQ(vocab.ids.size(), 129280u);
  EXPECT_EQ(vocab.size, 99092);
  for (int32_t id : {0, 1, 2}) EXPECT_EQ(vocab.ids[id], id);
}

}  // namespace
}  // namespace deepinfer
