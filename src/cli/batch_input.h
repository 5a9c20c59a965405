// SPDX-License-Identifier: Apache-2.0
// The requests of `deepinfer batch`: a file of JSON lines, read as it is needed. A line is either of the OpenAI batch layout,
//   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
// or the body of a completion alone, {"prompt": "...", ...}, which may have a custom_id; without one it is called "line-N".
// Everything in the file is hostile until checked: lines have a limit, and a bad one harms no other.
// One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.h"
#include "deepinfer/recipe.h"

namespace deepinfer::cli {

inline constexpr size_t kBatchLineBytesMax = size_t{64} << 20;

class LineReader {
 public:
  // `path`: a file, or "-" for stdin. kNotFound and the like name it.
  static Result<LineReader> Open(const std::string& path, size_t line_bytes_max = kBatchLineBytesMax);
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;
  ~LineReader();

  enum class Next {
    kLine,     // *line is the next one, without its line feed; maybe empty
    kTooLong,  // it was over the limit and is skipped; *line holds its first bytes
    kNotYet,   // nothing came within wait_ms
    kEnd,
  };
  // Errors: the input cannot be read on.
  Result<Next> Read(int wait_ms, std::string* line);
  int64_t line_number() const { return number_; }  // of the last line, from 1

  // Lines of a regular file; -1 for anything else.
  static int64_t Count(const std::string& path);

 private:
  LineReader(int fd, std::string path, size_t line_bytes_max) : fd_(fd), path_(std::move(path)), line_bytes_max_(line_bytes_max) {}
  // Moves the next line out of buffer_, if it is whole (or the last).
  bool TakeLine(std::string* line, bool* too_long);

  int fd_;
  std::string path_;
  size_t line_bytes_max_;
  std::string buffer_;
  size_t begin_ = 0;    // of the next line in buffer_
  size_t scanned_ = 0;  // no line feed in [begin_, scanned_)
  bool skipping_ = false;  // the rest of a line that was too long
  std::string skipped_;    // its first bytes
  bool end_ = false;
  int64_t number_ = 0;
};

// What a line asks for.
struct BatchLine {
  std::string custom_id;
  std::string id;  // digest of custom_id and all that the line asks: the same line again has the same id
  recipe::Protocol protocol = recipe::Protocol::kCompletions;
  std::string body;  // JSON
};

struct BatchLineError {
  std::string code;  // "invalid_json", "invalid_request", ...
  std::string message;
};

// `line` is the number of the line. False: *error says why, and *out has ids to report it under.
bool ParseBatchLine(std::string_view text, int64_t line, BatchLine* out, BatchLineError* error);
// Ids for a line that cannot have those it asks for, of which `first` is the beginning.
void NameBadLine(std::string_view first, int64_t line, BatchLine* out);

}  // namespace deepinfer::cli
