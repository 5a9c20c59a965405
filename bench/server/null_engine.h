// SPDX-License-Identifier: Apache-2.0
// Endpoints over an engine that thinks nothing: every step it gives each running stream the same token (or a few). What
// is left is the cost of the server itself. For benchmarks, and for tests of the transport without a model.
#pragma once

#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "server/http/exchange.h"

namespace deepinfer::server {

class NullEngine {
 public:
  // A step at most every `step_us`; 0: as fast as it goes.
  NullEngine(int64_t step_us, prometheus::Registry& registry);
  ~NullEngine();

  // POST /v1/chat/completions {"max_tokens":N,"stream":true,"burst":K}, and routes under /test that misbehave on
  // request.
  void AddRoutes(Router* router);

 private:
  struct Stream {
    std::shared_ptr<Responder> responder;
    int64_t tokens_left = 0;
    int64_t burst = 1;
    std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);
  };

  void Answer(const HttpRequest& request, std::shared_ptr<Responder> responder);
  void Run();
  // One step of a stream. False: it has ended.
  static bool Step(Stream& stream);

  const int64_t step_us_;
  prometheus::Gauge& running_;
  std::mutex mutex_;
  std::condition_variable wakes_;
  std::vector<Stream> arrived_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace deepinfer::server
