// SPDX-License-Identifier: Apache-2.0
#include "server/service.h"

#include <prometheus/collectable.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/json.h"
#include "server/http/http_server.h"

namespace deepinfer::server {
namespace {

constexpr auto kWatch = std::chrono::seconds(1);
constexpr auto kDrainPoll = std::chrono::milliseconds(100);

sigset_t ServiceSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  return set;
}

// SIGTERM or SIGINT within `timeout`, else 0. SIGHUP, sent when a terminal goes, is swallowed.
int WaitForSignal(std::chrono::milliseconds timeout) {
  const sigset_t set = ServiceSignals();
  const timespec time{.tv_sec = timeout.count() / 1000, .tv_nsec = timeout.count() % 1000 * 1'000'000};
  const int number = sigtimedwait(&set, nullptr, &time);
  return number == SIGTERM || number == SIGINT ? number : 0;
}

// The protocol of systemd's Type=notify: a datagram to the socket named by the environment.
void NotifySystemd(std::string_view state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || path[0] == '\0') return;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t size = std::strlen(path);
  if (size >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, path, size);
  if (path[0] == '@') address.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size);
  sendto(fd, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length);
  close(fd);
}

// What the probes look at.
struct Probes {
  std::function<Status()> health;
  std::atomic<bool> draining{false};

  Status Health() const { return health ? health() : Status(); }
};

void AnswerProbe(Responder& responder, const Status& status) {
  if (status.ok()) return responder.SendJson(200, R"({"status":"ok"})");
  std::string body = R"({"status":"unavailable","reason":)";
  AppendJsonString(status.message(), /*ascii_only=*/false, &body);
  responder.SendJson(503, body + "}", {{"Retry-After", "1"}});
}

void AddProbes(Router* router, const std::shared_ptr<Probes>& probes) {
  router->Add({.method = "GET",
               .pattern = "/health",
               .access = Access::kPublic,
               .handler = [probes](const auto&, const auto& responder) { AnswerProbe(*responder, probes->Health()); }});
  router->Add({.method = "GET",
               .pattern = "/ready",
               .access = Access::kPublic,
               .handler = [probes](const auto&, const auto& responder) {
                 const bool draining = probes->draining.load(std::memory_order_relaxed);
                 AnswerProbe(*responder, draining ? Error(Code::kUnavailable, "shutting down") : probes->Health());
               }});
}

void AddMetrics(Router* router, bool is_public, prometheus::Registry& registry,
                std::vector<std::shared_ptr<prometheus::Collectable>> more) {
  router->Add({.method = "GET",
               .pattern = "/metrics",
               .access = is_public ? Access::kPublic : Access::kKey,
               .handler = [&registry, more = std::move(more)](const auto&, const auto& responder) {
                 std::vector<prometheus::MetricFamily> families = registry.Collect();
                 for (const auto& collectable : more) {
                   for (prometheus::MetricFamily& family : collectable->Collect())
                     families.push_back(std::move(family));
                 }
                 responder->Send(200, "text/plain; version=0.0.4; charset=utf-8",
                                 prometheus::TextSerializer().Serialize(families));
               }});
}

// How many log lines were lost, for /metrics.
class LogMetrics final : public prometheus::Collectable {
 public:
  explicit LogMetrics(std::shared_ptr<JsonLog> log) : log_(std::move(log)) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    prometheus::MetricFamily family;
    family.name = "deepinfer_log_lines_dropped_total";
    family.help = "Log lines that could not be written.";
    family.type = prometheus::MetricType::Counter;
    prometheus::ClientMetric metric;
    metric.counter.value = static_cast<double>(log_->dropped());
    family.metric.push_back(metric);
    return {family};
  }

 private:
  const std::shared_ptr<JsonLog> log_;
};

void Announce(const ServerConfig& config, int port, JsonLog& log) {
  const bool v6 = config.http.host.find(':') != std::string::npos;
  const std::string url = fmt::format("{}://{}{}{}:{}", config.http.tls_certificate_file.empty() ? "http" : "https",
                                      v6 ? "[" : "", config.http.host, v6 ? "]" : "", port);
  log.Write(std::move(LogLine("listening").Add("url", url)));
  std::fputs(fmt::format("listening at {}\n", url).c_str(), stdout);
  std::fflush(stdout);
  NotifySystemd("READY=1");
}

void Drain(const ServerConfig& config, HttpServer& server, JsonLog& log) {
  log.Write(std::move(LogLine("draining").AddFloat("seconds", config.drain_seconds, 1)));
  NotifySystemd("STOPPING=1");
  server.BeginDrain();
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(config.drain_seconds);
  bool drained = false;
  while (!drained && std::chrono::steady_clock::now() < until && WaitForSignal(std::chrono::milliseconds(0)) == 0) {
    drained = server.WaitDrained(kDrainPoll);
  }
  server.Stop();
  log.Write(std::move(LogLine("stopped").AddRaw("drained", drained ? "true" : "false")));
}

}  // namespace

void PrepareSignals() {
  const sigset_t set = ServiceSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

Result<int> RunService(const ServerConfig& config, prometheus::Registry& registry, std::shared_ptr<JsonLog> log,
                       Service service) {
  DI_ASSIGN_OR_RETURN(KeyRing keys, LoadKeys(config.keys_file));
  const auto probes = std::make_shared<Probes>();
  probes->health = service.health;
  service.metrics.push_back(std::make_shared<LogMetrics>(log));
  Router router;
  AddProbes(&router, probes);
  AddMetrics(&router, config.metrics_public, registry, std::move(service.metrics));
  if (service.add_routes) service.add_routes(&router);
  DI_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server,
                      HttpServer::Start(config.http, std::move(router), std::move(keys), registry, log));
  Announce(config, server->port(), *log);
  bool healthy = true;
  while (WaitForSignal(kWatch) == 0) {
    // Asked regularly, so that whoever judges by changes between two looks has looked lately.
    const Status status = probes->Health();
    if (status.ok() == healthy) continue;
    healthy = status.ok();
    log->Write(std::move(
        LogLine(healthy ? "healthy" : "unhealthy", healthy ? "info" : "error").Add("reason", status.message())));
  }
  probes->draining.store(true, std::memory_order_relaxed);
  Drain(config, *server, *log);
  return 0;
}

}  // namespace deepinfer::server
