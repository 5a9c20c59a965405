// SPDX-License-Identifier: Apache-2.0
// The rows of a step that are still running. Layer by layer fewer may be needed (step.h, run_from); every per-row array
// on the device that later layers read is then gathered to the rows that stay. Arrays live in pairs of buffers, so that
// gathering is one copy and a swap.
#pragma once

#include <span>
#include <vector>

#include "backend/api/backend.h"
#include "model/deepseek_v41/step.h"

namespace deepinfer::model::deepseek_v41 {

// A device array with one entry per running row.
class RowArray {
 public:
  RowArray() = default;
  static Result<RowArray> Create(backend::Backend& backend, int64_t rows_max, int64_t row_bytes);

  template <typename T>
  T* as() const {
    return current_.as<T>();
  }
  int64_t row_bytes() const { return row_bytes_; }
  size_t size_bytes() const { return current_.size_bytes() + spare_.size_bytes(); }
  // Keeps the rows of the device list `index` [rows].
  void Gather(backend::Backend& backend, const int32_t* index, int64_t rows);

 private:
  backend::Buffer current_, spare_;
  int64_t row_bytes_ = 0;
};

// Which rows run: batch rows with their positions and requests, on the host; and the same on the device.
class RowSet {
 public:
  static Result<RowSet> Create(backend::Backend& backend, int64_t rows_max);

  // All rows of the step.
  void Reset(backend::Backend& backend, const Step& step);
  // The same without the device's lists (SetDevice has them), and with `pad` copies of the first row in front.
  void Pad(const Step& step, int64_t pad);
  void SetDevice(const int32_t* positions, const int32_t* requests) {
    positions_at_ = positions;
    requests_at_ = requests;
  }
  // Leaves the rows whose position is at least its segment's run_from[layer] and gathers `arrays` accordingly.
  void Narrow(backend::Backend& backend, const Step& step, int64_t layer, std::span<RowArray* const> arrays);

  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  std::span<const int32_t> rows() const { return rows_; }            // batch row of each
  std::span<const int32_t> positions() const { return positions_; }
  std::span<const int32_t> segments() const { return segments_; }    // index into step.segments of each
  std::span<const int32_t> requests() const { return requests_; }
  const int32_t* device_positions() const { return positions_at_; }
  const int32_t* device_requests() const { return requests_at_; }

 private:
  void Upload(backend::Backend& backend, const Step& step);

  std::vector<int32_t> rows_, positions_, segments_, requests_, kept_;
  backend::Buffer device_positions_, device_requests_, device_index_;
  const int32_t *positions_at_ = nullptr, *requests_at_ = nullptr;
};

}  // namespace deepinfer::model::deepseek_v41
