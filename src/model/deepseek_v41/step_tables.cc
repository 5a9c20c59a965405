// SPDX-License-Identifier: Apache-2.0
#include "model/deepseek_v41/step_tables.h"

#include "core/check.h"

namespace deepinfer::model::deepseek_v41 {

Result<StepTables> StepTables::Create(backend::Backend& backend, int64_t bytes_max) {
  StepTables tables;
  DI_ASSIGN_OR_RETURN(tables.device_, backend.Allocate(static_cast<size_t>(bytes_max)));
  tables.host_.reserve(static_cast<size_t>(bytes_max));
  return Result<StepTables>(std::move(tables));
}

const std::byte* StepTables::AddBytes(std::span<const std::byte> bytes) {
  const size_t at = host_.size();
  const auto room = static_cast<size_t>(Room(static_cast<int64_t>(bytes.size())));
  DI_CHECK(at + room <= device_.size_bytes());
  host_.insert(host_.end(), bytes.begin(), bytes.end());
  host_.resize(at + room);
  return device_.as<std::byte>() + at;
}

}  // namespace deepinfer::model::deepseek_v41
