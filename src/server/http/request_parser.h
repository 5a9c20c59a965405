// SPDX-License-Identifier: Apache-2.0
// Bytes of a connection to one HTTP/1.x request, under limits and stricter than the grammar where leniency would let
// two parties disagree on where a request ends: ambiguous framing is an error, never a guess. Boost.Beast's incremental
// parser does the grammar; what it would let pass and this refuses: any Transfer-Encoding but plain "chunked" (it would
// take the body for the next request), repeated Content-Length, Transfer-Encoding under HTTP/1.0, folded header lines,
// no Host or several, and headers that are long only in sum. One parser for one request. One thread at a time. A
// request that stays in the parser's hands costs its header, and its body as far as it has arrived: a promised length
// reserves nothing.
#pragma once

#include <boost/beast/http/basic_parser.hpp>
#include <cstddef>
#include <string_view>

#include "server/http/exchange.h"

namespace deepinfer::server {

struct ParserLimits {
  size_t header_bytes_max = size_t{64} << 10;  // request line and all fields
  size_t header_fields_max = 128;
  size_t framing_bytes_max = size_t{1} << 20;  // of chunk headers and trailers, which are no body
};

// Why a request cannot be answered by a handler: what to answer instead.
struct Refusal {
  int status = 400;
  const char* message = "";  // a constant
};

class RequestParser final : private boost::beast::http::basic_parser<true> {
 public:
  enum class Progress {
    kNeedMore,  // all that could be used was used
    kHeader,    // the header is complete, the body is not begun: told once
    kDone,
    kRefused,  // see refusal(); the connection cannot be used further
  };

  RequestParser(const ParserLimits& limits, HttpRequest* request);

  // Takes bytes off the front of `input`, up to the next event.
  Progress Put(std::string_view* input);
  // From here on: more body than this is refused with 413. To be called at kHeader.
  void LimitBody(size_t bytes) { body_bytes_max_ = bytes; }
  // The body is counted and not kept.
  void DiscardBody() { discard_ = true; }

  const Refusal& refusal() const { return refusal_; }
  // The whole request was read.
  bool done() const { return is_done(); }
  bool keep_alive() const { return base::keep_alive(); }
  bool http11() const { return version_ == 11; }
  bool has_body() const { return chunked() || base::content_length().value_or(0) > 0; }
  // Of the body; nothing where it is chunked.
  std::optional<uint64_t> content_length() const;

 private:
  using base = boost::beast::http::basic_parser<true>;
  using error_code = boost::beast::error_code;
  using string_view = boost::beast::string_view;

  void on_request_impl(boost::beast::http::verb, string_view method, string_view target, int version,
                       error_code& ec) override;
  void on_response_impl(int, string_view, int, error_code&) override {}
  void on_field_impl(boost::beast::http::field field, string_view name, string_view value, error_code& ec) override;
  void on_header_impl(error_code& ec) override;
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(string_view body, error_code& ec) override;
  void on_chunk_header_impl(std::uint64_t size, string_view, error_code& ec) override;
  std::size_t on_chunk_body_impl(std::uint64_t, string_view body, error_code& ec) override;
  void on_finish_impl(error_code&) override {}

  void Refuse(int status, const char* message, error_code* ec);
  Progress Fail(const error_code& ec);
  bool Keep(std::string_view body, error_code* ec);

  const ParserLimits limits_;
  HttpRequest* request_;
  Refusal refusal_;
  bool refused_ = false;
  bool discard_ = false;
  int version_ = 11;
  int hosts_ = 0;
  int lengths_ = 0;
  size_t header_bytes_ = 0;
  size_t framing_bytes_ = 0;
  size_t body_bytes_ = 0;
  size_t body_bytes_max_ = 0;
};

}  // namespace deepinfer::server
