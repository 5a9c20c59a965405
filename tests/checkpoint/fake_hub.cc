// SPDX-License-Identifier: Apache-2.0
#include "fake_hub.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "checkpoint/digest.h"
#include "core/check.h"
#include "core/json.h"

namespace deepinfer::checkpoint {
namespace {

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Reads up to the blank line; nothing where the peer closes.
std::optional<FakeRequest> ReadRequest(int connection, std::string* buffer) {
  size_t end;
  while ((end = buffer->find("\r\n\r\n")) == std::string::npos) {
    char chunk[4096];
    const ssize_t got = recv(connection, chunk, sizeof(chunk), 0);
    if (got <= 0) return std::nullopt;
    buffer->append(chunk, static_cast<size_t>(got));
  }
  const std::string head = buffer->substr(0, end + 2);
  buffer->erase(0, end + 4);
  FakeRequest request;
  size_t line = head.find("\r\n");
  const std::string first = head.substr(0, line);
  request.method = first.substr(0, first.find(' '));
  request.target = first.substr(first.find(' ') + 1);
  request.target = request.target.substr(0, request.target.find(' '));
  for (line += 2; line < head.size();) {
    const size_t next = head.find("\r\n", line);
    const std::string text = head.substr(line, next - line);
    const size_t colon = text.find(": ");
    if (colon != std::string::npos) request.headers[Lower(text.substr(0, colon))] = text.substr(colon + 2);
    line = next + 2;
  }
  return request;
}

bool SendAll(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace

FakeServer::FakeServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  DI_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  DI_CHECK(listen(listener_, 16) == 0);
  socklen_t size = sizeof(address);
  DI_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Accept(); });
}

FakeServer::~FakeServer() {
  stopping_ = true;
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  close(listener_);
  {
    const std::lock_guard lock(mutex_);
    for (const int connection : sockets_) shutdown(connection, SHUT_RDWR);
  }
  for (std::thread& thread : connections_) thread.join();
  for (const int connection : sockets_) close(connection);
}

std::vector<FakeRequest> FakeServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void FakeServer::Accept() {
  while (!stopping_) {
    const int connection = accept(listener_, nullptr, nullptr);
    if (connection < 0) continue;
    const std::lock_guard lock(mutex_);
    sockets_.push_back(connection);
    connections_.emplace_back([this, connection] { Serve(connection); });
  }
}

void FakeServer::Serve(int connection) {
  std::string buffer;
  while (std::optional<FakeRequest> request = ReadRequest(connection, &buffer)) {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(*request);
    }
    const FakeResponse response = handler_(*request);
    std::string head = fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n", response.status, response.body.size());
    for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
    head += "\r\n";
    const size_t sent = std::min(response.body.size(), response.cut_after.value_or(response.body.size()));
    if (!SendAll(connection, head + response.body.substr(0, sent)) || response.cut_after) break;
  }
  shutdown(connection, SHUT_RDWR);
}

FakeHub::FakeHub() : server_(std::make_unique<FakeServer>([this](const FakeRequest& r) { return Answer(r); })) {}

std::vector<std::string> FakeHub::Ranges(const std::string& name) const {
  std::vector<std::string> ranges_asked;
  for (const FakeRequest& request : server_->requests()) {
    if (!request.target.ends_with("/" + name)) continue;
    const auto range = request.headers.find("range");
    ranges_asked.push_back(range == request.headers.end() ? "" : range->second);
  }
  return ranges_asked;
}

FakeResponse FakeHub::Answer(const FakeRequest& request) {
  const std::lock_guard lock(mutex_);
  if (!token.empty()) {
    const auto given = request.headers.find("authorization");
    if (given == request.headers.end() || given->second != "Bearer " + token) {
      return {.status = 401, .headers = {{"X-Error-Message", "Access to model org/tiny is restricted."}}};
    }
  }
  if (request.target == "/api/models/org/tiny/revision/main?blobs=true") return {.body = Listing()};
  const std::string resolve = std::string("/org/tiny/resolve/") + kCommit + "/";
  if (request.target.starts_with(resolve)) return File(request.target.substr(resolve.size()), request);
  return {.status = 404, .headers = {{"X-Error-Message", "Repository not found"}}};
}

// Weights are listed as large files (SHA-256), the rest as git objects (SHA-1), as the hub does.
std::string FakeHub::Listing() const {
  Json::Array siblings;
  for (const auto& [name, bytes] : files) {
    const bool large = name.ends_with(".safetensors");
    Digest digest(large ? Digest::Kind::kSha256 : Digest::Kind::kSha1);
    if (!large) digest.Add(std::string_view(fmt::format("blob {}", bytes.size()) + '\0'));
    digest.Add(bytes);
    std::string hash = digest.Finish();
    if (const auto other = listed_hashes.find(name); other != listed_hashes.end()) hash = other->second;
    const Json size = Json::Integer(static_cast<int64_t>(bytes.size()));
    Json::Object sibling = {{"rfilename", Json(name)}, {"size", size}, {"blobId", Json(std::string(40, 'b'))}};
    if (large) {
      sibling.emplace_back("lfs", Json(Json::Object{{"sha256", Json(hash)}, {"size", size}}));
    } else {
      sibling[2].second = Json(hash);
    }
    siblings.push_back(Json(std::move(sibling)));
  }
  return WriteJson(Json(Json::Object{{"id", Json("org/tiny")}, {"sha", Json(kCommit)}, {"siblings", Json(siblings)}}));
}

FakeResponse FakeHub::File(const std::string& name, const FakeRequest& request) {
  const int count = ++counts_[name];
  if (intercept) {
    if (std::optional<FakeResponse> response = intercept(name, count, request)) return *response;
  }
  const auto found = files.find(name);
  if (found == files.end()) return {.status = 404};
  const auto range = request.headers.find("range");
  if (!ranges || range == request.headers.end()) return {.body = found->second};
  const size_t begin = std::stoull(range->second.substr(range->second.find('=') + 1));
  const size_t size = found->second.size();
  if (begin >= size) return {.status = 416};
  return {.status = 206,
          .headers = {{"Content-Range", fmt::format("bytes {}-{}/{}", begin, size - 1, size)}},
          .body = found->second.substr(begin)};
}

}  // namespace deepinfer::checkpoint
