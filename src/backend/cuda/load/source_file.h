// SPDX-License-Identifier: Apache-2.0
// A checkpoint file read past its mapping: directly from the disk where its pages are not in memory (faster than page
// faults, and nothing else is driven out of the page cache), else from the page cache.
// Read may be called from many threads, each with a buffer of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include "backend/api/backend.h"
#include "core/status.h"

namespace deepinfer::backend::cuda {

class SourceFileReader {
 public:
  // Bytes that a buffer needs beyond those that are read, and its alignment.
  static constexpr size_t kAlignment = 4096;
  static constexpr size_t kSlack = 2 * kAlignment;

  static Result<std::unique_ptr<SourceFileReader>> Open(const SourceFile& file);
  ~SourceFileReader();
  SourceFileReader(const SourceFileReader&) = delete;
  SourceFileReader& operator=(const SourceFileReader&) = delete;

  bool Covers(const void* data) const {
    const auto* at = static_cast<const std::byte*>(data);
    return at >= file_.base && at < file_.base + file_.size_bytes;
  }
  // Reads the bytes that are mapped at [data, + size_bytes) into `buffer`, somewhere; returns where. kDataLoss where the
  // file has no such bytes any more.
  Result<const std::byte*> Read(const void* data, size_t size_bytes, std::byte* buffer);
  bool direct() const { return direct_; }

 private:
  explicit SourceFileReader(const SourceFile& file) : file_(file) {}

  SourceFile file_;
  int cached_fd_ = -1, direct_fd_ = -1;
  std::atomic<bool> direct_ = false;
};

}  // namespace deepinfer::backend::cuda
