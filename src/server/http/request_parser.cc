// SPDX-License-Identifier: Apache-2.0
#include "server/http/request_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>

namespace deepinfer::server {
namespace {

namespace http = boost::beast::http;

// A chunk's size with extensions, or all trailers.
constexpr size_t kChunkLineBytesMax = size_t{16} << 10;
// A body grows by doubling from here on, up to its promised length.
constexpr size_t kBodyReserveBytes = size_t{4} << 10;
// The shortest chunked body, "0\r\n\r\n". Beast asserts that it has as many bytes when it looks at a last chunk a second time.
constexpr size_t kChunkedBytesMin = 5;
constexpr const char* kBodyTooLarge = "the body is larger than this server allows";

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// The path and query of a request target: "/a?b", or "http://host/a?b", which every server must understand.
std::string_view WithoutAuthority(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t slash = target.find('/');
    return slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  return target;
}

}  // namespace

RequestParser::RequestParser(const ParserLimits& limits, HttpRequest* request) : limits_(limits), request_(request) {
  base::eager(false);
  base::header_limit(static_cast<std::uint32_t>(limits.header_bytes_max));
  base::body_limit(boost::none);  // counted here, when the route is known
}

std::optional<uint64_t> RequestParser::content_length() const {
  if (chunked()) return std::nullopt;
  return base::content_length().value_or(0);
}

RequestParser::Progress RequestParser::Put(std::string_view* input) {
  while (!is_done()) {
    if (input->empty()) return Progress::kNeedMore;
    const bool in_header = !is_header_done();
    const bool maybe_empty = !in_header && chunked() && body_bytes_ == 0 && input->front() == '0';
    if (maybe_empty && input->size() < kChunkedBytesMin) return Progress::kNeedMore;
    const size_t body_before = body_bytes_;
    error_code ec;
    const size_t used = base::put(boost::asio::buffer(input->data(), input->size()), ec);
    input->remove_prefix(used);
    if (ec && ec != http::error::need_more) return Fail(ec);
    if (in_header) {
      header_bytes_ += used;
      const size_t pending = ec ? input->size() : 0;
      if (header_bytes_ + pending > limits_.header_bytes_max)
        Refuse(431, "the header is larger than this server allows", &ec);
    } else {
      framing_bytes_ += used - (body_bytes_ - body_before);
      const size_t pending = ec ? input->size() : 0;
      if (framing_bytes_ > limits_.framing_bytes_max || pending > kChunkLineBytesMax)
        Refuse(400, "too much chunk framing", &ec);
    }
    if (refused_) return Progress::kRefused;
    if (in_header && is_header_done()) return Progress::kHeader;
    if (ec) return Progress::kNeedMore;
  }
  return Progress::kDone;
}

void RequestParser::Refuse(int status, const char* message, error_code* ec) {
  if (!refused_) refusal_ = {status, message};
  refused_ = true;
  *ec = http::error::bad_field;
}

RequestParser::Progress RequestParser::Fail(const error_code& ec) {
  error_code ignored;
  if (ec == http::error::header_limit) {
    Refuse(431, "the header is larger than this server allows", &ignored);
  } else if (ec == http::error::bad_version) {
    Refuse(505, "this server speaks HTTP/1.0 and HTTP/1.1", &ignored);
  } else {
    Refuse(400, "this is no well-formed HTTP/1.1 request", &ignored);
  }
  return Progress::kRefused;
}

void RequestParser::on_request_impl(http::verb, string_view method, string_view target, int version, error_code&) {
  version_ = version;
  request_->method = View(method);
  const std::string_view text = WithoutAuthority(View(target));
  const size_t question = std::min(text.find('?'), text.size());
  request_->path = text.substr(0, question);
  request_->query = text.substr(std::min(question + 1, text.size()));
}

void RequestParser::on_field_impl(http::field field, string_view name, string_view value, error_code& ec) {
  if (is_header_done()) return;  // trailers of a chunked body: nobody asked for them
  // A folded value either lies behind a line end or was copied elsewhere.
  const char* const name_end = name.data() + name.size();
  const bool elsewhere = value.data() < name_end || value.data() > name_end + limits_.header_bytes_max;
  if (elsewhere || std::find(name_end, value.data(), '\r') != value.data()) {
    return Refuse(400, "folded header lines are refused", &ec);
  }
  if (request_->headers.size() >= limits_.header_fields_max) return Refuse(431, "too many header fields", &ec);
  if (field == http::field::transfer_encoding) {
    if (!boost::beast::iequals(value, "chunked") || version_ == 10) {
      return Refuse(501, "the only transfer encoding that this server understands is \"chunked\"", &ec);
    }
  } else if (field == http::field::content_length) {
    if (++lengths_ > 1 || View(value).find(',') != std::string_view::npos) {
      return Refuse(400, "more than one Content-Length", &ec);
    }
  } else if (field == http::field::host) {
    ++hosts_;
  }
  request_->headers.emplace_back(View(name), View(value));
}

void RequestParser::on_header_impl(error_code& ec) {
  if (hosts_ > 1 || (hosts_ == 0 && version_ == 11)) Refuse(400, "expected exactly one Host", &ec);
}

bool RequestParser::Keep(std::string_view body, error_code* ec) {
  body_bytes_ += body.size();
  if (body_bytes_ > body_bytes_max_) {
    Refuse(413, kBodyTooLarge, ec);
    return false;
  }
  if (discard_) return true;
  std::string& kept = request_->body;
  if (const size_t needed = kept.size() + body.size(); needed > kept.capacity()) {
    const size_t wanted = std::max({needed, 2 * kept.capacity(), kBodyReserveBytes});
    kept.reserve(std::max<size_t>(needed, std::min<uint64_t>(wanted, content_length().value_or(wanted))));
  }
  request_->body.append(body);
  return true;
}

std::size_t RequestParser::on_body_impl(string_view body, error_code& ec) {
  return Keep(View(body), &ec) ? body.size() : 0;
}

void RequestParser::on_chunk_header_impl(std::uint64_t size, string_view, error_code& ec) {
  if (size > body_bytes_max_ - body_bytes_) Refuse(413, kBodyTooLarge, &ec);
}

std::size_t RequestParser::on_chunk_body_impl(std::uint64_t, string_view body, error_code& ec) {
  return Keep(View(body), &ec) ? body.size() : 0;
}

}  // namespace deepinfer::server
