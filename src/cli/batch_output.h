// SPDX-License-Identifier: Apache-2.0
// The results of `deepinfer batch`: a file of JSON lines that only grows, a whole line at a time, in the order in which
// requests end. Opening it again finds the lines that are there; what a crash left of a last line is cut off. So a run may be
// ended at any moment, by any means, and be continued. The file is locked while it is open: two runs do not share one.
// One thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "core/status.h"

namespace deepinfer::cli {

class BatchOutput {
 public:
  // Creates the file or reads it. kInvalidArgument where it holds other lines than results: nothing is changed then.
  // kUnavailable where another process has it open.
  static Result<BatchOutput> Open(const std::string& path);
  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;
  ~BatchOutput();

  enum class Known { kNo, kYes, kOther };
  // Whether the request is answered; kOther: another request under that custom_id is.
  Known Find(const std::string& custom_id, const std::string& id) const;
  size_t size() const { return ids_.size(); }

  // `line` is JSON without a line feed. kResourceExhausted where the disk is full: the file still ends with whole lines.
  Status Append(const std::string& custom_id, const std::string& id, std::string line);
  // To the disk.
  Status Sync();

 private:
  BatchOutput(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Status Load();
  Status Add(std::string_view line, size_t number);
  Status Truncate(int64_t size);

  int fd_;
  std::string path_;
  int64_t size_ = 0;
  std::unordered_map<std::string, std::string> ids_;  // custom_id -> id
};

}  // namespace deepinfer::cli
