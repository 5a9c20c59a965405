// SPDX-License-Identifier: Apache-2.0
// The HTTP server: a listener, io threads with connections, workers. It knows nothing of engines and protocols;
// handlers come with the router and must outlive the server.
//
// Life: Start; any number of requests; BeginDrain (no new connections or requests, running ones go on); WaitDrained;
// Stop, or the destructor, cuts what is left. All functions may be called from any thread but the server's own.
#pragma once

#include <chrono>
#include <memory>

#include "server/http/exchange.h"
#include "server/http/http_config.h"
#include "server/http/json_log.h"
#include "server/http/key_ring.h"

namespace prometheus {
class Registry;
}

namespace deepinfer::server {

class HttpServer {
 public:
  // Errors: an address that cannot be bound, unusable certificate files, settings out of range. `registry` must outlive
  // it.
  static Result<std::unique_ptr<HttpServer>> Start(HttpConfig config, Router router, KeyRing keys,
                                                   prometheus::Registry& registry, std::shared_ptr<JsonLog> log);
  virtual ~HttpServer() = default;

  // The port that it listens at.
  virtual int port() const = 0;
  virtual void BeginDrain() = 0;
  // Waits until all requests are answered and all connections closed. False: it took longer than `timeout`.
  virtual bool WaitDrained(std::chrono::milliseconds timeout) = 0;
  virtual void Stop() = 0;
};

}  // namespace deepinfer::server
