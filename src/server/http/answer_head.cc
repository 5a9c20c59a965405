// SPDX-License-Identifier: Apache-2.0
#include "server/http/answer_head.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/status.hpp>

namespace deepinfer::server {
namespace {

void AppendField(std::string_view name, std::string_view value, std::string* out) {
  out->append(name);
  out->append(": ");
  out->append(value);
  out->append("\r\n");
}

bool IsClean(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

void AppendNumber(size_t number, std::string* out) { fmt::format_to(std::back_inserter(*out), "{}", number); }

}  // namespace

std::string_view ReasonPhrase(int status) {
  const auto reason =
      boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(static_cast<unsigned>(status)));
  return {reason.data(), reason.size()};
}

void AppendHead(const AnswerHead& head, const AnswerFraming& framing, std::string_view date,
                std::string_view request_id, std::string_view cors_origin, std::string* out) {
  out->append("HTTP/1.1 ");
  AppendNumber(static_cast<size_t>(head.status), out);
  out->push_back(' ');
  out->append(ReasonPhrase(head.status));
  out->append("\r\n");
  AppendField("Date", date, out);
  if (!head.content_type.empty() && IsClean(head.content_type)) AppendField("Content-Type", head.content_type, out);
  if (framing.chunked) {
    AppendField("Transfer-Encoding", "chunked", out);
  } else if (framing.length) {
    out->append("Content-Length: ");
    AppendNumber(head.body_bytes, out);
    out->append("\r\n");
  }
  if (head.stream) {
    AppendField("Cache-Control", "no-cache", out);
    AppendField("X-Accel-Buffering", "no", out);  // proxies: pass it on as it comes
  }
  if (framing.close) {
    AppendField("Connection", "close", out);
  } else if (!framing.http11) {
    AppendField("Connection", "keep-alive", out);
  }
  AppendField("X-Content-Type-Options", "nosniff", out);
  if (!request_id.empty()) {
    AppendField("x-request-id", request_id, out);
    AppendField("request-id", request_id, out);
  }
  if (!cors_origin.empty()) {
    AppendField("Access-Control-Allow-Origin", cors_origin, out);
    AppendField("Access-Control-Expose-Headers", "x-request-id, request-id, retry-after", out);
    AppendField("Vary", "Origin", out);
  }
  for (const auto& [name, value] : head.headers) {
    const bool is_ours = boost::beast::iequals(name, "X-Content-Type-Options");
    if (!name.empty() && !is_ours && IsClean(name) && IsClean(value)) AppendField(name, value, out);
  }
  out->append("\r\n");
}

}  // namespace deepinfer::server
