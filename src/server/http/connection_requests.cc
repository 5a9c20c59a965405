// SPDX-License-Identifier: Apache-2.0
// How a connection reads requests and hands them to handlers.
#include <strings.h>

#include <algorithm>

#include "server/http/answer_head.h"
#include "server/http/connection.h"

namespace deepinfer::server {
namespace {

// A body of a refused request that is read and thrown away, so that the connection lives on.
constexpr uint64_t kDiscardBytesMax = 64 << 10;

constexpr const char* kShuttingDown = "the server is shutting down";

// "req_" and 16 hex digits, unique within a process and hardly met twice beyond it.
std::string NewRequestId() {
  static std::atomic<uint64_t> next{[] {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return (static_cast<uint64_t>(now.tv_sec) << 30) + static_cast<uint64_t>(now.tv_nsec);
  }()};
  char text[24];
  // An odd multiplier permutes the numbers: neighbours do not look alike.
  const uint64_t number = next.fetch_add(1, std::memory_order_relaxed) * 0x9E3779B97F4A7C15;
  fmt::format_to_n(text, sizeof(text), "req_{:016x}", number);
  return std::string(text, 20);
}

// Whatever a handler throws is the end of its own request: the responder answers 500 when it dies.
void RunHandler(const HttpContext& context, const Route& route, std::shared_ptr<const HttpRequest> request,
                std::shared_ptr<Responder> responder) {
  const std::string id = request->request_id;
  try {
    route.handler(std::move(request), std::move(responder));
  } catch (const std::exception& error) {
    context.log->Write(std::move(LogLine("handler_failed", "error").Add("id", id).Add("what", error.what())));
  }
}

bool EqualsNoCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

void Connection::Advance() {
  if (advancing_) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  advancing_ = true;
  while (Step()) {
  }
  advancing_ = false;
  Flush();
  if (room_ && !ReadPaused()) room_->cancel();
}

bool Connection::Step() {
  if (phase_ == Phase::kBusy || phase_ == Phase::kLinger || phase_ == Phase::kClosed) return false;
  const bool read_whole = parser_ && parser_->done();
  if ((input_begin_ == input_end_ && !read_whole) || OutputFull()) return false;
  if (phase_ == Phase::kIdle) BeginRequest();
  std::string_view input(input_.data() + input_begin_, input_end_ - input_begin_);
  const RequestParser::Progress progress = parser_->Put(&input);
  input_begin_ = input_end_ - input.size();
  const bool over_budget = !request_->AccountBody();
  switch (progress) {
    case RequestParser::Progress::kNeedMore:
      if (over_budget) OnRefused({503, "the server holds too many request bodies"});
      return false;
    case RequestParser::Progress::kHeader:
      OnHeader();
      return true;
    case RequestParser::Progress::kRefused:
      OnRefused(parser_->refusal());
      return false;
    case RequestParser::Progress::kDone:
      break;
  }
  if (over_budget) {
    OnRefused({503, "the server holds too many request bodies"});
  } else {
    Dispatch(refusal_);
  }
  return true;
}

void Connection::BeginRequest() {
  request_ = std::make_shared<StoredRequest>(context_);
  request_->received_at = std::chrono::steady_clock::now();
  request_->request_id = NewRequestId();
  request_->peer = peer_;
  parser_.emplace(ParserLimits{.header_bytes_max = context_->config.header_bytes_max}, request_.get());
  refusal_.reset();
  match_ = {};
  key_.reset();
  origin_.clear();
  head_only_ = false;
  http11_ = true;
  SetPhase(Phase::kHeader);
}

bool Connection::IsPreflight() const {
  return !context_->config.cors_origins.empty() && request_->method == "OPTIONS" &&
         request_->Header("access-control-request-method") != nullptr;
}

std::optional<Refusal> Connection::CheckHeader() {
  if (loop_->draining()) return Refusal{503, kShuttingDown};
  if (IsPreflight()) return std::nullopt;
  match_ = context_->router.Find(request_->method, request_->path);
  const bool is_public = match_.route != nullptr && match_.route->access == Access::kPublic;
  if (!context_->keys.empty() && !is_public) {
    key_ = context_->keys.FindFor(*request_);
    if (key_ == nullptr) return Refusal{401, "a valid API key is needed: Authorization: Bearer KEY, or x-api-key: KEY"};
    request_->key = std::shared_ptr<const ApiKey>(key_, &key_->key);
  }
  if (match_.route == nullptr) {
    if (match_.allow.empty()) return Refusal{404, "there is nothing at this path"};
    return Refusal{405, "this method is not allowed here: see the Allow header"};
  }
  const size_t limit =
      match_.route->body_bytes_max != 0 ? match_.route->body_bytes_max : context_->config.body_bytes_max;
  parser_->LimitBody(limit);
  if (parser_->content_length().value_or(0) > limit) return Refusal{413, "the body is larger than this server allows"};
  const std::string* expect = request_->Header("expect");
  if (expect != nullptr && !EqualsNoCase(*expect, "100-continue"))
    return Refusal{417, "the only expectation that is met is 100-continue"};
  return std::nullopt;
}

void Connection::OnHeader() {
  http11_ = parser_->http11();
  last_request_ = !parser_->keep_alive();
  head_only_ = request_->method == "HEAD";
  const std::vector<std::string>& origins = context_->config.cors_origins;
  if (const std::string* origin = request_->Header("origin"); origin != nullptr && !origins.empty()) {
    const bool any = std::find(origins.begin(), origins.end(), "*") != origins.end();
    if (any || std::find(origins.begin(), origins.end(), *origin) != origins.end()) origin_ = any ? "*" : *origin;
  }
  refusal_ = CheckHeader();
  request_->captures = match_.captures;
  if (parser_->has_body()) SetPhase(Phase::kBody);
  const bool expects = request_->Header("expect") != nullptr && parser_->has_body() && http11_;
  if (refusal_) {
    // A short body is thrown away; a long one is not waited for, and the connection ends with the answer.
    const bool short_body = !expects && parser_->content_length().value_or(kDiscardBytesMax + 1) <= kDiscardBytesMax;
    if (!short_body) return OnRefused(*refusal_);
    parser_->LimitBody(kDiscardBytesMax);
    parser_->DiscardBody();
  } else if (expects && input_begin_ == input_end_) {
    output_.append("HTTP/1.1 100 Continue\r\n\r\n");
  }
}

void Connection::OnRefused(const Refusal& refusal) {
  last_request_ = true;
  if (request_->method.empty()) request_->method.assign(1, '-');
  Dispatch(refusal);
  Flush();
}

void Connection::Dispatch(std::optional<Refusal> refusal) {
  SetPhase(Phase::kBusy);
  parser_.reset();
  const std::shared_ptr<StoredRequest> request = std::move(request_);
  if (!refusal && key_ != nullptr) {
    const int limit = key_->key.requests_open_max;
    const int open = key_->requests_open.fetch_add(1, std::memory_order_relaxed) + 1;
    if (limit > 0 && open > limit) refusal = Refusal{429, "this key has too many requests open"};
    if (refusal) key_->requests_open.fetch_sub(1, std::memory_order_relaxed);
  }
  const auto exchange =
      std::make_shared<Exchange>(loop_, context_, this, *request, match_.route, refusal ? nullptr : key_);
  exchange_ = exchange;
  if (refusal) {
    HeaderList headers;
    if (refusal->status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
    if (refusal->status == 405) headers.emplace_back("Allow", match_.allow);
    if (refusal->status == 429 || refusal->status == 503) headers.emplace_back("Retry-After", "1");
    exchange->Send(refusal->status, "application/json",
                   context_->router.ErrorBody(request->path, refusal->status, refusal->message), std::move(headers));
  } else if (match_.route == nullptr) {
    AnswerPreflight();
  } else {
    CallHandler(request);
  }
  exchange->FlushOnIo();
}

void Connection::CallHandler(const std::shared_ptr<const HttpRequest>& request) {
  const std::shared_ptr<Responder> responder = exchange_->MakeResponder();
  const Route& route = *match_.route;
  if (route.run_on == RunOn::kIo) return RunHandler(*context_, route, request, responder);
  const bool queued = context_->workers.TryPost([context = context_, &route, request, responder]() mutable {
    RunHandler(*context, route, std::move(request), std::move(responder));
  });
  if (!queued) {
    responder->Send(503, "application/json",
                    context_->router.ErrorBody(request->path, 503, "the server's queue is full"),
                    {{"Retry-After", "1"}});
  }
}

void Connection::AnswerPreflight() {
  exchange_->Send(204, "", "",
                  {{"Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS"},
                   {"Access-Control-Allow-Headers", "*, Authorization"},
                   {"Access-Control-Max-Age", "600"}});
}

}  // namespace deepinfer::server
