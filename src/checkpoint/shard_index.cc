// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard_index.h"

#include "core/file.h"
#include "core/json.h"

namespace deepinfer::checkpoint {
namespace {

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name[0] != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name.ends_with(".safetensors");
}

}  // namespace

std::set<std::string> ShardIndex::Files() const {
  std::set<std::string> files;
  for (const auto& [name, file] : file_of) files.insert(file);
  return files;
}

Result<ShardIndex> ParseShardIndex(std::string_view json_text) {
  Result<Json> json = ParseJson(json_text, {.size_bytes_max = kShardIndexSizeMax, .depth_max = 8});
  if (!json.ok()) return json.status();
  const Json* map = json->Find("weight_map");
  if (map == nullptr || !map->IsObject()) return Error(Code::kDataLoss, "weight_map: no object of that name");
  ShardIndex index;
  for (const auto& [name, file] : map->Members()) {
    const std::string shown = WriteJson(Json(name.substr(0, 200)), {.ascii_only = true});
    if (!file.IsString() || !IsPlainFileName(file.AsString())) {
      return Error(Code::kDataLoss, "weight_map: {}: expected the name of a .safetensors file beside the index", shown);
    }
    if (!index.file_of.emplace(name, file.AsString()).second) {
      return Error(Code::kDataLoss, "weight_map: {} appears twice", shown);
    }
  }
  if (index.file_of.empty()) return Error(Code::kDataLoss, "weight_map is empty");
  const Json* metadata = json->Find("metadata");
  const Json* total = metadata == nullptr ? nullptr : metadata->Find("total_size");
  if (total != nullptr) index.total_size = total->ToInt64();
  return index;
}

Result<ShardIndex> ReadShardIndex(const std::string& path) {
  DI_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kShardIndexSizeMax));
  Result<ShardIndex> index = ParseShardIndex(text);
  if (!index.ok()) return index.status().In(path);
  return index;
}

}  // namespace deepinfer::checkpoint
