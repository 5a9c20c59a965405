// SPDX-License-Identifier: Apache-2.0
// The tables of a step in one piece of device memory, brought there by one copy. A recording of the step's ops reads them
// at fixed addresses, so what is added, and in which order, must be a function of the number of rows alone.
#pragma once

#include <span>
#include <vector>

#include "backend/api/backend.h"

namespace deepinfer::model::deepseek_v41 {

class StepTables {
 public:
  StepTables() = default;
  static Result<StepTables> Create(backend::Backend& backend, int64_t bytes_max);
  // Room that an array of `bytes` takes.
  static int64_t Room(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  void Clear() { host_.clear(); }
  // Where the values will be on the device after Upload.
  template <typename T>
  const T* Add(std::span<const T> values) {
    return reinterpret_cast<const T*>(AddBytes(std::as_bytes(values)));
  }
  void Upload(backend::Backend& backend) { backend.CopyToDevice(device_.data(), host_.data(), host_.size()); }
  size_t size_bytes() const { return device_.size_bytes(); }

 private:
  static constexpr int64_t kAlignment = 64;
  const std::byte* AddBytes(std::span<const std::byte> bytes);

  backend::Buffer device_;
  std::vector<std::byte> host_;
};

}  // namespace deepinfer::model::deepseek_v41
