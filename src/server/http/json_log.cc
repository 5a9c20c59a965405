// SPDX-License-Identifier: Apache-2.0
#include "server/http/json_log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>

#include "core/file.h"
#include "core/json.h"

namespace deepinfer::server {
namespace {

// A pipe that polls as writable takes this much without blocking (POSIX).
constexpr size_t kPipeBytes = 4096;
constexpr size_t kFileBytes = size_t{64} << 10;
constexpr int kPollMs = 100;
constexpr auto kRetryAfter = std::chrono::milliseconds(200);
constexpr auto kLastWords = std::chrono::seconds(1);

void AppendTime(std::string* out) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  // Dividing a date takes longer than all the rest of a line.
  thread_local std::time_t last_second = -1;
  thread_local char text[32];
  if (now.tv_sec != last_second) {
    last_second = now.tv_sec;
    std::tm utc{};
    gmtime_r(&now.tv_sec, &utc);
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  }
  fmt::format_to(std::back_inserter(*out), "{}.{:03}Z", text, now.tv_nsec / 1'000'000);
}

}  // namespace

LogLine::LogLine(std::string_view event, std::string_view level) {
  text_.reserve(384);
  text_ += R"({"time":")";
  AppendTime(&text_);
  text_ += R"(","level":")";
  text_ += level;
  text_ += R"(","event":")";
  text_ += event;
  text_ += '"';
}

LogLine& LogLine::Add(std::string_view name, std::string_view value) {
  text_ += ",\"";
  text_ += name;
  text_ += "\":";
  AppendJsonString(value, /*ascii_only=*/false, &text_);
  return *this;
}

LogLine& LogLine::Add(std::string_view name, int64_t value) {
  fmt::format_to(std::back_inserter(text_), ",\"{}\":{}", name, value);
  return *this;
}

LogLine& LogLine::AddFloat(std::string_view name, double value, int digits) {
  fmt::format_to(std::back_inserter(text_), ",\"{}\":{:.{}f}", name, value, digits);
  return *this;
}

LogLine& LogLine::AddRaw(std::string_view name, std::string_view json) {
  if (!name.empty()) {
    fmt::format_to(std::back_inserter(text_), ",\"{}\":{}", name, json);
  } else if (!json.empty()) {
    text_ += ',';
    text_ += json;
  }
  return *this;
}

std::string LogLine::Finish() {
  text_ += "}\n";
  return std::move(text_);
}

// Shared by the log and its thread, which may outlive it inside a write that never returns.
struct JsonLog::State {
  State(int descriptor, bool own, size_t bytes_max) : fd(descriptor), own_fd(own), buffer_bytes_max(bytes_max) {
    struct stat info = {};
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) write_bytes_max = kFileBytes;
  }
  ~State() {
    if (own_fd) close(fd);
  }

  // Writes what it can. False: nothing can be written now.
  bool WriteSome(std::string_view* text) {
    pollfd wait{fd, POLLOUT, 0};
    if (poll(&wait, 1, kPollMs) <= 0 || (wait.revents & POLLOUT) == 0) return false;
    const ssize_t written = write(fd, text->data(), std::min(text->size(), write_bytes_max));
    if (written <= 0) return false;
    text->remove_prefix(static_cast<size_t>(written));
    return true;
  }

  void Run();

  const int fd;
  const bool own_fd;
  const size_t buffer_bytes_max;
  size_t write_bytes_max = kPipeBytes;
  bool mid_line = false;  // the last write ended within a line; the thread's own
  std::mutex mutex;
  std::condition_variable wakes, idle;
  std::string buffer;        // guarded: whole lines
  int64_t lines = 0;         // guarded: in the buffer
  int64_t dropped = 0;       // guarded: ever
  int64_t dropped_told = 0;  // guarded: of those, told in the log
  bool busy = false;         // guarded
  bool stop = false;         // guarded
  std::thread thread;
};

void JsonLog::State::Run() {
  std::string batch;
  for (;;) {
    int64_t count = 0;
    {
      std::unique_lock lock(mutex);
      busy = false;
      idle.notify_all();
      wakes.wait(lock, [&] { return stop || !buffer.empty(); });
      if (buffer.empty()) return;
      busy = true;
      batch.clear();
      if (mid_line) batch.push_back('\n');
      if (dropped > dropped_told) {
        batch += LogLine("log_lines_dropped", "warning").Add("count", dropped - dropped_told).Finish();
      }
      dropped_told = dropped;
      batch += buffer;
      count = lines;
      buffer.clear();
      lines = 0;
    }
    std::string_view rest = batch;
    while (!rest.empty() && WriteSome(&rest)) {
    }
    const size_t written = batch.size() - rest.size();
    if (written > 0) mid_line = batch[written - 1] != '\n';
    if (rest.empty()) continue;
    // The remainder is lost: kept, it would hold up newer lines.
    const int64_t lost = std::min<int64_t>(count, std::count(rest.begin(), rest.end(), '\n'));
    std::unique_lock lock(mutex);
    dropped += lost;
    if (stop) return;
    wakes.wait_for(lock, kRetryAfter, [&] { return stop; });
  }
}

JsonLog::JsonLog(std::shared_ptr<State> state) : state_(std::move(state)) {
  state_->thread = std::thread([keep = state_] { keep->Run(); });
}

Result<std::shared_ptr<JsonLog>> JsonLog::Open(const std::string& path, size_t buffer_bytes_max) {
  if (path.empty()) return ToDescriptor(STDERR_FILENO, buffer_bytes_max);
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
  if (fd < 0) return FileError(errno, "open the log", path);
  return std::shared_ptr<JsonLog>(new JsonLog(std::make_shared<State>(fd, /*own=*/true, buffer_bytes_max)));
}

std::shared_ptr<JsonLog> JsonLog::ToDescriptor(int fd, size_t buffer_bytes_max) {
  return std::shared_ptr<JsonLog>(new JsonLog(std::make_shared<State>(fd, /*own=*/false, buffer_bytes_max)));
}

JsonLog::~JsonLog() {
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->wakes.notify_all();
  const bool done = state_->idle.wait_for(lock, kLastWords, [&] { return !state_->busy && state_->buffer.empty(); });
  lock.unlock();
  if (done) {
    state_->thread.join();
  } else {
    state_->thread.detach();
  }
}

void JsonLog::Write(LogLine line) {
  const std::string text = line.Finish();
  const std::lock_guard lock(state_->mutex);
  if (state_->buffer.size() + text.size() > state_->buffer_bytes_max) {
    ++state_->dropped;
    return;
  }
  state_->buffer += text;
  if (state_->lines++ == 0) state_->wakes.notify_one();
}

int64_t JsonLog::dropped() const {
  const std::lock_guard lock(state_->mutex);
  return state_->dropped;
}

}  // namespace deepinfer::server
