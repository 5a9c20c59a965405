// SPDX-License-Identifier: Apache-2.0
// The tensors that a config calls for: names, shapes, and the ways in which each may be stored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "tensor/shape.h"

namespace deepinfer::checkpoint {

// How a tensor may be stored. All but the first two are matrices `X` with X.weight and, where that is quantised,
// X.scale; each of them may also be plain BF16.
enum class Storage {
  kBF16,
  kF32,
  kFP8Tiles,  // F8_E4M3, a scale per 32x32 tile
  kFP8Rows,   // F8_E4M3, a scale per row and 32 columns
  kFP4,       // two to a byte, a scale per row and 32 columns
};

// Parts that a checkpoint may lack as a whole.
enum class Part { kText, kDraft, kVision };

struct ExpectedTensor {
  std::string name;  // the full name; of matrices that may be quantised, without ".weight"
  Storage storage = Storage::kBF16;
  Shape shape;  // of the values
  Part part = Part::kText;

  bool is_matrix() const { return storage != Storage::kBF16 && storage != Storage::kF32; }
  std::string weight_name() const { return is_matrix() ? name + ".weight" : name; }
  std::string scale_name() const { return name + ".scale"; }
};

// In the order of the model: embedding, layers, head, draft, image encoder.
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config);

}  // namespace deepinfer::checkpoint
