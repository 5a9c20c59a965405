// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_files.h"

#include <algorithm>
#include <ctime>

#include "core/file.h"

namespace deepinfer::checkpoint {
namespace {

Json* TextConfig(Json* config) {
  Json* text = config->Find("text_config");
  DI_CHECK(text != nullptr);
  return text;
}

}  // namespace

CheckpointFiles CheckpointFiles::Golden(std::string_view folder) {
  const std::string directory = fmt::format("{}/tests/golden/{}", DI_SOURCE_DIR, folder);
  CheckpointFiles files;
  files.config = *ParseJson(*ReadFile(directory + "/config.json", kConfigSizeMax));
  const Result<SafetensorsFile> file = SafetensorsFile::Open(directory + "/model.safetensors");
  DI_CHECK(file.ok());
  for (const TensorInfo& info : file->header().tensors) {
    const auto bytes = file->View(info).bytes();
    files.tensors[info.name] = {info.dtype, info.shape,
                                std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
  }
  return files;
}

void CheckpointFiles::Set(std::string_view key, Json value) {
  Json* text = TextConfig(&config);
  if (Json* old = text->Find(key); old != nullptr) {
    *old = std::move(value);
  } else {
    text->Members().emplace_back(std::string(key), std::move(value));
  }
}

void CheckpointFiles::Remove(std::string_view key) {
  std::erase_if(TextConfig(&config)->Members(), [&](const Json::Member& member) { return member.first == key; });
}

void CheckpointFiles::WriteConfig(const std::string& directory) const {
  WriteText(directory + "/config.json", WriteJson(config));
}

void CheckpointFiles::Write(const std::string& directory) const {
  WriteConfig(directory);
  WriteTensors(directory + "/model.safetensors", tensors);
}

void CheckpointFiles::WriteSharded(const std::string& directory, int num_shards) const {
  WriteConfig(directory);
  std::vector<Tensors> shards(static_cast<size_t>(num_shards));
  Json::Object map;
  int64_t total = 0;
  size_t next = 0;
  for (const auto& [name, tensor] : tensors) {
    const size_t shard = next++ % shards.size();
    shards[shard][name] = tensor;
    map.emplace_back(name, Json(fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, num_shards)));
    total += static_cast<int64_t>(tensor.bytes.size());
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    WriteTensors(fmt::format("{}/model-{:05}-of-{:05}.safetensors", directory, i + 1, num_shards), shards[i]);
  }
  const Json index(Json::Object{{"metadata", Json(Json::Object{{"total_size", Json::Integer(total)}})},
                                {"weight_map", Json(std::move(map))}});
  WriteText(directory + "/model.safetensors.index.json", WriteJson(index));
}

void WriteTensors(const std::string& path, const Tensors& tensors) {
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : tensors) {
    named.push_back({name, {tensor.dtype, tensor.shape, reinterpret_cast<const std::byte*>(tensor.bytes.data())}});
  }
  // Widest elements first, so that each is aligned: names alone would put one-byte scales before floats.
  std::stable_sort(named.begin(), named.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return DTypeSize(a.tensor.dtype) > DTypeSize(b.tensor.dtype);
  });
  DI_CHECK(WriteSafetensors(path, named).ok());
}

void WriteText(const std::string& path, std::string_view text) { DI_CHECK(WriteFileAtomically(path, text).ok()); }

void WriteRaw(const std::string& path, uint64_t length, std::string_view header, std::string_view data) {
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += header;
  bytes += data;
  WriteText(path, bytes);
}

void WriteRaw(const std::string& path, std::string_view header, std::string_view data) {
  WriteRaw(path, header.size(), header, data);
}

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::string OpenError(const std::string& directory) { return Checkpoint::Open(directory).status().message(); }

std::string AllWarnings(const Checkpoint& checkpoint) {
  return fmt::format("{}", fmt::join(checkpoint.warnings(), "\n"));
}

}  // namespace deepinfer::checkpoint
