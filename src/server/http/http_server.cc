// SPDX-License-Identifier: Apache-2.0
#include "server/http/http_server.h"

#include <netinet/tcp.h>
#include <sys/resource.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/http/connection.h"

namespace deepinfer::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr int kBacklog = 4096;
// Descriptors that are not connections: listeners, event queues, model files, logs.
constexpr size_t kOtherDescriptors = 128;
constexpr auto kAcceptPause = std::chrono::milliseconds(50);
// A peer that vanished without a word: found by probes after a minute, or by unacknowledged data after half of one.
constexpr int kKeepIdleSeconds = 30, kKeepIntervalSeconds = 10, kKeepProbes = 3, kUserTimeoutMs = 30'000;
// Bytes that wait in the kernel without having been sent. The rest waits here, where it is counted.
constexpr int kUnsentLowBytes = 128 << 10;

constexpr std::string_view kTooMany =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";

void SetOption(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof(value)); }

void TuneSocket(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentLowBytes);
}

// As many descriptors as the system lets this process have; returns how many that are.
size_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

std::string PeerName(const tcp::endpoint& peer) {
  const std::string address = peer.address().to_string();
  return peer.address().is_v6() ? fmt::format("[{}]:{}", address, peer.port())
                                : fmt::format("{}:{}", address, peer.port());
}

Status CheckRange(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return {};
  return Error(Code::kInvalidArgument, "{}: expected {}..{}, found {}", name, low, high, value);
}

Status Check(const HttpConfig& c) {
  DI_RETURN_IF_ERROR(CheckRange("port", c.port, 0, 65535));
  DI_RETURN_IF_ERROR(CheckRange("io-threads", c.io_threads, 1, 256));
  DI_RETURN_IF_ERROR(CheckRange("worker-threads", c.worker_threads, 1, 1024));
  DI_RETURN_IF_ERROR(CheckRange("worker-queue", c.worker_queue_max, 1, 1e6));
  DI_RETURN_IF_ERROR(CheckRange("connections-max", c.connections_max, 1, 1e7));
  DI_RETURN_IF_ERROR(CheckRange("header-bytes-max", static_cast<double>(c.header_bytes_max), 1024, 1 << 20));
  DI_RETURN_IF_ERROR(CheckRange("body-bytes-max", static_cast<double>(c.body_bytes_max), 1, 1LL << 40));
  DI_RETURN_IF_ERROR(
      CheckRange("stream-buffer-bytes-max", static_cast<double>(c.stream_buffer_bytes_max), 1024, 1LL << 32));
  for (const double seconds :
       {c.header_seconds, c.body_seconds, c.idle_seconds, c.write_stall_seconds, c.heartbeat_seconds}) {
    DI_RETURN_IF_ERROR(CheckRange("a time limit", seconds, 0.1, 1e6));
  }
  if (c.tls_certificate_file.empty() != c.tls_key_file.empty()) {
    return Error(Code::kInvalidArgument, "TLS needs both a certificate file and a key file");
  }
  return {};
}

class HttpServerImpl final : public HttpServer {
 public:
  explicit HttpServerImpl(std::shared_ptr<HttpContext> context) : context_(std::move(context)) {}
  ~HttpServerImpl() override { Stop(); }

  Status Open() {
    const HttpConfig& config = context_->config;
    if (!config.tls_certificate_file.empty()) {
      DI_ASSIGN_OR_RETURN(context_->tls, TlsContext::Load(config.tls_certificate_file, config.tls_key_file));
    }
    const size_t descriptors = RaiseDescriptorLimit();
    connections_max_ =
        std::min<size_t>(static_cast<size_t>(config.connections_max),
                         descriptors > 2 * kOtherDescriptors ? descriptors - kOtherDescriptors : descriptors / 2);
    for (int i = 0; i < config.io_threads; ++i) loops_.push_back(std::make_shared<IoLoop>());
    DI_RETURN_IF_ERROR(Listen());
    asio::co_spawn(loops_[0]->context(), AcceptLoop(), asio::detached);
    for (const auto& loop : loops_) loop->Start();
    return {};
  }

  int port() const override { return port_; }

  void BeginDrain() override {
    if (!acceptor_) return;
    asio::post(loops_[0]->context(), [this] {
      boost::system::error_code ignored;
      acceptor_->close(ignored);
    });
    for (const auto& loop : loops_) {
      asio::post(loop->context(), [loop = loop.get()] { loop->BeginDrain(); });
    }
  }

  bool WaitDrained(std::chrono::milliseconds timeout) override {
    const auto until = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      size_t open = 0;
      for (const auto& loop : loops_) open += loop->connections();
      if (open == 0) return true;
      if (std::chrono::steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  void Stop() override {
    if (stopped_) return;
    stopped_ = true;
    BeginDrain();
    context_->workers.Stop();
    for (const auto& loop : loops_) loop->Stop();
  }

 private:
  Status Listen() {
    const HttpConfig& config = context_->config;
    boost::system::error_code error;
    const asio::ip::address address = asio::ip::make_address(config.host, error);
    if (error) return Error(Code::kInvalidArgument, "host {}: expected an IPv4 or IPv6 address", config.host);
    const tcp::endpoint endpoint(address, static_cast<unsigned short>(config.port));
    acceptor_.emplace(loops_[0]->context());
    acceptor_->open(endpoint.protocol(), error);
    if (!error) acceptor_->set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_->bind(endpoint, error);
    if (!error) acceptor_->listen(kBacklog, error);
    if (error) {
      return Error(Code::kUnavailable, "cannot listen at {}:{}: {}; choose another --port, or 0 for a free one",
                   config.host, config.port, error.message());
    }
    port_ = acceptor_->local_endpoint(error).port();
    return {};
  }

  IoLoop& LeastLoaded() {
    const auto fewer = [](const auto& a, const auto& b) { return a->connections() < b->connections(); };
    return **std::min_element(loops_.begin(), loops_.end(), fewer);
  }

  asio::awaitable<void> AcceptLoop() {
    while (acceptor_->is_open()) {
      IoLoop& loop = LeastLoaded();
      tcp::socket socket(loop.context());
      tcp::endpoint peer;
      boost::system::error_code error;
      co_await acceptor_->async_accept(socket, peer, asio::redirect_error(asio::use_awaitable, error));
      if (!error) {
        Admit(std::move(socket), peer, loop);
      } else if (acceptor_->is_open() && error != asio::error::connection_aborted) {
        // No descriptors or memory left: they come back when connections go.
        asio::steady_timer pause(loops_[0]->context(), kAcceptPause);
        boost::system::error_code ignored;
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      }
    }
  }

  void Admit(tcp::socket socket, const tcp::endpoint& peer, IoLoop& loop) {
    size_t open = 0;
    for (const auto& each : loops_) open += each->connections();
    TuneSocket(socket.native_handle());
    if (open >= connections_max_) {
      context_->metrics.connections_refused.Increment();
      if (context_->tls == nullptr)
        send(socket.native_handle(), kTooMany.data(), kTooMany.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      return;
    }
    context_->metrics.connections_accepted.Increment();
    std::unique_ptr<Conn> conn =
        context_->tls ? context_->tls->MakeConn(std::move(socket)) : MakePlainConn(std::move(socket));
    const auto connection =
        std::make_shared<Connection>(loop.shared_from_this(), context_, std::move(conn), PeerName(peer));
    if (&loop == loops_[0].get()) return connection->Start();
    asio::post(loop.context(), [connection] { connection->Start(); });
  }

  const std::shared_ptr<HttpContext> context_;
  std::vector<std::shared_ptr<IoLoop>> loops_;
  std::optional<tcp::acceptor> acceptor_;
  size_t connections_max_ = 0;
  int port_ = 0;
  bool stopped_ = false;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Start(HttpConfig config, Router router, KeyRing keys,
                                                      prometheus::Registry& registry, std::shared_ptr<JsonLog> log) {
  DI_RETURN_IF_ERROR(Check(config));
  auto context =
      std::make_shared<HttpContext>(std::move(config), std::move(router), std::move(keys), registry, std::move(log));
  auto server = std::make_unique<HttpServerImpl>(std::move(context));
  DI_RETURN_IF_ERROR(server->Open());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace deepinfer::server
