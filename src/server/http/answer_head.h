// SPDX-License-Identifier: Apache-2.0
// The head of an answer as bytes.
#pragma once

#include <string>
#include <string_view>

#include "server/http/exchange_impl.h"

namespace deepinfer::server {

// How a connection sends the answer.
struct AnswerFraming {
  bool http11 = true;
  bool chunked = false;
  bool length = true;  // tell body_bytes
  bool close = false;  // the connection ends with it
};

// Header names and values of handlers that would break the framing (control characters) are left out.
void AppendHead(const AnswerHead& head, const AnswerFraming& framing, std::string_view date,
                std::string_view request_id, std::string_view cors_origin, std::string* out);
std::string_view ReasonPhrase(int status);

}  // namespace deepinfer::server
