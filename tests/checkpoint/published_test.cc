// SPDX-License-Identifier: Apache-2.0
// Property: the published config leads to the published inventory: names, types, shapes and totals; a checkpoint of its
// full size (sparse files) opens and gets its identity in seconds.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "checkpoint/digest.h"
#include "checkpoint/expected.h"
#include "checkpoint/identity.h"
#include "checkpoint_files.h"
#include "core/file.h"

namespace deepinfer::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string PublishedConfigText() {
  return *ReadFile(std::string(DI_SOURCE_DIR) + "/tests/checkpoint/published/config.json", kConfigSizeMax);
}

ModelConfig PublishedConfig() { return ParseModelConfig(PublishedConfigText())->config; }

struct StoredTensor {
  std::string name;
  DType dtype;
  Shape shape;
  int64_t SizeBytes() const { return *shape.NumElements() * static_cast<int64_t>(DTypeSize(dtype)); }
};

// As the published files store what is expected.
std::vector<StoredTensor> PublishedTensors() {
  std::vector<StoredTensor> tensors;
  for (const ExpectedTensor& expected : ExpectedTensors(PublishedConfig())) {
    const auto rows = expected.shape.rank() > 0 ? expected.shape[0] : 1;
    const auto columns = expected.shape.rank() > 1 ? expected.shape[1] : 1;
    const std::string weight = expected.weight_name();
    const std::string scale = expected.scale_name();
    if (weight == "head.weight" || expected.storage == Storage::kBF16) {
      tensors.push_back({weight, DType::kBF16, expected.shape});
    } else if (expected.storage == Storage::kF32) {
      tensors.push_back({weight, DType::kF32, expected.shape});
    } else if (expected.storage == Storage::kFP4) {
      tensors.push_back({weight, DType::kI8, Shape({rows, columns / 2})});
      tensors.push_back({scale, DType::kF8E8M0, Shape({rows, columns / 32})});
    } else {
      const int64_t scale_rows = expected.storage == Storage::kFP8Tiles ? rows / 32 : rows;
      tensors.push_back({weight, DType::kF8E4M3, expected.shape});
      tensors.push_back({scale, DType::kF8E8M0, Shape({scale_rows, columns / 32})});
    }
  }
  return tensors;
}

TEST(Published, ConfigIsTheFileItself) {
  Digest digest(Digest::Kind::kSha256);
  digest.Add(PublishedConfigText());
  EXPECT_EQ(digest.Finish(), "8be45ce0476004a3f529fd896115a4a2e800a129ad2d3ec05b16050f52e21879");
  const Result<ParsedConfig> parsed = ParseModelConfig(PublishedConfigText());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->unknown_keys, std::vector<std::string>());
}

TEST(Published, Config) {
  const ModelConfig config = PublishedConfig();
  EXPECT_EQ(config.num_layers, 40);
  EXPECT_EQ(config.hidden_size, 5120);
  EXPECT_EQ(config.rms_norm_eps, 1e-20);
  EXPECT_EQ(config.compress_ratios.size(), 40u);
  EXPECT_EQ(config.candidate_source, 20);
  EXPECT_EQ(config.KvSourceOf(13), 8);
  EXPECT_EQ(config.KvSourceOf(39), 20);
  EXPECT_EQ(config.IndexSourceOf(23), 20);
  EXPECT_EQ(config.IndexSourceOf(31), 28);
  EXPECT_EQ(config.yarn.original_max_positions, 65536);
  EXPECT_EQ(config.draft.target_layers, (std::vector<int64_t>{37, 38, 39}));
  EXPECT_EQ(config.engram.num_columns(), 24);
  EXPECT_EQ(config.engram.width(), 6144);
  EXPECT_EQ(config.image_token_id, 129264);
  ASSERT_TRUE(config.vision.has_value());
  EXPECT_EQ(config.vision->min_pixels, 295936);
  EXPECT_FALSE(config.vision->max_aspect_ratio.has_value());
}

TEST(Published, Inventory) {
  std::map<DType, int64_t> count, bytes;
  int64_t total = 0;
  for (const StoredTensor& tensor : PublishedTensors()) {
    ++count[tensor.dtype];
    bytes[tensor.dtype] += tensor.SizeBytes();
    total += tensor.SizeBytes();
  }
  EXPECT_EQ(count, (std::map<DType, int64_t>{{DType::kBF16, 520},
                                             {DType::kF32, 387},
                                             {DType::kF8E4M3, 357},
                                             {DType::kF8E8M0, 47589},
                                             {DType::kI8, 47232}}));
  EXPECT_EQ(bytes, (std::map<DType, int64_t>{{DType::kBF16, 3952883712},
                                             {DType::kF32, 169229128},
                                             {DType::kF8E4M3, 204015223296},
                                             {DType::kF8E8M0, 23563015184},
                                             {DType::kI8, 278585671680}}));
  EXPECT_EQ(total, 510286023000);
}

// The flat spelling says the same.
TEST(Published, InferenceConfig) {
  const ModelConfig nested = PublishedConfig();
  const std::string text =
      *ReadFile(std::string(DI_SOURCE_DIR) + "/tests/checkpoint/published/inference_config.json", kConfigSizeMax);
  const Result<ParsedConfig> parsed = ParseModelConfig(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->unknown_keys, std::vector<std::string>());
  const ModelConfig& flat = parsed->config;
  EXPECT_TRUE(flat.quantized);
  EXPECT_EQ(flat.max_positions, 1048576);
  ASSERT_TRUE(flat.vision.has_value());
  EXPECT_EQ(flat.vision->hidden_size, nested.vision->hidden_size);
  EXPECT_EQ(flat.candidate_source, nested.candidate_source);
  EXPECT_EQ(flat.engram.pad_token_id, nested.engram.pad_token_id);
  EXPECT_EQ(flat.draft.num_experts_per_token, nested.draft.num_experts_per_token);
  const auto names = [](const ModelConfig& config) {
    std::vector<std::string> all;
    for (const ExpectedTensor& tensor : ExpectedTensors(config)) {
      all.push_back(tensor.name + tensor.shape.ToString());
    }
    return all;
  };
  EXPECT_EQ(names(flat), names(nested));
}

// The shard that a tensor lies in: its layer's, or one for each other group, as the published index has it.
std::string GroupOf(const std::string& name) {
  if (name.find(".engram.") != std::string::npos) return "engram" + name.substr(7, name.find('.', 7) - 7);
  for (const std::string_view prefix : {"layers.", "mtp."}) {
    if (name.starts_with(prefix)) return name.substr(0, name.find('.', prefix.size()));
  }
  if (name.starts_with("vision.") || name.starts_with("aligner.")) return "vision";
  return name.starts_with("head") || name.starts_with("norm") ? "head" : "embed";
}

// Writes the header of a shard and extends the file to its full size without writing the data.
void WriteSparseShard(const std::string& path, const std::vector<StoredTensor>& tensors) {
  Json::Object header;
  int64_t offset = 0;
  for (const StoredTensor& tensor : tensors) {
    Json::Array dims;
    for (const int64_t dim : tensor.shape.dims()) dims.push_back(Json::Integer(dim));
    const int64_t end = offset + tensor.SizeBytes();
    header.emplace_back(
        tensor.name,
        Json(Json::Object{{"dtype", Json(std::string(DTypeName(tensor.dtype)))},
                          {"shape", Json(std::move(dims))},
                          {"data_offsets", Json(Json::Array{Json::Integer(offset), Json::Integer(end)})}}));
    offset = end;
  }
  std::string text = WriteJson(Json(std::move(header)));
  text.append((8 - text.size() % 8) % 8, ' ');
  WriteRaw(path, text, "");
  fs::resize_file(path, 8 + text.size() + static_cast<uint64_t>(offset));
}

TEST(Published, FullSizeOpensInSeconds) {
  const core::TemporaryDirectory dir;
  WriteText(dir / "config.json", PublishedConfigText());
  std::map<std::string, std::vector<StoredTensor>> groups;
  Json::Object map;
  for (const StoredTensor& tensor : PublishedTensors()) {
    const std::string group = GroupOf(tensor.name);
    groups[group].push_back(tensor);
    map.emplace_back(tensor.name, Json(group + ".safetensors"));
  }
  ASSERT_EQ(groups.size(), 48u);
  try {
    for (const auto& [group, tensors] : groups) WriteSparseShard(dir / (group + ".safetensors"), tensors);
  } catch (const fs::filesystem_error& error) {
    GTEST_SKIP() << "no sparse files of this size here: " << error.what();
  }
  WriteText(dir / "model.safetensors.index.json",
            WriteJson(Json(Json::Object{{"metadata", Json(Json::Object{{"total_size", Json::Integer(510286023000)}})},
                                        {"weight_map", Json(std::move(map))}})));
  const double start = CpuSeconds();
  const Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const double opened = CpuSeconds();
  EXPECT_EQ(checkpoint->warnings(), std::vector<std::string>());
  EXPECT_TRUE(checkpoint->has_draft());
  EXPECT_TRUE(checkpoint->has_vision());
  ASSERT_TRUE(ModelIdentity(*checkpoint).ok());
  const double named = CpuSeconds();
  RecordProperty("open_seconds", std::to_string(opened - start));
  RecordProperty("identity_seconds", std::to_string(named - opened));
  EXPECT_LT(opened - start, 10);
  EXPECT_LT(named - opened, 20);
  const StoredMatrix table = checkpoint->Matrix("layers.14.engram.embed");
  EXPECT_EQ(table.format, StoredMatrix::Format::kFP8Rows);
  EXPECT_EQ(table.rows, 384016682);
  EXPECT_EQ(checkpoint->Matrix("layers.7.ffn.experts.383.w2").columns, 2304);
}

}  // namespace
}  // namespace deepinfer::checkpoint
