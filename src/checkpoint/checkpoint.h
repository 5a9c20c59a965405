// SPDX-License-Identifier: Apache-2.0
// A checkpoint directory: its config, its shards mapped as they lie on disk, and every tensor by name.
// Opening checks the whole of it: each tensor that the config calls for is there with an allowed type and the right
// shape, so that binding weights to fields cannot fail later. Nothing is converted or cached; opening again after the
// files were replaced gives the new weights.
// Const use from many threads is safe. Views live as long as the Checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"
#include "core/status.h"
#include "tensor/tensor_view.h"

namespace deepinfer::checkpoint {

// A matrix [rows, columns] as it is stored. Values are:
//   kBF16  weight BF16 [rows, columns]
//   kFP8   weight F8_E4M3 [rows, columns], scale F8_E8M0 [ceil(rows/32), columns/32]: one per 32x32 tile
//   kFP8Rows  the same with scale [rows, columns/32]: one per row and 32 columns (Engram tables)
//   kFP4   weight I8 [rows, columns/2], two e2m1 codes a byte, even column in the low nibble; scale F8_E8M0
//          [rows, columns/32]
struct StoredMatrix {
  enum class Format { kBF16, kFP8, kFP8Rows, kFP4 };
  Format format = Format::kBF16;
  int64_t rows = 0;
  int64_t columns = 0;
  const std::byte* weight = nullptr;
  const std::byte* scale = nullptr;  // null for kBF16
};

class Checkpoint {
 public:
  // Errors name the file and the tensor. Where tensors are missing, the message lists them (the first ones of many).
  static Result<Checkpoint> Open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  const ModelConfig& config() const { return config_; }
  // config.json as it was when it was read.
  const std::string& config_text() const { return config_text_; }

  // Whether the tensors of the draft model (mtp.*) and of the image encoder (vision.*, aligner.*, image_*) are there.
  bool has_draft() const { return has_draft_; }
  // Why a draft model that the config describes cannot be used, tensors named; one of the warnings. Empty: no such.
  const std::string& draft_problem() const { return draft_problem_; }
  bool has_vision() const { return has_vision_; }
  // What the user should know: keys and tensors that were not used, files that were not read, an absent draft.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // A matrix "layers.0.attn.wq_a" (without ".weight"), quantised or not. head.weight resolves to embed.weight where the
  // two are tied. REQUIRES: one that the config calls for, or of a part for which has_draft() or has_vision() is true.
  StoredMatrix Matrix(std::string_view name) const;
  // Any tensor by its full name, with data aligned for its type. REQUIRES: as above.
  TensorView Tensor(std::string_view name) const;
  // Any tensor of the files; nullptr where there is none of that name.
  const TensorView* Find(std::string_view name) const;

  const std::vector<SafetensorsFile>& shards() const { return shards_; }
  // kDataLoss once a shard was truncated or could not be read after it was opened. What was computed before the call
  // and after the last one that was ok is not to be trusted then. Costs one fstat a shard.
  Status CheckIntact() const;

 private:
  friend class CheckpointOpener;
  Checkpoint() = default;

  struct Stored {
    TensorView view;
    size_t shard = 0;
  };
  struct NameHash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  std::string directory_;
  ModelConfig config_;
  std::string config_text_;
  bool has_draft_ = false;
  bool has_vision_ = false;
  std::string draft_problem_;
  std::vector<std::string> warnings_;
  std::vector<SafetensorsFile> shards_;
  std::unordered_map<std::string, Stored, NameHash, std::equal_to<>> tensors_;
  std::vector<std::unique_ptr<std::byte[]>> realigned_;  // copies of tensors that lie misaligned in their file
};

}  // namespace deepinfer::checkpoint
