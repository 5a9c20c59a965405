// SPDX-License-Identifier: Apache-2.0
// GET over libcurl, with the answer's body handed on as it comes. TLS is verified; redirects are followed (at
// most 10, never from https to http), and a bearer token goes to the first host and port only.
// One connection per client, reused. Not thread-safe; use one per thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"

namespace deepinfer::checkpoint {

struct HttpRequest {
  std::string url;
  std::string bearer_token;
  uint64_t range_begin = 0;  // asks for the bytes from here on
  std::chrono::seconds connect_timeout{30};
  std::chrono::seconds stall_timeout{60};
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case

  std::string_view Header(std::string_view name) const;
};

struct HttpSink {
  // Called with the final response's status and headers before its first byte. An error ends the transfer.
  std::function<Status(const HttpResponse&)> on_start;
  std::function<Status(std::span<const std::byte>)> on_data;
  // Called about every second while waiting; false ends the transfer with kCancelled.
  std::function<bool()> on_tick;
};

class HttpClient {
 public:
  HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  ~HttpClient();

  // The response, whatever its status. Errors: those of the sink; kUnavailable where another attempt may succeed (no
  // connection, connection lost, stalled); kFailedPrecondition where not (bad certificate, bad URL, redirect refused).
  Result<HttpResponse> Send(const HttpRequest& request, const HttpSink& sink);

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace deepinfer::checkpoint
