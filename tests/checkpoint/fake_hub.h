// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1.1 server on the loopback interface that plays the Hugging Face hub: lists the files of a repository,
// serves them with ranges, and misbehaves as a test asks it to.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace deepinfer::checkpoint {

struct FakeRequest {
  std::string method;
  std::string target;
  std::map<std::string, std::string> headers;  // names in lower case
};

struct FakeResponse {
  int status = 200;
  std::map<std::string, std::string> headers;
  std::string body;
  std::optional<size_t> cut_after;  // close the connection after so many bytes of the body
};

// Answers each request by `handler`, which may be called from several threads.
class FakeServer {
 public:
  using Handler = std::function<FakeResponse(const FakeRequest&)>;
  explicit FakeServer(Handler handler);
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;
  ~FakeServer();

  int port() const { return port_; }
  std::string url(const std::string& host = "127.0.0.1") const {
    return "http://" + host + ":" + std::to_string(port_);
  }
  std::vector<FakeRequest> requests() const;

 private:
  void Accept();
  void Serve(int connection);

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::vector<FakeRequest> requests_;
  std::vector<std::thread> connections_;
  std::vector<int> sockets_;
};

// One repository, org/tiny at main. Files may be changed before the first request.
class FakeHub {
 public:
  static constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

  FakeHub();
  std::string url() const { return server_->url(); }
  const FakeServer& server() const { return *server_; }

  std::map<std::string, std::string> files;
  // Asked before a file is served: a response in its place, or nothing. `count` is how often the file was asked for.
  std::function<std::optional<FakeResponse>(const std::string& name, int count, const FakeRequest&)> intercept;
  std::string token;                                 // required where not empty
  std::map<std::string, std::string> listed_hashes;  // in place of the true ones
  bool ranges = true;

  // Requests for that file, as their Range headers ("" where there was none).
  std::vector<std::string> Ranges(const std::string& name) const;

 private:
  FakeResponse Answer(const FakeRequest& request);
  std::string Listing() const;
  FakeResponse File(const std::string& name, const FakeRequest& request);

  mutable std::mutex mutex_;
  std::map<std::string, int> counts_;
  std::unique_ptr<FakeServer> server_;
};

}  // namespace deepinfer::checkpoint
