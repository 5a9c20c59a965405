// SPDX-License-Identifier: Apache-2.0
// One client connection: bytes in, requests one after the other, answers out. One request is answered at a time; those
// that a client sends ahead (pipelining) wait in the input, which is bounded.
//
// A coroutine reads, and nothing else: while a request is being answered its read waits on, so that a client that
// leaves is noticed at once. Answers are sent where they are ready, without a coroutine, as long as the kernel takes
// them; what it does not take goes to a second coroutine, which ends when nothing is left. A client that closes its
// sending side counts as gone: after a request nothing more tells it apart from one that left.
//
// Everything happens on the io thread of the connection's loop.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>

#include "server/http/conn.h"
#include "server/http/exchange_impl.h"
#include "server/http/request_parser.h"

namespace deepinfer::server {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<IoLoop> loop, std::shared_ptr<HttpContext> context, std::unique_ptr<Conn> conn,
             std::string peer);
  ~Connection();

  // Adds itself to the loop and begins to read.
  void Start();
  void Close();
  void OnDrain();
  // Looks at the deadlines.
  void OnTick();

  // ----- for the exchange that is being answered -----
  void PutHead(const AnswerHead& head, const std::string& request_id);
  void PutPayload(std::string_view bytes);
  void PutEnd();
  void Flush();
  // Ends the connection without the end of the answer.
  void CutOff(GoneReason reason);
  void OnAnswered();
  // Bytes of the answer so far; begins to count anew.
  size_t TakeExchangeBytes() { return std::exchange(exchange_bytes_, 0); }

  size_t index() const { return index_; }
  void set_index(size_t index) { index_ = index; }

 private:
  enum class Phase {
    kIdle,    // between requests
    kHeader,  // within a header
    kBody,
    kBusy,    // a request is being answered
    kLinger,  // answered for the last time: what still comes is thrown away, so that the answer is not
    kClosed,
  };

  void Spawn(boost::asio::awaitable<void> coroutine);
  boost::asio::awaitable<void> ReadLoop();
  boost::asio::awaitable<void> WriteLoop();
  boost::asio::awaitable<void> WaitForRoom();
  bool OutputFull() const;
  bool ReadPaused() const;
  std::span<char> RoomToRead();
  void OnPeerClosed();

  void SetPhase(Phase phase);
  // Goes through the input as far as it can.
  void Advance();
  // One step of that. False: nothing more can be done now.
  bool Step();
  void BeginRequest();
  void OnHeader();
  // What the header says against the request, before its body is read.
  std::optional<Refusal> CheckHeader();
  bool IsPreflight() const;
  void OnRefused(const Refusal& refusal);
  // Answers the request that was read, or refuses it.
  void Dispatch(std::optional<Refusal> refusal);
  void CallHandler(const std::shared_ptr<const HttpRequest>& request);
  void AnswerPreflight();
  // How much waits here, for the limit of the stream.
  void TellBacklog();
  void OnDrained();
  void CloseOrLinger();

  const std::shared_ptr<IoLoop> loop_;
  const std::shared_ptr<HttpContext> context_;
  const std::unique_ptr<Conn> conn_;
  const std::string peer_;
  size_t index_ = 0;

  Phase phase_ = Phase::kIdle;
  int64_t deadline_ms_ = 0;  // of the phase; 0: none
  bool advancing_ = false;
  bool last_request_ = false;  // close when it is answered
  bool peer_closed_ = false;
  std::string input_;  // [input_begin_, input_end_) is not parsed yet
  size_t input_begin_ = 0, input_end_ = 0;
  size_t lingered_bytes_ = 0;
  std::optional<boost::asio::steady_timer> room_;  // waits for others while reading is paused

  // The request being read or answered.
  std::shared_ptr<StoredRequest> request_;
  std::optional<RequestParser> parser_;
  std::optional<Refusal> refusal_;  // to be answered when the body is through
  Router::Match match_;
  std::shared_ptr<KeyEntry> key_;
  std::shared_ptr<Exchange> exchange_;
  std::string origin_;  // of the request, where CORS allows it
  bool head_only_ = false;
  bool http11_ = true;
  bool chunked_ = false;
  bool no_body_ = false;  // HEAD, 204, 304: what the handler sends is not sent on

  std::string output_;   // to be sent
  std::string writing_;  // being sent by WriteLoop
  size_t writing_done_ = 0;
  bool write_loop_ = false;
  int64_t progress_ms_ = 0;  // when bytes last went out
  size_t exchange_bytes_ = 0;
};

}  // namespace deepinfer::server
