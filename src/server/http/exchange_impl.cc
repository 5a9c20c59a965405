// SPDX-License-Identifier: Apache-2.0
#include "server/http/exchange_impl.h"

#include "core/json.h"
#include "server/http/connection.h"

namespace deepinfer::server {
namespace {

// A stream keeps a buffer of this size between writes, and no larger one.
constexpr size_t kKeptBytes = 4096;
// Status in log and metrics of a request whose client left: none was sent, or not all of what it promised.
constexpr int kClientGone = 499;
constexpr int kAbandonedStream = 500;
constexpr size_t kLoggedBytesMax = 256;

std::string ClientRequestId(const HttpRequest& request) {
  const std::string* id = request.Header("x-request-id");
  return id == nullptr ? std::string() : id->substr(0, kLoggedBytesMax);
}

// The handler's end of an exchange.
class HandlerResponder final : public Responder {
 public:
  explicit HandlerResponder(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~HandlerResponder() override { exchange_->Abandon(); }

  void Send(int status, std::string_view content_type, std::string body, HeaderList headers) override {
    exchange_->Send(status, content_type, std::move(body), std::move(headers));
  }
  void BeginStream(StreamOptions options) override { exchange_->BeginStream(std::move(options)); }
  bool Write(std::string_view bytes) override { return exchange_->Write(bytes); }
  void End() override { exchange_->End(); }
  void OnGone(std::function<void()> callback) override { exchange_->OnGone(std::move(callback)); }
  bool gone() const override { return exchange_->gone(); }
  void Annotate(std::string_view name, std::string_view value) override {
    std::string json;
    AppendJsonString(value, /*ascii_only=*/false, &json);
    exchange_->AddLogField(name, json);
  }
  void Annotate(std::string_view name, int64_t value) override { exchange_->AddLogField(name, std::to_string(value)); }

 private:
  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace

Exchange::Exchange(std::shared_ptr<IoLoop> loop, std::shared_ptr<HttpContext> context, Connection* connection,
                   const StoredRequest& request, const Route* route, std::shared_ptr<KeyEntry> key)
    : loop_(std::move(loop)),
      context_(std::move(context)),
      route_(route),
      key_(std::move(key)),
      method_(request.method),
      path_(request.path.substr(0, kLoggedBytesMax)),
      request_id_(request.request_id),
      peer_(request.peer),
      client_request_id_(ClientRequestId(request)),
      received_at_(request.received_at),
      connection_(connection) {
  context_->metrics.requests_open.Increment();
}

Exchange::~Exchange() = default;

std::shared_ptr<Responder> Exchange::MakeResponder() { return std::make_shared<HandlerResponder>(shared_from_this()); }

bool Exchange::MarkScheduled() {
  if (scheduled_) return false;
  scheduled_ = true;
  return true;
}

void Exchange::ScheduleIf(bool marked) {
  if (marked) loop_->Schedule(shared_from_this());
}

void Exchange::Send(int status, std::string_view content_type, std::string body, HeaderList headers) {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::kOpen) return;
  stage_ = Stage::kEnded;
  head_ = {.status = status,
           .content_type = std::string(content_type),
           .headers = std::move(headers),
           .body_bytes = body.size()};
  head_waits_ = true;
  out_ = std::move(body);
  const bool marked = MarkScheduled();
  lock.unlock();
  ScheduleIf(marked);
}

void Exchange::BeginStream(StreamOptions options) {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::kOpen) return;
  stage_ = Stage::kStreaming;
  head_ = {.status = options.status,
           .content_type = std::move(options.content_type),
           .headers = std::move(options.headers),
           .stream = true};
  heartbeat_ = std::move(options.heartbeat);
  head_waits_ = true;
  const bool marked = MarkScheduled();
  lock.unlock();
  ScheduleIf(marked);
}

bool Exchange::Write(std::string_view bytes) {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::kStreaming || too_slow_ || gone()) return false;
  if (out_.size() + backlog_.load(std::memory_order_relaxed) > context_->config.stream_buffer_bytes_max) {
    too_slow_ = true;
  } else {
    out_.append(bytes);
  }
  const bool written = !too_slow_;
  const bool marked = MarkScheduled();
  lock.unlock();
  ScheduleIf(marked);
  return written;
}

void Exchange::End() {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::kStreaming) return;
  stage_ = Stage::kEnded;
  const bool marked = MarkScheduled();
  lock.unlock();
  ScheduleIf(marked);
}

void Exchange::OnGone(std::function<void()> callback) {
  std::unique_lock lock(mutex_);
  if (gone()) {
    lock.unlock();
    callback();
  } else if (stage_ != Stage::kEnded) {
    on_gone_ = std::move(callback);
  }
}

void Exchange::AddLogField(std::string_view name, std::string_view json) {
  const std::lock_guard lock(mutex_);
  fmt::format_to(std::back_inserter(log_fields_), "{}\"{}\":{}", log_fields_.empty() ? "" : ",", name, json);
}

void Exchange::Abandon() {
  std::unique_lock lock(mutex_);
  if (stage_ == Stage::kEnded || gone()) return;
  if (stage_ == Stage::kStreaming) {
    abandoned_ = true;
    const bool marked = MarkScheduled();
    lock.unlock();
    ScheduleIf(marked);
    return;
  }
  lock.unlock();
  Send(500, "application/json", context_->router.ErrorBody(path_, 500, "the server could not answer this request"), {});
}

void Exchange::FlushOnIo() {
  bool too_slow = false, abandoned = false, complete = false;
  std::function<void()> dropped;
  {
    const std::lock_guard lock(mutex_);
    scheduled_ = false;
    if (connection_ == nullptr) return;
    too_slow = too_slow_;
    abandoned = abandoned_;
    complete = stage_ == Stage::kEnded;
    if (!too_slow) HandOver();
    if (complete) dropped.swap(on_gone_);
  }
  if (too_slow) return connection_->CutOff(GoneReason::kTooSlow);
  if (!complete) {
    connection_->Flush();
    if (abandoned && connection_ != nullptr) connection_->CutOff(GoneReason::kAbandoned);
    return;
  }
  connection_->PutEnd();
  Connection* const connection = std::exchange(connection_, nullptr);
  streaming_ = false;
  Account(status_, connection->TakeExchangeBytes());
  connection->OnAnswered();
}

void Exchange::HandOver() {
  if (head_waits_) {
    head_waits_ = false;
    status_ = head_.status;
    streaming_ = head_.stream;
    connection_->PutHead(head_, request_id_);
    head_ = {};
  }
  if (out_.empty()) return;
  connection_->PutPayload(out_);
  out_.clear();
  if (out_.capacity() > kKeptBytes) out_.shrink_to_fit();
}

void Exchange::Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    if (heartbeat_.empty() || stage_ != Stage::kStreaming || scheduled_ || connection_ == nullptr) return;
    connection_->PutPayload(heartbeat_);
  }
  connection_->Flush();
}

void Exchange::OnConnectionGone(GoneReason reason) {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    gone_.store(true, std::memory_order_relaxed);
    callback.swap(on_gone_);
    out_.clear();
    out_.shrink_to_fit();
  }
  Connection* const connection = std::exchange(connection_, nullptr);
  streaming_ = false;
  if (reason == GoneReason::kLeft) context_->metrics.clients_gone.Increment();
  if (reason == GoneReason::kTooSlow) context_->metrics.clients_cut_off.Increment();
  Account(reason == GoneReason::kAbandoned ? kAbandonedStream : kClientGone, connection->TakeExchangeBytes());
  if (callback) callback();
}

void Exchange::Account(int status, size_t bytes_sent) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - received_at_).count();
  context_->metrics.requests_open.Decrement();
  context_->metrics.OnAnswered(route_, status, seconds);
  if (key_ != nullptr) key_->requests_open.fetch_sub(1, std::memory_order_relaxed);
  if (!context_->config.log_requests) return;
  LogLine line("request");
  line.Add("id", request_id_).Add("peer", peer_).Add("method", method_).Add("path", path_).Add("status", status);
  line.Add("bytes", bytes_sent).AddFloat("ms", seconds * 1e3, 3);
  if (key_ != nullptr) line.Add("key", key_->key.name);
  if (!client_request_id_.empty()) line.Add("client_request_id", client_request_id_);
  {
    const std::lock_guard lock(mutex_);
    line.AddRaw("", log_fields_);
  }
  context_->log->Write(std::move(line));
}

}  // namespace deepinfer::server
