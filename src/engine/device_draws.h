// SPDX-License-Identifier: Apache-2.0
// Draws of a step that the device makes, so that of their logits only tokens travel back. Those are the draws that depend on
// logits, seed and position alone; the host makes all others, from copied rows. Both give the same tokens.
// One thread at a time.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "backend/api/backend.h"

namespace deepinfer::engine {

class DeviceDraws {
 public:
  // Of at most rows_max rows of logits. Does nothing on a backend that cannot draw. Errors: kResourceExhausted.
  static Result<DeviceDraws> Create(backend::Backend& backend, int64_t rows_max, int64_t vocab);

  bool on() const { return backend_ != nullptr && backend_->can_sample(); }
  // A new step with so many rows of logits; the host reads none of them.
  void Begin(size_t rows);
  // The device draws from a row; nothing where it cannot: the host reads that row then. Returns the place of the token.
  std::optional<size_t> Add(const std::optional<backend::SampleDraw>& draw, int32_t logits_row);

  // Queues the draws and the copies of the rows that the host reads, into their places among `host_logits` [rows, vocab].
  void Queue(const float* device_logits, std::vector<float>* host_logits);
  // After the device was synchronised: a token, or -1 where no token is allowed.
  int32_t token(size_t place) const { return tokens_[place]; }

 private:
  backend::Backend* backend_ = nullptr;
  int64_t vocab_ = 0;
  size_t draws_max_ = 0;
  backend::Buffer device_draws_, device_tokens_;
  std::vector<backend::SampleDraw> draws_;
  std::vector<int32_t> tokens_;
  std::vector<uint8_t> host_rows_;  // [rows]: whether the host reads it
};

}  // namespace deepinfer::engine
