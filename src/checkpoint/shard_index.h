// SPDX-License-Identifier: Apache-2.0
// model.safetensors.index.json: which shard holds which tensor. A plain value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/status.h"

namespace deepinfer::checkpoint {

inline constexpr char kShardIndexName[] = "model.safetensors.index.json";
inline constexpr char kSingleShardName[] = "model.safetensors";  // where a checkpoint has no index
inline constexpr size_t kShardIndexSizeMax = size_t{256} << 20;

struct ShardIndex {
  std::map<std::string, std::string> file_of;  // tensor name -> plain file name, never empty
  std::optional<int64_t> total_size;           // bytes of all tensors

  std::set<std::string> Files() const;
};

// Every file is a plain name ending in .safetensors: an index cannot reach outside its directory. Errors (kDataLoss)
// do not name the file; ReadShardIndex's do.
Result<ShardIndex> ParseShardIndex(std::string_view json_text);
Result<ShardIndex> ReadShardIndex(const std::string& path);

}  // namespace deepinfer::checkpoint
