// SPDX-License-Identifier: Apache-2.0
// A client that loads a server from one thread over epoll: short requests over kept connections, or many open streams.
//   load_client short PORT CONNECTIONS SECONDS
//   load_client streams PORT STREAMS TOKENS BURST ADDRESSES
// Streams come from 127.0.0.2 .. 127.0.0.(1 + ADDRESSES), since ports of one address do not suffice. A stream counts as
// whole when it had TOKENS tokens, in order, and its end mark. Times of tokens are against the clock of the machine:
// the null engine writes it into each token. Prints one JSON object.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::string_view kTokenMark = "\"at\":";
constexpr std::string_view kEndMark = "data: [DONE]";
constexpr std::string_view kLastChunk = "0\r\n\r\n";

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

struct Peer {
  int fd = -1;
  std::string rest;  // bytes of an event that is not complete
  int64_t tokens = 0;
  int64_t last_at = 0;  // time in the last token
  int64_t sent_at = 0;  // of a short request
  bool end_mark = false, whole = false, closed = false;
};

struct Times {
  std::vector<float> ms;
  void Add(int64_t ns) { ms.push_back(static_cast<float>(ns) * 1e-6F); }
  double At(double share) {
    if (ms.empty()) return 0;
    const size_t i = std::min(ms.size() - 1, static_cast<size_t>(share * static_cast<double>(ms.size())));
    std::nth_element(ms.begin(), ms.begin() + static_cast<std::ptrdiff_t>(i), ms.end());
    return ms[i];
  }
};

int Connect(int port, int address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) Die("socket");
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  sockaddr_in self = {};
  self.sin_family = AF_INET;
  self.sin_addr.s_addr = htonl(0x7F000001U + static_cast<uint32_t>(address));
  setsockopt(fd, SOL_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, &one, sizeof(one));
  if (address > 0 && bind(fd, reinterpret_cast<sockaddr*>(&self), sizeof(self)) != 0) Die("bind");
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(static_cast<uint16_t>(port));
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) != 0) Die("connect");
  fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

void Send(int fd, const std::string& request) {
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) Die("send");
}

std::string Post(const std::string& path, const std::string& body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                     path, body.size(), body);
}

// Calls `on_ready(index)` for readable connections until it returns false for the last time (`open` reaches 0) or time
// is up.
template <typename OnReady>
void Loop(std::vector<Peer>& peers, int64_t until_ns, OnReady on_ready) {
  const int queue = epoll_create1(0);
  for (size_t i = 0; i < peers.size(); ++i) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = i;
    epoll_ctl(queue, EPOLL_CTL_ADD, peers[i].fd, &event);
  }
  size_t open = peers.size();
  std::vector<epoll_event> events(512);
  while (open > 0 && NowNs() < until_ns) {
    const int count = epoll_wait(queue, events.data(), static_cast<int>(events.size()), 100);
    for (int i = 0; i < count; ++i) {
      Peer& peer = peers[events[static_cast<size_t>(i)].data.u64];
      if (peer.closed || on_ready(peer)) continue;
      peer.closed = true;
      close(peer.fd);
      --open;
    }
  }
  close(queue);
}

int Short(int port, int connections, double seconds) {
  const std::string request = Post("/test/short", "{}");
  std::vector<Peer> peers(static_cast<size_t>(connections));
  for (Peer& peer : peers) peer.fd = Connect(port, 0);
  const int64_t begin = NowNs();
  for (Peer& peer : peers) {
    peer.sent_at = NowNs();
    Send(peer.fd, request);
  }
  int64_t answers = 0, failures = 0;
  Times times;
  char buffer[4096];
  Loop(peers, begin + static_cast<int64_t>(seconds * 1e9), [&](Peer& peer) {
    const ssize_t got = recv(peer.fd, buffer, sizeof(buffer), 0);
    if (got <= 0) {
      ++failures;
      return false;
    }
    peer.rest.append(buffer, static_cast<size_t>(got));
    if (!peer.rest.ends_with("}]}")) return true;
    if (!peer.rest.starts_with("HTTP/1.1 200")) ++failures;
    peer.rest.clear();
    const int64_t now = NowNs();
    times.Add(now - peer.sent_at);
    ++answers;
    peer.sent_at = now;
    Send(peer.fd, request);
    return true;
  });
  const double elapsed = static_cast<double>(NowNs() - begin) * 1e-9;
  fmt::print(R"({{"requests_per_second":{:.0f},"failures":{},"p50_ms":{:.3f},"p99_ms":{:.3f}}})"
             "\n",
             static_cast<double>(answers) / elapsed, failures, times.At(0.5), times.At(0.99));
  return failures == 0 ? 0 : 1;
}

// Takes the tokens out of what came; what may be the beginning of one stays in `rest`.
void TakeTokens(Peer& peer, Times& times, int64_t now) {
  size_t at = 0;
  for (;;) {
    const size_t mark = peer.rest.find(kTokenMark, at);
    if (mark == std::string::npos) break;
    const size_t brace = peer.rest.find('}', mark);
    if (brace == std::string::npos) break;
    int64_t time = 0;
    std::from_chars(peer.rest.data() + mark + kTokenMark.size(), peer.rest.data() + brace, time);
    if (time < peer.last_at) return;  // out of order: the stream will not count as whole
    peer.last_at = time;
    ++peer.tokens;
    times.Add(now - time);
    at = brace;
  }
  if (const size_t mark = peer.rest.find(kEndMark, at); mark != std::string::npos) peer.end_mark = true;
  peer.whole = peer.end_mark && peer.rest.ends_with(kLastChunk);
  if (peer.whole) return;
  const size_t mark = peer.rest.find(kTokenMark, at);
  peer.rest.erase(
      0, mark != std::string::npos ? mark : std::max(at, peer.rest.size() - std::min<size_t>(peer.rest.size(), 64)));
}

int Streams(int port, int streams, int64_t tokens, int64_t burst, int addresses) {
  const std::string request =
      Post("/v1/chat/completions", fmt::format(R"({{"stream":true,"max_tokens":{},"burst":{}}})", tokens, burst));
  std::vector<Peer> peers(static_cast<size_t>(streams));
  for (size_t i = 0; i < peers.size(); ++i) peers[i].fd = Connect(port, 1 + static_cast<int>(i) % addresses);
  const int64_t begin = NowNs();
  for (Peer& peer : peers) Send(peer.fd, request);
  Times tokens_late, last_late;
  tokens_late.ms.reserve(static_cast<size_t>(streams) * static_cast<size_t>(tokens));
  char buffer[65536];
  int64_t reads = 0;
  Loop(peers, begin + int64_t{300} * 1'000'000'000, [&](Peer& peer) {
    const ssize_t got = recv(peer.fd, buffer, sizeof(buffer), 0);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    ++reads;
    peer.rest.append(buffer, static_cast<size_t>(got));
    if (peer.tokens == 0 && peer.rest.starts_with("HTTP/1.1 ") && !peer.rest.starts_with("HTTP/1.1 200")) return false;
    const int64_t now = NowNs();
    TakeTokens(peer, tokens_late, now);
    if (!peer.whole) return true;
    last_late.Add(now - peer.last_at);
    return false;
  });
  const double elapsed = static_cast<double>(NowNs() - begin) * 1e-9;
  int64_t whole = 0, all = 0;
  for (const Peer& peer : peers) {
    whole += peer.whole && peer.tokens == tokens ? 1 : 0;
    all += peer.tokens;
  }
  fmt::print(
      R"({{"streams":{},"whole":{},"tokens":{},"seconds":{:.2f},"tokens_per_second":{:.0f},"tokens_per_read":{:.2f},)"
      R"("p50_ms":{:.3f},"p99_ms":{:.3f},"last_token_worst_ms":{:.1f}}})"
      "\n",
      streams, whole, all, elapsed, static_cast<double>(all) / elapsed,
      static_cast<double>(all) / static_cast<double>(reads), tokens_late.At(0.5), tokens_late.At(0.99),
      last_late.At(1.0));
  return whole == streams ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const auto number = [&](int i) { return std::atol(argv[i]); };
  if (argc == 5 && std::strcmp(argv[1], "short") == 0)
    return Short(static_cast<int>(number(2)), static_cast<int>(number(3)), std::atof(argv[4]));
  if (argc == 7 && std::strcmp(argv[1], "streams") == 0) {
    return Streams(static_cast<int>(number(2)), static_cast<int>(number(3)), number(4), number(5),
                   static_cast<int>(number(6)));
  }
  std::fputs("usage: see load_client.cc\n", stderr);
  return 2;
}
