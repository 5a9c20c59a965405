// SPDX-License-Identifier: Apache-2.0
// What the transport and the endpoints agree on: a request, the means to answer it, and a table of routes.
//
//   router.Add({.method = "POST", .pattern = "/v1/things/{id}", .run_on = RunOn::kWorker,
//               .handler = [](std::shared_ptr<const HttpRequest> request, std::shared_ptr<Responder> responder) {
//                 responder->SendJson(200, R"({"id":")" + request->Capture("id") + "\"}");
//               }});
//
// Before a handler is called the transport has checked framing, limits, key and route; the body is complete and of at
// most the route's size, and any bytes: whether it is UTF-8, JSON or sense is the handler's to find out. A HttpRequest
// is immutable: any thread may read it. A Responder may be called from any thread, by one at a time or by many; its
// calls never block and never call back, except OnGone as told there.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer::server {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

// Who asks, where keys are configured. The secret itself is nowhere in the process.
struct ApiKey {
  std::string name;             // for logs and metrics; what stored responses belong to
  std::string cache_salt;       // requests share cached prefixes only within one salt; empty: with all such keys
  int64_t max_tokens_max = 0;   // most tokens of an answer; 0: no limit of its own
  int64_t deadline_ms_max = 0;  // longest time for an answer; 0: no limit of its own
  int requests_open_max = 0;    // requests at a time (the transport answers 429 over it); 0: no limit of its own
};

struct HttpRequest {
  std::string method;  // "GET", "POST", ...
  std::string path;    // as it was sent, without the query; never decoded: compare, do not open
  std::string query;   // behind the '?', not decoded
  HeaderList headers;  // in order; names as they were sent
  std::string body;
  std::string request_id;             // ours, unique ("req_..."); sent back as x-request-id and request-id, and logged
  std::string peer;                   // "127.0.0.1:54321"
  std::shared_ptr<const ApiKey> key;  // nullptr: no keys are configured, or the route is public
  std::vector<std::pair<std::string, std::string>> captures;  // of the pattern's {names}, decoded: see Route::pattern
  std::chrono::steady_clock::time_point received_at;          // when its first byte was there

  // The first header of that name, in any case; nullptr: none.
  const std::string* Header(std::string_view name) const;
  // The captured text of {name}. REQUIRES: the route's pattern has it.
  const std::string& Capture(std::string_view name) const;
  // The first `name=value` of the query, decoded; nothing where it is absent or badly encoded.
  std::optional<std::string> QueryValue(std::string_view name) const;
};

struct StreamOptions {
  int status = 200;
  std::string content_type = "text/event-stream";
  HeaderList headers;
  // Sent by itself whenever the stream was silent for the configured time (10 s by default), a complete event or
  // comment; empty: never.
  std::string heartbeat = ": keep-alive\n\n";
};

// One answer: either one Send, or BeginStream, any number of Writes, End. Calls in a wrong order (a second Send, a
// Write after End) are ignored. Where the last reference goes before the answer is complete, the transport answers 500,
// or cuts a stream off so that the client notices.
class Responder {
 public:
  virtual ~Responder() = default;

  // A whole answer. Content-Length, Date, Connection, request ids and CORS are added.
  virtual void Send(int status, std::string_view content_type, std::string body, HeaderList headers = {}) = 0;
  void SendJson(int status, std::string body, HeaderList headers = {}) {
    Send(status, "application/json", std::move(body), std::move(headers));
  }

  // Sends the head of a streamed answer at once.
  virtual void BeginStream(StreamOptions options) = 0;
  // Queues bytes; what several calls left behind goes out together. False: nobody will read it (the client is gone, or
  // was cut off because more than the configured limit waited for it): stop the work. Cheap: no system call.
  virtual bool Write(std::string_view bytes) = 0;
  // The answer is complete.
  virtual void End() = 0;

  // `callback` is called once if the client goes away, or is cut off, before the answer is complete: on the io thread
  // of the connection, or at once by this call where that has happened already. It must not block. At most one
  // callback; it is dropped when the answer is complete.
  virtual void OnGone(std::function<void()> callback) = 0;
  virtual bool gone() const = 0;

  // A field of the request's line in the log: `Annotate("answer_tokens", 12)`. Never prompts, answers or secrets.
  virtual void Annotate(std::string_view name, std::string_view value) = 0;
  virtual void Annotate(std::string_view name, int64_t value) = 0;
};

using Handler = std::function<void(std::shared_ptr<const HttpRequest>, std::shared_ptr<Responder>)>;

// kIo: on the connection's io thread; for handlers that return within some ten microseconds, since all other
// connections of that thread wait. kWorker: on one of the server's worker threads, behind a queue of stated length
// (over it: 503 with Retry-After); for handlers that parse bodies or encode prompts. Neither may block on a network or
// an engine.
enum class RunOn { kIo, kWorker };
// kKey: where keys are configured, only with one of them. kPublic: for all.
enum class Access { kKey, kPublic };

struct Route {
  std::string method;  // HEAD is answered by the GET route, without its body
  // Segments are compared byte by byte; "{name}" takes one segment of 1..256 characters out of A-Z a-z 0-9 _ . : - that
  // does not begin with a dot (after percent-decoding; all else is a 404, so a capture is no path).
  std::string pattern;
  Access access = Access::kKey;
  RunOn run_on = RunOn::kIo;
  size_t body_bytes_max = 0;  // 0: the server's limit
  Handler handler = nullptr;
};

// The body (JSON) of an error that the transport itself answers (401, 404, 405, 413, 429, 503 ...), in the shape of the
// protocol that `path` belongs to. `message` is a constant text for people.
using ErrorBodyFn = std::function<std::string(std::string_view path, int status, std::string_view message)>;

// A table of routes, filled before the server starts and immutable from then on.
class Router {
 public:
  // What came of a method and a path. `route` is nullptr for an unknown path (allow is empty: 404) and for a known path
  // with another method (allow is "GET, POST": 405).
  struct Match {
    const Route* route = nullptr;
    std::vector<std::pair<std::string, std::string>> captures;
    std::string allow;
  };

  // REQUIRES: the pattern begins with '/', and no other route has its method and shape.
  void Add(Route route);
  void SetErrorBody(ErrorBodyFn error_body) { error_body_ = std::move(error_body); }

  Match Find(std::string_view method, std::string_view path) const;
  // By SetErrorBody, or {"error":{"message":...,"type":...,"param":null,"code":null}}.
  std::string ErrorBody(std::string_view path, int status, std::string_view message) const;
  const std::vector<Route>& routes() const { return routes_; }

 private:
  std::vector<Route> routes_;
  ErrorBodyFn error_body_;
};

}  // namespace deepinfer::server
