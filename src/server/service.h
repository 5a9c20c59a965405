// SPDX-License-Identifier: Apache-2.0
// A server process around any set of endpoints: log, metrics, /health, /ready, /metrics, signals, draining.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/status.h"
#include "server/config.h"
#include "server/http/exchange.h"

namespace prometheus {
class Collectable;
class Registry;
}  // namespace prometheus

namespace deepinfer::server {

// What the process serves. The functions may be called from any thread until RunService returns.
struct Service {
  std::function<void(Router*)> add_routes;
  // Not ok: /health and /ready answer 503 with its message. Called for every probe and every second: cheap.
  std::function<Status()> health;
  std::vector<std::shared_ptr<prometheus::Collectable>> metrics;  // beside the registry's
};

// Blocks SIGTERM, SIGINT and SIGHUP in the calling thread, and so in all that it starts: RunService waits for them. To
// be called before any other thread exists. Also lets writes to closed pipes and sockets fail instead of killing the
// process.
void PrepareSignals();

// Serves until SIGTERM or SIGINT and returns the exit code. Prints one line with the address on stdout when it is ready
// to answer, and tells systemd. On the first signal it drains for at most config.drain_seconds, on the second it stops
// at once.
Result<int> RunService(const ServerConfig& config, prometheus::Registry& registry, std::shared_ptr<JsonLog> log,
                       Service service);

}  // namespace deepinfer::server
