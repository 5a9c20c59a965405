// SPDX-License-Identifier: Apache-2.0
// Errors of endpoints and transport in the shape of the protocol that a path belongs to. Functions of their arguments.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"
#include "deepinfer/recipe.h"
#include "server/http/exchange.h"

namespace deepinfer::server {

// /v1/messages... is Anthropic's, all else OpenAI's.
recipe::Protocol ProtocolOf(std::string_view path);

struct ApiError {
  int status = 500;     // HTTP
  std::string message;  // for people
  std::string param;    // the field that is wrong, where it is one
  std::string code;     // the protocol's own code, where it has one ("model_not_found")
};

// kInvalidArgument -> 400, kNotFound -> 404, kUnavailable -> 503, ...
ApiError ErrorOf(const Status& status);

std::string ErrorBody(recipe::Protocol protocol, const ApiError& error, const std::string& request_id = {});
void SendError(const HttpRequest& request, Responder& responder, recipe::Protocol protocol, const ApiError& error,
               HeaderList headers = {});

// For Router::SetErrorBody.
std::string TransportErrorBody(std::string_view path, int status, std::string_view message);

}  // namespace deepinfer::server
