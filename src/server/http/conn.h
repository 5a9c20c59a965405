// SPDX-License-Identifier: Apache-2.0
// A byte stream to one peer, plain or TLS behind one interface, so that everything above is compiled once.
// All calls on the io thread that the stream belongs to. One Read and one Write may be under way at a time; Close ends
// both.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"

namespace deepinfer::server {

struct IoResult {
  size_t bytes = 0;
  boost::system::error_code error;  // end of stream is one
};

class Conn {
 public:
  virtual ~Conn() = default;
  // Before the first Read; does nothing for a plain stream.
  virtual boost::asio::awaitable<IoResult> Handshake() = 0;
  // Some bytes, at least one where there is no error.
  virtual boost::asio::awaitable<IoResult> Read(std::span<char> into) = 0;
  // Sends a part of `bytes`, at least one where there is no error.
  virtual boost::asio::awaitable<IoResult> Write(std::string_view bytes) = 0;
  // Sends what the kernel takes at once, possibly nothing; for a TLS stream always nothing. Not while a Write is under
  // way.
  virtual IoResult TryWrite(std::string_view bytes) = 0;
  // No more bytes to the peer. (TLS: its closing message is not waited for.)
  virtual void ShutdownSend() = 0;
  virtual void Close() = 0;
};

using TcpSocket = boost::asio::ip::tcp::socket;

std::unique_ptr<Conn> MakePlainConn(TcpSocket socket);

// Certificate and key of a server, loaded once. Immutable; connections keep it alive.
class TlsContext {
 public:
  // PEM files: a certificate chain and its private key. TLS 1.2 and 1.3.
  static Result<std::shared_ptr<TlsContext>> Load(const std::string& certificate_file, const std::string& key_file);
  virtual ~TlsContext() = default;
  virtual std::unique_ptr<Conn> MakeConn(TcpSocket socket) = 0;
};

}  // namespace deepinfer::server
