// SPDX-License-Identifier: Apache-2.0
#include "model/deepseek_v41/row_set.h"

#include <utility>

namespace deepinfer::model::deepseek_v41 {

Result<RowArray> RowArray::Create(backend::Backend& backend, int64_t rows_max, int64_t row_bytes) {
  RowArray array;
  array.row_bytes_ = row_bytes;
  const auto bytes = static_cast<size_t>(rows_max * row_bytes);
  DI_ASSIGN_OR_RETURN(array.current_, backend.Allocate(bytes));
  DI_ASSIGN_OR_RETURN(array.spare_, backend.Allocate(bytes));
  return array;
}

void RowArray::Gather(backend::Backend& backend, const int32_t* index, int64_t rows) {
  backend.GatherRows({.rows = rows, .row_bytes = row_bytes_, .src = current_.data(), .index = index, .dst = spare_.data()});
  std::swap(current_, spare_);
}

Result<RowSet> RowSet::Create(backend::Backend& backend, int64_t rows_max) {
  RowSet set;
  const auto bytes = static_cast<size_t>(rows_max) * sizeof(int32_t);
  DI_ASSIGN_OR_RETURN(set.device_positions_, backend.Allocate(bytes));
  DI_ASSIGN_OR_RETURN(set.device_requests_, backend.Allocate(bytes));
  DI_ASSIGN_OR_RETURN(set.device_index_, backend.Allocate(bytes));
  for (auto* list : {&set.rows_, &set.positions_, &set.segments_, &set.requests_, &set.kept_}) {
    list->reserve(static_cast<size_t>(rows_max));
  }
  return set;
}

void RowSet::Reset(backend::Backend& backend, const Step& step) {
  Pad(step, 0);
  Upload(backend, step);
}

void RowSet::Pad(const Step& step, int64_t pad) {
  rows_.assign(static_cast<size_t>(pad), 0);
  positions_.assign(rows_.size(), step.segments[0].begin);
  segments_.assign(rows_.size(), 0);
  int32_t row = 0;
  for (size_t s = 0; s < step.segments.size(); ++s) {
    for (int32_t p = step.segments[s].begin; p < step.segments[s].end; ++p) {
      rows_.push_back(row++);
      positions_.push_back(p);
      segments_.push_back(static_cast<int32_t>(s));
    }
  }
  requests_.clear();
  for (const int32_t s : segments_) requests_.push_back(step.segments[static_cast<size_t>(s)].request);
}

void RowSet::Narrow(backend::Backend& backend, const Step& step, int64_t layer, std::span<RowArray* const> arrays) {
  kept_.clear();
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Segment& segment = step.segments[static_cast<size_t>(segments_[i])];
    if (positions_[i] >= segment.run_from[static_cast<size_t>(layer)]) kept_.push_back(static_cast<int32_t>(i));
  }
  if (kept_.size() == rows_.size()) return;
  for (size_t i = 0; i < kept_.size(); ++i) {
    const auto from = static_cast<size_t>(kept_[i]);
    rows_[i] = rows_[from];
    positions_[i] = positions_[from];
    segments_[i] = segments_[from];
  }
  for (auto* list : {&rows_, &positions_, &segments_}) list->resize(kept_.size());
  backend.CopyToDevice(device_index_.data(), kept_.data(), kept_.size() * sizeof(int32_t));
  for (RowArray* array : arrays) array->Gather(backend, device_index_.as<int32_t>(), size());
  Upload(backend, step);
}

void RowSet::Upload(backend::Backend& backend, const Step& step) {
  requests_.clear();
  for (const int32_t s : segments_) requests_.push_back(step.segments[static_cast<size_t>(s)].request);
  backend.CopyToDevice(device_positions_.data(), positions_.data(), positions_.size() * sizeof(int32_t));
  backend.CopyToDevice(device_requests_.data(), requests_.data(), requests_.size() * sizeof(int32_t));
  SetDevice(device_positions_.as<int32_t>(), device_requests_.as<int32_t>());
}

}  // namespace deepinfer::model::deepseek_v41
