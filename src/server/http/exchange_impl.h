// SPDX-License-Identifier: Apache-2.0
// One request being answered: where the thread that answers and the connection meet.
// Answering threads leave head, bytes and the end under a small lock and put the exchange on its loop's list, at most
// once until the loop has come by. The loop takes what is there to the connection. The connection belongs to the io
// thread; once it is gone, or the answer is complete, the exchange knows no connection any more.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "server/http/exchange.h"
#include "server/http/http_context.h"
#include "server/http/io_loop.h"

namespace deepinfer::server {

// What the head of an answer says besides what the transport adds.
struct AnswerHead {
  int status = 0;
  std::string content_type;
  HeaderList headers;
  bool stream = false;
  size_t body_bytes = 0;  // of a whole answer
};

// Why an answer was not completed.
enum class GoneReason {
  kLeft,       // the client closed the connection
  kTooSlow,    // it does not read what waits for it
  kAbandoned,  // the handler gave up within a stream
};

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<IoLoop> loop, std::shared_ptr<HttpContext> context, Connection* connection,
           const StoredRequest& request, const Route* route, std::shared_ptr<KeyEntry> key);
  ~Exchange();

  // A responder for the handler; when it dies before the answer is complete, the exchange is abandoned. Once.
  std::shared_ptr<Responder> MakeResponder();

  // ----- any thread: what Responder promises -----
  void Send(int status, std::string_view content_type, std::string body, HeaderList headers);
  void BeginStream(StreamOptions options);
  bool Write(std::string_view bytes);
  void End();
  void OnGone(std::function<void()> callback);
  bool gone() const { return gone_.load(std::memory_order_relaxed); }
  void AddLogField(std::string_view name, std::string_view json);
  void Abandon();

  // ----- io thread -----
  // Hands over to the connection what is there. Until the first call nothing is put on the loop's list: whoever
  // dispatched the request calls it when the handler has returned.
  void FlushOnIo();
  // Bytes that the connection could not send yet.
  void SetBacklog(size_t bytes) { backlog_.store(bytes, std::memory_order_relaxed); }
  // The stream's heartbeat, if it is one and nothing waits.
  void Heartbeat();
  bool streaming() const { return streaming_; }
  void OnConnectionGone(GoneReason reason);

 private:
  enum class Stage { kOpen, kStreaming, kEnded };

  // Puts the exchange on the loop's list, once. REQUIRES: the lock is held.
  bool MarkScheduled();
  void ScheduleIf(bool marked);
  // Gives head and payload to the connection. REQUIRES: the lock is held, and there is a connection.
  void HandOver();
  // Says in log and metrics what became of the request.
  void Account(int status, size_t bytes_sent);

  const std::shared_ptr<IoLoop> loop_;
  const std::shared_ptr<HttpContext> context_;
  const Route* const route_;
  const std::shared_ptr<KeyEntry> key_;
  const std::string method_, path_, request_id_, peer_, client_request_id_;
  const std::chrono::steady_clock::time_point received_at_;

  std::mutex mutex_;
  Stage stage_ = Stage::kOpen;  // guarded, as all to the next remark
  bool scheduled_ = true;       // the dispatcher will come
  bool too_slow_ = false;       // over the limit: nothing more is sent
  bool abandoned_ = false;      // within a stream: what is there is sent
  AnswerHead head_;
  bool head_waits_ = false;
  std::string out_;  // payload, without framing
  std::string heartbeat_;
  std::function<void()> on_gone_;
  std::string log_fields_;

  std::atomic<bool> gone_{false};
  std::atomic<size_t> backlog_{0};

  // The io thread's own.
  Connection* connection_;
  bool streaming_ = false;
  int status_ = 0;
};

}  // namespace deepinfer::server
