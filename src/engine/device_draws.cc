// SPDX-License-Identifier: Apache-2.0
#include "engine/device_draws.h"

namespace deepinfer::engine {

Result<DeviceDraws> DeviceDraws::Create(backend::Backend& backend, int64_t rows_max, int64_t vocab) {
  DeviceDraws draws;
  draws.backend_ = &backend;
  draws.vocab_ = vocab;
  if (draws.on()) {
    draws.draws_max_ = static_cast<size_t>(rows_max);
    DI_ASSIGN_OR_RETURN(draws.device_draws_, backend.Allocate(draws.draws_max_ * sizeof(backend::SampleDraw)));
    DI_ASSIGN_OR_RETURN(draws.device_tokens_, backend.Allocate(draws.draws_max_ * sizeof(int32_t)));
  }
  return Result<DeviceDraws>(std::move(draws));
}

void DeviceDraws::Begin(size_t rows) {
  draws_.clear();
  host_rows_.assign(rows, 0);
}

std::optional<size_t> DeviceDraws::Add(const std::optional<backend::SampleDraw>& draw, int32_t logits_row) {
  if (!draw || draws_.size() >= draws_max_) {
    host_rows_[static_cast<size_t>(logits_row)] = 1;
    return std::nullopt;
  }
  draws_.push_back(*draw);
  draws_.back().logits_row = logits_row;
  return draws_.size() - 1;
}

void DeviceDraws::Queue(const float* device_logits, std::vector<float>* host_logits) {
  const auto row_bytes = static_cast<size_t>(vocab_) * sizeof(float);
  host_logits->resize(host_rows_.size() * static_cast<size_t>(vocab_));
  if (!draws_.empty()) {
    const auto rows = static_cast<int64_t>(draws_.size());
    backend_->CopyToDevice(device_draws_.data(), draws_.data(), draws_.size() * sizeof(backend::SampleDraw));
    backend_->Sample({.rows = rows,
                      .vocab = vocab_,
                      .logits = device_logits,
                      .draws = device_draws_.as<backend::SampleDraw>(),
                      .tokens = device_tokens_.as<int32_t>()});
    tokens_.resize(draws_.size());
    backend_->CopyToHost(tokens_.data(), device_tokens_.data(), tokens_.size() * sizeof(int32_t));
  }
  // Neighbours in one copy.
  for (size_t begin = 0; begin < host_rows_.size();) {
    size_t end = begin;
    while (end < host_rows_.size() && host_rows_[end] != 0) ++end;
    const size_t offset = begin * static_cast<size_t>(vocab_);
    if (end > begin) backend_->CopyToHost(host_logits->data() + offset, device_logits + offset, (end - begin) * row_bytes);
    begin = end + 1;
  }
}

}  // namespace deepinfer::engine
