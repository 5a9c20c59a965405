// SPDX-License-Identifier: Apache-2.0
// A small checkpoint in memory that tests change, damage and write out.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"
#include "core/json.h"
#include "core/temporary_directory.h"

namespace deepinfer::checkpoint {

struct TensorData {
  DType dtype = DType::kU8;
  Shape shape;
  std::string bytes;
};
using Tensors = std::map<std::string, TensorData>;

struct CheckpointFiles {
  Json config;
  Tensors tensors;

  // A golden checkpoint: "model/base", "dspark". Aborts where it cannot be read.
  static CheckpointFiles Golden(std::string_view folder);

  // Settings below text_config. Set replaces or adds.
  void Set(std::string_view key, Json value);
  void Set(std::string_view key, int64_t value) { Set(key, Json::Integer(value)); }
  void Remove(std::string_view key);

  void WriteConfig(const std::string& directory) const;
  // config.json and model.safetensors.
  void Write(const std::string& directory) const;
  // config.json, model-0000i-of-0000n.safetensors with every n-th tensor each, and the index.
  void WriteSharded(const std::string& directory, int num_shards) const;
};

void WriteTensors(const std::string& path, const Tensors& tensors);
void WriteText(const std::string& path, std::string_view text);
// A file as a hostile writer might make it: this length, this header, these bytes.
void WriteRaw(const std::string& path, uint64_t length, std::string_view header, std::string_view data);
// The same with the true length.
void WriteRaw(const std::string& path, std::string_view header, std::string_view data);

// Processor time of this process: what a test may bound on a busy machine.
double CpuSeconds();

// Messages that a test looks into.
std::string OpenError(const std::string& directory);  // "" where it opens
std::string AllWarnings(const Checkpoint& checkpoint);

}  // namespace deepinfer::checkpoint
