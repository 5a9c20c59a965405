// SPDX-License-Identifier: Apache-2.0
// The server's log: one JSON object a line, written by a thread of its own. Nobody who logs ever waits for the disk or
// for whoever reads the pipe: what does not fit into the buffer is dropped and counted, and the count is logged when
// writing works again. A full disk, a closed or unread pipe harm the log alone. Any thread may log.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"

namespace deepinfer::server {

// One line in the making: LogLine("request").Add("status", 200).Add("path", path).
class LogLine {
 public:
  explicit LogLine(std::string_view event, std::string_view level = "info");
  LogLine& Add(std::string_view name, std::string_view value);
  LogLine& Add(std::string_view name, const char* value) { return Add(name, std::string_view(value)); }
  LogLine& Add(std::string_view name, const std::string& value) { return Add(name, std::string_view(value)); }
  LogLine& Add(std::string_view name, int64_t value);
  LogLine& Add(std::string_view name, int value) { return Add(name, static_cast<int64_t>(value)); }
  LogLine& Add(std::string_view name, size_t value) { return Add(name, static_cast<int64_t>(value)); }
  LogLine& AddFloat(std::string_view name, double value, int digits);
  // `json` is a complete value, or several members when name is empty.
  LogLine& AddRaw(std::string_view name, std::string_view json);
  // The line, line end included.
  std::string Finish();

 private:
  std::string text_;
};

class JsonLog {
 public:
  // A log that appends to a file, or goes to stderr where `path` is empty.
  static Result<std::shared_ptr<JsonLog>> Open(const std::string& path, size_t buffer_bytes_max = size_t{1} << 20);
  // A log that writes to a descriptor, which stays the caller's.
  static std::shared_ptr<JsonLog> ToDescriptor(int fd, size_t buffer_bytes_max = size_t{1} << 20);
  // Waits up to a second for what is buffered.
  ~JsonLog();

  void Write(LogLine line);
  // Lines that were lost so far.
  int64_t dropped() const;

 private:
  struct State;
  explicit JsonLog(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace deepinfer::server
