// SPDX-License-Identifier: Apache-2.0
// What all connections of a server share. Built before the first connection and alive until the last; the members are
// immutable or thread-safe.
#pragma once

#include <atomic>
#include <memory>

#include "server/http/conn.h"
#include "server/http/exchange.h"
#include "server/http/http_config.h"
#include "server/http/http_metrics.h"
#include "server/http/json_log.h"
#include "server/http/key_ring.h"
#include "server/http/worker_pool.h"

namespace deepinfer::server {

// Bytes of all bodies that are held at a time.
class BodyBudget {
 public:
  explicit BodyBudget(size_t bytes_max) : bytes_max_(bytes_max) {}
  // False: over the limit, nothing taken.
  bool Take(size_t bytes) {
    if (used_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= bytes_max_) return true;
    Give(bytes);
    return false;
  }
  void Give(size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  size_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const size_t bytes_max_;
  std::atomic<size_t> used_{0};
};

struct HttpContext {
  HttpContext(HttpConfig http_config, Router routes, KeyRing key_ring, prometheus::Registry& registry,
              std::shared_ptr<JsonLog> json_log)
      : config(std::move(http_config)),
        router(std::move(routes)),
        keys(std::move(key_ring)),
        metrics(registry, router),
        log(std::move(json_log)),
        bodies(config.body_memory_bytes_max),
        workers(config.worker_threads, static_cast<size_t>(config.worker_queue_max)) {}

  const HttpConfig config;
  const Router router;
  const KeyRing keys;
  HttpMetrics metrics;
  std::shared_ptr<JsonLog> log;
  std::shared_ptr<TlsContext> tls;  // nullptr: plain
  BodyBudget bodies;
  WorkerPool workers;
};

// A request on its way, with its share of the budget for bodies.
struct StoredRequest : HttpRequest {
  explicit StoredRequest(std::shared_ptr<HttpContext> shared) : context(std::move(shared)) {}
  ~StoredRequest() {
    if (budget_bytes > 0) context->bodies.Give(budget_bytes);
  }
  StoredRequest(const StoredRequest&) = delete;
  StoredRequest& operator=(const StoredRequest&) = delete;

  // Accounts for the body as it is now. False: the server holds too many already.
  bool AccountBody() {
    if (body.size() <= budget_bytes) return true;
    if (!context->bodies.Take(body.capacity() - budget_bytes)) return false;
    budget_bytes = body.capacity();
    return true;
  }

  std::shared_ptr<HttpContext> context;
  size_t budget_bytes = 0;
};

}  // namespace deepinfer::server
