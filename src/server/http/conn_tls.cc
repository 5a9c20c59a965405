// SPDX-License-Identifier: Apache-2.0
// The one file that knows TLS.
#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>

#include "server/http/conn.h"

namespace deepinfer::server {
namespace {

namespace asio = boost::asio;

class TlsConn final : public Conn {
 public:
  TlsConn(TcpSocket socket, std::shared_ptr<TlsContext> keep, asio::ssl::context& context)
      : keep_(std::move(keep)), stream_(std::move(socket), context) {}

  asio::awaitable<IoResult> Handshake() override {
    IoResult result;
    co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                     asio::redirect_error(asio::use_awaitable, result.error));
    co_return result;
  }

  asio::awaitable<IoResult> Read(std::span<char> into) override {
    IoResult result;
    result.bytes = co_await stream_.async_read_some(asio::buffer(into.data(), into.size()),
                                                    asio::redirect_error(asio::use_awaitable, result.error));
    co_return result;
  }

  asio::awaitable<IoResult> Write(std::string_view bytes) override {
    IoResult result;
    result.bytes = co_await stream_.async_write_some(asio::buffer(bytes.data(), bytes.size()),
                                                     asio::redirect_error(asio::use_awaitable, result.error));
    co_return result;
  }

  IoResult TryWrite(std::string_view) override { return {}; }

  void ShutdownSend() override {
    boost::system::error_code ignored;
    stream_.lowest_layer().shutdown(TcpSocket::shutdown_send, ignored);
  }

  void Close() override {
    boost::system::error_code ignored;
    stream_.lowest_layer().close(ignored);
  }

 private:
  std::shared_ptr<TlsContext> keep_;
  asio::ssl::stream<TcpSocket> stream_;
};

// Of the protocols that the client offers, the one that is spoken here.
int SelectProtocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
                   unsigned int in_size, void*) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* selected = nullptr;
  const int found = SSL_select_next_proto(&selected, out_size, kHttp11, sizeof(kHttp11) - 1, in, in_size);
  *out = selected;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

class TlsContextImpl final : public TlsContext, public std::enable_shared_from_this<TlsContextImpl> {
 public:
  std::unique_ptr<Conn> MakeConn(TcpSocket socket) override {
    return std::make_unique<TlsConn>(std::move(socket), shared_from_this(), context_);
  }

  Status Open(const std::string& certificate_file, const std::string& key_file) {
    boost::system::error_code error;
    SSL_CTX* const native = context_.native_handle();
    SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
    SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(native, SelectProtocol, nullptr);
    context_.use_certificate_chain_file(certificate_file, error);
    if (error)
      return Error(Code::kInvalidArgument, "{}: no PEM certificate chain: {}", certificate_file, error.message());
    context_.use_private_key_file(key_file, asio::ssl::context::pem, error);
    if (error)
      return Error(Code::kInvalidArgument, "{}: no PEM private key, or not the certificate's: {}", key_file,
                   error.message());
    return {};
  }

 private:
  asio::ssl::context context_{asio::ssl::context::tls_server};
};

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::Load(const std::string& certificate_file, const std::string& key_file) {
  auto context = std::make_shared<TlsContextImpl>();
  DI_RETURN_IF_ERROR(context->Open(certificate_file, key_file));
  return std::shared_ptr<TlsContext>(std::move(context));
}

}  // namespace deepinfer::server
