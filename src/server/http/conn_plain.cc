// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/http/conn.h"

namespace deepinfer::server {
namespace {

namespace asio = boost::asio;

class PlainConn final : public Conn {
 public:
  explicit PlainConn(TcpSocket socket) : socket_(std::move(socket)) {
    boost::system::error_code ignored;
    socket_.non_blocking(true, ignored);
  }

  asio::awaitable<IoResult> Handshake() override { co_return IoResult{}; }

  asio::awaitable<IoResult> Read(std::span<char> into) override {
    IoResult result;
    result.bytes = co_await socket_.async_read_some(asio::buffer(into.data(), into.size()),
                                                    asio::redirect_error(asio::use_awaitable, result.error));
    co_return result;
  }

  asio::awaitable<IoResult> Write(std::string_view bytes) override {
    IoResult result;
    result.bytes = co_await socket_.async_write_some(asio::buffer(bytes.data(), bytes.size()),
                                                     asio::redirect_error(asio::use_awaitable, result.error));
    co_return result;
  }

  IoResult TryWrite(std::string_view bytes) override {
    for (;;) {
      const ssize_t sent = send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent >= 0) return {static_cast<size_t>(sent), {}};
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      return {0, boost::system::error_code(errno, boost::system::system_category())};
    }
  }

  void ShutdownSend() override {
    boost::system::error_code ignored;
    socket_.shutdown(TcpSocket::shutdown_send, ignored);
  }

  void Close() override {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  TcpSocket socket_;
};

}  // namespace

std::unique_ptr<Conn> MakePlainConn(TcpSocket socket) { return std::make_unique<PlainConn>(std::move(socket)); }

}  // namespace deepinfer::server
