// SPDX-License-Identifier: Apache-2.0
// The connection's coroutines, its output, and its end. How requests are read and dispatched is in
// connection_requests.cc.
#include "server/http/connection.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>

#include "server/http/answer_head.h"

namespace deepinfer::server {
namespace {

namespace asio = boost::asio;

constexpr size_t kInputBytes = 2048;            // room to read between requests
constexpr size_t kBodyInputBytes = 64 << 10;    // and within a body
constexpr size_t kPipelineBytesMax = 16 << 10;  // read ahead while a request is being answered
constexpr size_t kOutputBytesMax = 256 << 10;   // unsent answers over which no further request is begun
constexpr size_t kKeptOutputBytes = 2048;       // capacity that is kept for the next answer
constexpr int64_t kLingerMs = 2000;
constexpr size_t kLingerBytesMax = 2 << 20;

int64_t ToMs(double seconds) { return static_cast<int64_t>(seconds * 1000); }

}  // namespace

Connection::Connection(std::shared_ptr<IoLoop> loop, std::shared_ptr<HttpContext> context, std::unique_ptr<Conn> conn,
                       std::string peer)
    : loop_(std::move(loop)), context_(std::move(context)), conn_(std::move(conn)), peer_(std::move(peer)) {}

Connection::~Connection() = default;

void Connection::Start() {
  loop_->Add(shared_from_this());
  context_->metrics.connections.Increment();
  deadline_ms_ =
      SteadyMs() + ToMs(context_->config.header_seconds);  // of a handshake, or the first request's beginning
  Spawn(ReadLoop());
}

// What a coroutine throws is want of memory: the end of its connection.
void Connection::Spawn(asio::awaitable<void> coroutine) {
  asio::co_spawn(loop_->context(), std::move(coroutine),
                 [self = shared_from_this()](const std::exception_ptr& failure) {
                   if (failure) self->Close();
                 });
}

void Connection::SetPhase(Phase phase) {
  phase_ = phase;
  const HttpConfig& config = context_->config;
  switch (phase) {
    case Phase::kIdle:
      deadline_ms_ = loop_->now_ms() + ToMs(config.idle_seconds);
      break;
    case Phase::kHeader:
      deadline_ms_ = loop_->now_ms() + ToMs(config.header_seconds);
      break;
    case Phase::kBody:
      deadline_ms_ = loop_->now_ms() + ToMs(config.body_seconds);
      break;
    case Phase::kLinger:
      deadline_ms_ = loop_->now_ms() + kLingerMs;
      break;
    case Phase::kBusy:
    case Phase::kClosed:
      deadline_ms_ = 0;
      break;
  }
}

// ----- reading -----

asio::awaitable<void> Connection::ReadLoop() {
  const std::shared_ptr<Connection> self = shared_from_this();
  const IoResult shaken = co_await conn_->Handshake();
  if (shaken.error) Close();
  if (phase_ == Phase::kIdle) SetPhase(Phase::kIdle);
  while (phase_ != Phase::kClosed) {
    if (ReadPaused()) {
      co_await WaitForRoom();
      continue;
    }
    const IoResult got = co_await conn_->Read(RoomToRead());
    if (phase_ == Phase::kClosed) break;
    if (got.error) {
      OnPeerClosed();
      break;
    }
    if (phase_ == Phase::kLinger) {
      lingered_bytes_ += got.bytes;
      if (lingered_bytes_ > kLingerBytesMax) Close();
      continue;
    }
    input_end_ += got.bytes;
    Advance();
  }
}

bool Connection::OutputFull() const { return output_.size() > kOutputBytesMax; }

bool Connection::ReadPaused() const {
  const size_t waiting = input_end_ - input_begin_;
  return (phase_ == Phase::kBusy || OutputFull()) && waiting >= kPipelineBytesMax;
}

asio::awaitable<void> Connection::WaitForRoom() {
  room_.emplace(loop_->context());
  room_->expires_at(asio::steady_timer::time_point::max());
  boost::system::error_code ignored;
  co_await room_->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  room_.reset();
}

std::span<char> Connection::RoomToRead() {
  if (phase_ == Phase::kLinger || input_begin_ == input_end_) input_begin_ = input_end_ = 0;
  if (input_begin_ > 0 && input_end_ == input_.size()) {
    input_.erase(0, input_begin_);
    input_end_ -= input_begin_;
    input_begin_ = 0;
  }
  const size_t wanted = phase_ == Phase::kBody || phase_ == Phase::kLinger ? kBodyInputBytes : kInputBytes;
  if (input_end_ == 0 && input_.size() != wanted) {
    std::string(wanted, '\0').swap(input_);
  } else if (input_end_ + wanted / 2 > input_.size()) {
    input_.resize(
        std::max(input_.size() * 2, wanted));  // bounded: parser and pipelining leave no more unparsed than they allow
  }
  return {input_.data() + input_end_, input_.size() - input_end_};
}

void Connection::OnPeerClosed() {
  peer_closed_ = true;
  const bool answer_waits = exchange_ == nullptr && (write_loop_ || !output_.empty());
  if (answer_waits) {
    last_request_ = true;  // OnDrained closes
    return;
  }
  Close();
}

// ----- writing -----

void Connection::PutHead(const AnswerHead& head, const std::string& request_id) {
  no_body_ = head_only_ || head.status == 204 || head.status == 304;
  chunked_ = head.stream && http11_ && !no_body_;
  if (head.stream && !http11_) last_request_ = true;  // its end is the end of the connection
  if (loop_->draining()) last_request_ = true;
  const size_t before = output_.size();
  AppendHead(head,
             {.http11 = http11_,
              .chunked = chunked_,
              .length = !head.stream && head.status != 204 && head.status != 304,
              .close = last_request_},
             loop_->HttpDate(), request_id, origin_, &output_);
  exchange_bytes_ += output_.size() - before;
}

void Connection::PutPayload(std::string_view bytes) {
  if (no_body_) return;
  const size_t before = output_.size();
  if (chunked_) {
    char size[20];
    const auto end = std::to_chars(size, size + sizeof(size), bytes.size(), 16).ptr;
    output_.append(size, static_cast<size_t>(end - size));
    output_.append("\r\n");
    output_.append(bytes);
    output_.append("\r\n");
  } else {
    output_.append(bytes);
  }
  exchange_bytes_ += output_.size() - before;
}

void Connection::PutEnd() {
  if (chunked_) output_.append("0\r\n\r\n");
}

void Connection::TellBacklog() {
  if (exchange_ != nullptr) exchange_->SetBacklog(writing_.size() - writing_done_ + output_.size());
}

void Connection::Flush() {
  if (write_loop_) TellBacklog();
  if (write_loop_ || output_.empty() || phase_ == Phase::kClosed) return;
  const IoResult sent = conn_->TryWrite(output_);
  if (sent.error) return Close();
  progress_ms_ = loop_->now_ms();
  context_->metrics.bytes_sent.Increment(static_cast<double>(sent.bytes));
  if (sent.bytes == output_.size()) {
    output_.clear();
    if (output_.capacity() > kKeptOutputBytes) output_.shrink_to_fit();
    return;
  }
  output_.erase(0, sent.bytes);
  TellBacklog();
  write_loop_ = true;
  Spawn(WriteLoop());
}

asio::awaitable<void> Connection::WriteLoop() {
  const std::shared_ptr<Connection> self = shared_from_this();
  while (!output_.empty() && phase_ != Phase::kClosed) {
    writing_.swap(output_);
    writing_done_ = 0;
    while (writing_done_ < writing_.size() && phase_ != Phase::kClosed) {
      const IoResult sent = co_await conn_->Write(std::string_view(writing_).substr(writing_done_));
      if (phase_ == Phase::kClosed) co_return;
      if (sent.error) {
        Close();
        co_return;
      }
      writing_done_ += sent.bytes;
      progress_ms_ = loop_->now_ms();
      context_->metrics.bytes_sent.Increment(static_cast<double>(sent.bytes));
      TellBacklog();
    }
    writing_.clear();
    writing_done_ = 0;
  }
  std::string().swap(writing_);
  writing_done_ = 0;
  if (output_.capacity() > kKeptOutputBytes) output_.shrink_to_fit();
  write_loop_ = false;
  OnDrained();
}

void Connection::OnDrained() {
  if (phase_ == Phase::kClosed || exchange_ != nullptr) return;
  if (phase_ == Phase::kLinger || peer_closed_) return CloseOrLinger();
  if (phase_ == Phase::kIdle) SetPhase(Phase::kIdle);  // idle from now on
  Advance();
}

void Connection::CutOff(GoneReason reason) {
  std::shared_ptr<Exchange> exchange = std::move(exchange_);
  if (exchange != nullptr) exchange->OnConnectionGone(reason);
  Close();
}

void Connection::OnAnswered() {
  exchange_.reset();
  if (last_request_ || loop_->draining()) {
    Flush();
    return CloseOrLinger();
  }
  SetPhase(Phase::kIdle);
  if (!advancing_) Advance();
}

// ----- the end -----

void Connection::CloseOrLinger() {
  if (phase_ == Phase::kClosed) return;
  const bool sending = write_loop_ || !output_.empty();
  if (!sending) {
    if (peer_closed_ || (phase_ == Phase::kLinger && lingered_bytes_ > kLingerBytesMax)) return Close();
    conn_->ShutdownSend();
  }
  SetPhase(Phase::kLinger);
  if (room_) room_->cancel();
}

void Connection::Close() {
  if (phase_ == Phase::kClosed) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  SetPhase(Phase::kClosed);
  conn_->Close();
  if (room_) room_->cancel();
  loop_->Remove(this);
  context_->metrics.connections.Decrement();
  const std::shared_ptr<Exchange> exchange = std::move(exchange_);
  if (exchange != nullptr) exchange->OnConnectionGone(GoneReason::kLeft);
  request_.reset();
}

void Connection::OnDrain() {
  if (phase_ == Phase::kIdle && output_.empty() && !write_loop_) Close();
}

void Connection::OnTick() {
  const int64_t now = loop_->now_ms();
  if (write_loop_ && now - progress_ms_ > ToMs(context_->config.write_stall_seconds))
    return CutOff(GoneReason::kTooSlow);
  if (exchange_ != nullptr) {
    if (exchange_->streaming() && !write_loop_ && now - progress_ms_ >= ToMs(context_->config.heartbeat_seconds)) {
      exchange_->Heartbeat();
    }
    return;
  }
  if (deadline_ms_ == 0 || now < deadline_ms_) return;
  if (write_loop_ && (phase_ == Phase::kIdle || phase_ == Phase::kLinger)) return;  // the write's own limit counts
  const bool within_request = phase_ == Phase::kHeader || phase_ == Phase::kBody;
  if (!within_request) return Close();
  OnRefused({408, "the request took too long to arrive"});
}

}  // namespace deepinfer::server
