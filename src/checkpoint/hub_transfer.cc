// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hub_transfer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "checkpoint/digest.h"
#include "checkpoint/printable.h"
#include "core/file.h"

namespace deepinfer::checkpoint {
namespace {

constexpr int64_t kProgressBytes = 1 << 20;  // an attempt that brings this much does not count as failed

// "bytes 100-199/200" -> 100
std::optional<int64_t> RangeBegin(std::string_view header) {
  constexpr std::string_view kUnit = "bytes ";
  if (!header.starts_with(kUnit)) return std::nullopt;
  header.remove_prefix(kUnit.size());
  int64_t begin = 0;
  const auto [end, error] = std::from_chars(header.data(), header.data() + header.size(), begin);
  if (error != std::errc() || end == header.data() + header.size() || *end != '-') return std::nullopt;
  return begin;
}

// A file that is being fetched: what is there already, hashed as it grows.
class IncompleteFile {
 public:
  IncompleteFile(const HubFile& file, std::string path) : file_(file), path_(std::move(path)), digest_(NewDigest()) {}
  IncompleteFile(const IncompleteFile&) = delete;
  IncompleteFile& operator=(const IncompleteFile&) = delete;
  ~IncompleteFile() {
    if (fd_ >= 0) close(fd_);
  }

  int64_t size() const { return size_; }

  // Opens it and hashes what an earlier run has left.
  Status Open() {
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ < 0) return FileError(errno, "open", path_);
    std::vector<std::byte> buffer(size_t{1} << 20);
    while (true) {
      const ssize_t got = pread(fd_, buffer.data(), buffer.size(), static_cast<off_t>(size_));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return FileError(errno, "read", path_);
      if (got == 0) break;
      digest_.Add(std::span(buffer).first(static_cast<size_t>(got)));
      size_ += got;
    }
    return size_ > file_.size ? Restart() : Status();
  }

  Status Restart() {
    if (ftruncate(fd_, 0) != 0) return FileError(errno, "truncate", path_);
    size_ = 0;
    digest_ = NewDigest();
    return Status();
  }

  Status Append(std::span<const std::byte> bytes) {
    if (static_cast<int64_t>(bytes.size()) > file_.size - size_) {
      return Error(Code::kDataLoss, "{}: the hub lists {} bytes and sends more", file_.name, file_.size);
    }
    while (!bytes.empty()) {
      const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return FileError(errno, "write", path_);
      digest_.Add(bytes.first(static_cast<size_t>(written)));
      bytes = bytes.subspan(static_cast<size_t>(written));
      size_ += written;
    }
    return Status();
  }

  // Checks the hash and publishes the file as `path`. After a wrong hash it is empty again.
  Status Finish(const std::string& path) {
    const std::string found = digest_.Finish();
    if (found != file_.hash) {
      DI_RETURN_IF_ERROR(Restart());
      return Error(Code::kDataLoss, "{}: {} of the {} bytes fetched: expected {}, found {}", file_.name,
                   file_.is_sha256() ? "SHA-256" : "git object id", file_.size, file_.hash, found);
    }
    if (fsync(fd_) != 0) return FileError(errno, "write", path_);
    if (rename(path_.c_str(), path.c_str()) != 0) return FileError(errno, "rename to", path);
    return Status();
  }

 private:
  Digest NewDigest() const {
    Digest digest(file_.is_sha256() ? Digest::Kind::kSha256 : Digest::Kind::kSha1);
    if (!file_.is_sha256()) digest.Add(std::string_view(fmt::format("blob {}", file_.size) + '\0'));
    return digest;
  }

  const HubFile& file_;
  std::string path_;
  Digest digest_;
  int fd_ = -1;
  int64_t size_ = 0;
};

}  // namespace

HttpRequest HubTransfer::MakeRequest(const std::string& url) const {
  HttpRequest request;
  request.url = url;
  request.bearer_token = options_.token;
  request.connect_timeout = options_.connect_timeout;
  request.stall_timeout = options_.stall_timeout;
  return request;
}

Status HubTransfer::CheckStatus(const HttpResponse& response, const std::string& url) {
  retry_after_ = std::chrono::milliseconds(0);
  const int status = response.status;
  if (status == 200 || status == 206) return Status();
  std::string said = Printable(response.Header("x-error-message"));
  if (!said.empty()) said = " (" + said + ")";
  if (status == 401 || status == 403) {
    return Error(Code::kFailedPrecondition, "{}: access refused with HTTP {}{}; {}", url, status, said,
                 options_.token.empty()
                     ? "the model may be private, gated or absent: set HF_TOKEN to a token with access"
                     : "the token (HF_TOKEN) has no access to it");
  }
  if (status == 404) return Error(Code::kNotFound, "{}: not there, HTTP 404{}", url, said);
  if (status == 408 || status == 429 || status >= 500) {
    const std::string_view seconds = response.Header("retry-after");
    int wait = 0;
    std::from_chars(seconds.data(), seconds.data() + seconds.size(), wait);
    retry_after_ = std::chrono::seconds(std::clamp(wait, 0, 3600));
    return Error(Code::kUnavailable, "{}: HTTP {}{}", url, status, said);
  }
  return Error(Code::kFailedPrecondition, "{}: HTTP {}{}", url, status, said);
}

Status HubTransfer::Wait(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (true) {
    if (!on_bytes_(file_bytes_)) return Error(Code::kCancelled, "cancelled");
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= left.zero()) return Status();
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, std::chrono::milliseconds(100)));
  }
}

Status HubTransfer::Retry(const std::function<Status()>& attempt) {
  int failures = 0;
  std::chrono::milliseconds wait = options_.wait_first;
  while (true) {
    const int64_t before = file_bytes_;
    const Status status = attempt();
    if (status.ok() || status.code() != Code::kUnavailable) return status;
    if (file_bytes_ - before >= kProgressBytes) {
      failures = 0;
      wait = options_.wait_first;
    }
    if (++failures >= options_.attempts_max) {
      return Error(Code::kUnavailable, "{} (after {} attempts)", status.message(), failures);
    }
    DI_RETURN_IF_ERROR(Wait(std::min(std::max(wait, retry_after_), options_.wait_max)));
    wait *= 2;
  }
}

Result<std::string> HubTransfer::GetText(const std::string& url, size_t size_bytes_max) {
  std::string text;
  file_bytes_ = 0;
  const Status status = Retry([&]() -> Status {
    text.clear();
    HttpSink sink;
    sink.on_start = [&](const HttpResponse& response) { return CheckStatus(response, url); };
    sink.on_data = [&](std::span<const std::byte> bytes) {
      if (bytes.size() > size_bytes_max - text.size()) {
        return Error(Code::kResourceExhausted, "{}: more than the {} bytes allowed", url, size_bytes_max);
      }
      text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return Status();
    };
    sink.on_tick = [&] { return on_bytes_(file_bytes_); };
    return client_.Send(MakeRequest(url), sink).status();
  });
  if (!status.ok()) return status;
  return text;
}

Status HubTransfer::GetFile(const std::string& url, const HubFile& file, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return Status();
  IncompleteFile incomplete(file, path + ".incomplete");
  DI_RETURN_IF_ERROR(incomplete.Open());
  const auto attempt = [&]() -> Status {
    file_bytes_ = incomplete.size();
    if (incomplete.size() == file.size) return Status();
    HttpSink sink;
    sink.on_start = [&](const HttpResponse& response) -> Status {
      // Nothing left to send from there on: what is here cannot be the beginning of this file.
      if (response.status == 416) {
        DI_RETURN_IF_ERROR(incomplete.Restart());
        return Error(Code::kUnavailable, "{}: HTTP 416", url);
      }
      DI_RETURN_IF_ERROR(CheckStatus(response, url));
      if (response.status == 200) return incomplete.Restart();  // the server does not do ranges
      if (RangeBegin(response.Header("content-range")) == incomplete.size()) return Status();
      return Error(Code::kDataLoss, "{}: asked for the bytes from {} on, got {}", url, incomplete.size(),
                   Printable(response.Header("content-range")));
    };
    sink.on_data = [&](std::span<const std::byte> bytes) {
      const Status status = incomplete.Append(bytes);
      file_bytes_ = incomplete.size();
      return status;
    };
    sink.on_tick = [&] { return on_bytes_(file_bytes_); };
    HttpRequest request = MakeRequest(url);
    request.range_begin = static_cast<uint64_t>(incomplete.size());
    DI_RETURN_IF_ERROR(client_.Send(request, sink).status());
    if (incomplete.size() == file.size) return Status();
    return Error(Code::kUnavailable, "{}: ended after {} of {} bytes", url, incomplete.size(), file.size);
  };
  const bool resumed = incomplete.size() > 0;
  DI_RETURN_IF_ERROR(Retry(attempt));
  Status status = incomplete.Finish(path);
  if (status.code() == Code::kDataLoss && resumed) {
    // What an earlier run left may have been of another file: once more from the beginning.
    DI_RETURN_IF_ERROR(Retry(attempt));
    status = incomplete.Finish(path);
  }
  return status;
}

}  // namespace deepinfer::checkpoint
