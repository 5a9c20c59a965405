// SPDX-License-Identifier: Apache-2.0
#include "cli/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "core/file.h"
#include "core/json.h"

namespace deepinfer::cli {
namespace {

// A result may be as long as the answers of a request with many choices; what is longer is no result of ours.
constexpr size_t kResultBytesMax = size_t{1} << 30;

}  // namespace

Result<BatchOutput> BatchOutput::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return FileError(errno, "open", path);
  BatchOutput output(fd, path);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Error(Code::kUnavailable, "{}: another process is writing to it", path);
    return FileError(errno, "lock", path);
  }
  DI_RETURN_IF_ERROR(output.Load());
  return output;
}

BatchOutput::BatchOutput(BatchOutput&& other) noexcept
    : fd_(other.fd_), path_(std::move(other.path_)), size_(other.size_), ids_(std::move(other.ids_)) {
  other.fd_ = -1;
}

BatchOutput::~BatchOutput() {
  if (fd_ >= 0) close(fd_);
}

Status BatchOutput::Add(std::string_view line, size_t number) {
  const Result<Json> json = ParseJson(line, {.size_bytes_max = kResultBytesMax});
  const Json* custom_id = json.ok() ? json->Find("custom_id") : nullptr;
  const Json* id = json.ok() ? json->Find("id") : nullptr;
  if (custom_id == nullptr || !custom_id->IsString() || id == nullptr || !id->IsString()) {
    return Error(Code::kInvalidArgument, "{}: line {} is no result of deepinfer batch; name another --output", path_, number);
  }
  ids_[custom_id->AsString()] = id->AsString();
  return Status();
}

Status BatchOutput::Load() {
  std::string buffer;
  constexpr size_t kReadBytes = size_t{1} << 20;
  size_t number = 0;
  while (true) {
    const size_t old = buffer.size();
    buffer.resize(old + kReadBytes);
    const ssize_t got = read(fd_, buffer.data() + old, kReadBytes);
    if (got < 0 && errno == EINTR) {
      buffer.resize(old);
      continue;
    }
    if (got < 0) return FileError(errno, "read", path_);
    buffer.resize(old + static_cast<size_t>(got));
    if (got == 0) break;
    size_t begin = 0;
    for (size_t feed; (feed = buffer.find('\n', std::max(begin, old))) != std::string::npos; begin = feed + 1) {
      DI_RETURN_IF_ERROR(Add(std::string_view(buffer).substr(begin, feed - begin), ++number));
      size_ += static_cast<int64_t>(feed + 1 - begin);
    }
    buffer.erase(0, begin);
    if (buffer.size() > kResultBytesMax) return Add(buffer, number + 1);
  }
  if (!buffer.empty() && number == 0 && !buffer.starts_with("{\"id\":\"batch_req_")) return Add(buffer, 1);
  return Truncate(size_);  // a torn last line
}

Status BatchOutput::Truncate(int64_t size) {
  if (ftruncate(fd_, size) != 0) return FileError(errno, "truncate", path_);
  if (lseek(fd_, size, SEEK_SET) < 0) return FileError(errno, "seek", path_);
  return Status();
}

BatchOutput::Known BatchOutput::Find(const std::string& custom_id, const std::string& id) const {
  const auto it = ids_.find(custom_id);
  if (it == ids_.end()) return Known::kNo;
  return it->second == id ? Known::kYes : Known::kOther;
}

Status BatchOutput::Append(const std::string& custom_id, const std::string& id, std::string line) {
  line += '\n';
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t n = write(fd_, line.data() + written, line.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const Status error = FileError(errno, "write", path_);
      DI_RETURN_IF_ERROR(Truncate(size_));
      return error;
    }
    written += static_cast<size_t>(n);
  }
  size_ += static_cast<int64_t>(line.size());
  ids_[custom_id] = id;
  return Status();
}

Status BatchOutput::Sync() {
  if (fdatasync(fd_) != 0 && errno != EINVAL && errno != EROFS) return FileError(errno, "sync", path_);
  return Status();
}

}  // namespace deepinfer::cli
