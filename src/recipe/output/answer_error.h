// SPDX-License-Identifier: Apache-2.0
// Errors in the form of each protocol. Stateless.
#pragma once

#include <optional>
#include <string>

#include "core/status.h"
#include "recipe/request.h"

namespace deepinfer::recipe {

struct AnswerError {
  Code code = Code::kInternal;
  std::string message;
  std::optional<std::string> type;       // else by protocol and code
  std::optional<std::string> param;     // the field that is wrong, in OpenAI's shapes
  std::optional<std::string> api_code;  // a protocol's own code ("previous_response_not_found"); else the type
  std::optional<std::string> request_id;  // Messages
};

AnswerError ErrorFromStatus(const Status& status);

// The type that a protocol calls such an error: "invalid_request_error", "rate_limit_error", ...
std::string ErrorType(Protocol protocol, Code code);

// The body of a response that is an error: {"error": {...}}; Messages: {"type": "error", "error": {...}}. In the
// compatible profile OpenAI's shape for all protocols.
std::string ErrorBody(Protocol protocol, Profile profile, const AnswerError& error);

}  // namespace deepinfer::recipe
