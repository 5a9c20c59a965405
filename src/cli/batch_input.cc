// SPDX-License-Identifier: Apache-2.0
#include "cli/batch_input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "checkpoint/digest.h"
#include "core/file.h"
#include "core/json.h"

namespace deepinfer::cli {
namespace {

constexpr size_t kReadBytes = size_t{1} << 18;
constexpr size_t kKeptOfLongLine = 256;
constexpr size_t kCustomIdBytesMax = 512;

std::string IdOf(std::string_view custom_id, std::string_view url, std::string_view body) {
  checkpoint::Digest digest(checkpoint::Digest::Kind::kSha256);
  for (const std::string_view part : {custom_id, url, body}) {
    digest.Add(part);
    digest.Add(std::string_view("\0", 1));
  }
  return "batch_req_" + digest.Finish().substr(0, 32);
}

bool ParseUrl(std::string_view url, recipe::Protocol* protocol) {
  if (url == "/v1/chat/completions") {
    *protocol = recipe::Protocol::kChat;
  } else if (url == "/v1/completions") {
    *protocol = recipe::Protocol::kCompletions;
  } else if (url == "/v1/responses") {
    *protocol = recipe::Protocol::kResponses;
  } else if (url == "/v1/messages") {
    *protocol = recipe::Protocol::kMessages;
  } else {
    return false;
  }
  return true;
}

// There is one model: a body need not name it.
void NameModel(Json* body) {
  if (body->Find("model") == nullptr) body->Members().emplace_back("model", Json("deepseek-v4.1"));
}

// Takes a member out of an object.
Json Take(Json* object, std::string_view key) {
  Json value;
  auto& members = object->Members();
  for (auto it = members.begin(); it != members.end();) {
    if (it->first == key) {
      value = std::move(it->second);
      it = members.erase(it);
    } else {
      ++it;
    }
  }
  return value;
}

}  // namespace

Result<LineReader> LineReader::Open(const std::string& path, size_t line_bytes_max) {
  const int fd = path == "-" ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError(errno, "open", path);
  struct stat info = {};
  if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
    close(fd);
    return Error(Code::kInvalidArgument, "{}: a directory, expected a file of JSON lines", path);
  }
  return LineReader(fd, path, line_bytes_max);
}

LineReader::LineReader(LineReader&& other) noexcept
    : fd_(other.fd_),
      path_(std::move(other.path_)),
      line_bytes_max_(other.line_bytes_max_),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      scanned_(other.scanned_),
      skipping_(other.skipping_),
      skipped_(std::move(other.skipped_)),
      end_(other.end_),
      number_(other.number_) {
  other.fd_ = -1;
}

LineReader::~LineReader() {
  if (fd_ >= 0) close(fd_);
}

bool LineReader::TakeLine(std::string* line, bool* too_long) {
  const size_t feed = buffer_.find('\n', scanned_);
  scanned_ = feed == std::string::npos ? buffer_.size() : feed;
  *too_long = skipping_ || scanned_ - begin_ > line_bytes_max_;
  if (*too_long && !skipping_) {
    skipping_ = true;
    skipped_ = buffer_.substr(begin_, kKeptOfLongLine);
  }
  if (feed == std::string::npos && !(end_ && (skipping_ || scanned_ > begin_))) {
    // What is skipped, or was read, need not be kept.
    buffer_.erase(0, skipping_ ? scanned_ : begin_);
    scanned_ -= skipping_ ? scanned_ : begin_;
    begin_ = 0;
    return false;
  }
  *line = skipping_ ? std::move(skipped_) : buffer_.substr(begin_, scanned_ - begin_);
  if (number_ == 0 && line->starts_with("\xEF\xBB\xBF")) line->erase(0, 3);  // a byte order mark
  skipping_ = false;
  ++number_;
  begin_ = scanned_ = std::min(scanned_ + 1, buffer_.size());
  return true;
}

Result<LineReader::Next> LineReader::Read(int wait_ms, std::string* line) {
  while (true) {
    bool too_long = false;
    if (TakeLine(line, &too_long)) return too_long ? Next::kTooLong : Next::kLine;
    if (end_) return Next::kEnd;
    pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
    const int ready = poll(&wait, 1, wait_ms);
    if (ready == 0 || (ready < 0 && errno == EINTR)) return Next::kNotYet;
    const size_t old = buffer_.size();
    buffer_.resize(old + kReadBytes);
    const ssize_t got = read(fd_, buffer_.data() + old, kReadBytes);
    const int error = errno;
    buffer_.resize(old + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && error == EINTR) return Next::kNotYet;
    if (got < 0) return FileError(error, "read", path_);
    end_ = got == 0;
  }
}

int64_t LineReader::Count(const std::string& path) {
  struct stat info = {};
  if (path == "-" || stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return -1;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  std::string buffer(kReadBytes, '\0');
  int64_t lines = 0;
  bool open_line = false;
  for (ssize_t got; (got = read(fd, buffer.data(), buffer.size())) > 0;) {
    lines += std::count(buffer.begin(), buffer.begin() + got, '\n');
    open_line = buffer[static_cast<size_t>(got) - 1] != '\n';
  }
  close(fd);
  return lines + (open_line ? 1 : 0);
}

void NameBadLine(std::string_view first, int64_t line, BatchLine* out) {
  out->custom_id = fmt::format("line-{}", line);
  out->id = IdOf(out->custom_id, "bad", first);
}

bool ParseBatchLine(std::string_view text, int64_t line, BatchLine* out, BatchLineError* error) {
  const auto fail = [&](std::string_view code, std::string message) {
    *error = {std::string(code), fmt::format("line {}: {}", line, message)};
    return false;
  };
  out->custom_id = fmt::format("line-{}", line);
  out->id = IdOf(out->custom_id, "", text);
  Result<Json> parsed = ParseJson(text);
  if (!parsed.ok()) return fail("invalid_json", parsed.status().message());
  if (!parsed->IsObject()) return fail("invalid_request", fmt::format("expected an object, found {}", parsed->KindName()));
  const Json custom_id = Take(&*parsed, "custom_id");
  if (custom_id.IsString() && custom_id.AsString().size() <= kCustomIdBytesMax) {
    out->custom_id = custom_id.AsString();
    out->id = IdOf(out->custom_id, "", text);
  } else if (!custom_id.IsNull()) {
    return fail("invalid_request", fmt::format("custom_id: expected a string of at most {} bytes", kCustomIdBytesMax));
  }
  if (parsed->Find("url") == nullptr && parsed->Find("body") == nullptr && parsed->Find("prompt") != nullptr) {
    out->protocol = recipe::Protocol::kCompletions;
    NameModel(&*parsed);
    out->body = WriteJson(*parsed);
    out->id = IdOf(out->custom_id, "/v1/completions", out->body);
    return true;
  }
  if (custom_id.IsNull()) return fail("invalid_request", "custom_id: it is missing");
  const Json* method = parsed->Find("method");
  if (method != nullptr && (!method->IsString() || method->AsString() != "POST")) {
    return fail("invalid_request", "method: expected \"POST\"");
  }
  const Json* url = parsed->Find("url");
  if (url == nullptr || !url->IsString() || !ParseUrl(url->AsString(), &out->protocol)) {
    return fail("invalid_url", "url: expected /v1/chat/completions, /v1/completions, /v1/responses or /v1/messages");
  }
  Json* body = parsed->Find("body");
  if (body == nullptr || !body->IsObject()) return fail("invalid_request", "body: expected an object");
  NameModel(body);
  out->body = WriteJson(*body);
  out->id = IdOf(out->custom_id, url->AsString(), out->body);
  return true;
}

}  // namespace deepinfer::cli
