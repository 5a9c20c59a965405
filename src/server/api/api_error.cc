// SPDX-License-Identifier: Apache-2.0
#include "server/api/api_error.h"

#include "recipe/output/answer_error.h"

namespace deepinfer::server {
namespace {

struct StatusNames {
  int status;
  const char* openai;
  const char* anthropic;
  const char* code;  // OpenAI's; nullptr: the type
};

constexpr StatusNames kNames[] = {
    {400, "invalid_request_error", "invalid_request_error", nullptr},
    {401, "invalid_request_error", "authentication_error", "invalid_api_key"},
    {403, "invalid_request_error", "permission_error", "permission_denied"},
    {404, "invalid_request_error", "not_found_error", "not_found"},
    {405, "invalid_request_error", "invalid_request_error", "method_not_allowed"},
    {408, "timeout", "timeout_error", nullptr},
    {413, "invalid_request_error", "request_too_large", "request_too_large"},
    {429, "rate_limit_error", "rate_limit_error", "rate_limit_exceeded"},
    {500, "internal_error", "api_error", nullptr},
    {503, "service_unavailable", "overloaded_error", nullptr},
    {504, "timeout", "timeout_error", nullptr},
};

const StatusNames& NamesOf(int status) {
  for (const StatusNames& names : kNames) {
    if (names.status == status) return names;
  }
  return status < 500 ? kNames[0] : kNames[8];
}

}  // namespace

recipe::Protocol ProtocolOf(std::string_view path) {
  return path.starts_with("/v1/messages") ? recipe::Protocol::kMessages : recipe::Protocol::kChat;
}

ApiError ErrorOf(const Status& status) {
  ApiError error{.message = status.message()};
  switch (status.code()) {
    case Code::kInvalidArgument:
    case Code::kFailedPrecondition:
    case Code::kUnimplemented:
    case Code::kResourceExhausted: error.status = 400; break;
    case Code::kNotFound: error.status = 404; break;
    case Code::kUnavailable:
    case Code::kCancelled: error.status = 503; break;
    case Code::kDeadlineExceeded: error.status = 504; break;
    case Code::kOk:
    case Code::kDataLoss:
    case Code::kInternal: break;
  }
  if (error.message.starts_with('/')) error.param = error.message.substr(1, error.message.find(':') - 1);
  return error;
}

std::string ErrorBody(recipe::Protocol protocol, const ApiError& error, const std::string& request_id) {
  const StatusNames& names = NamesOf(error.status);
  recipe::AnswerError answer;
  answer.message = error.message;
  answer.type = protocol == recipe::Protocol::kMessages ? names.anthropic : names.openai;
  if (names.code != nullptr) answer.api_code = names.code;
  if (!error.code.empty()) answer.api_code = error.code;
  if (!error.param.empty()) answer.param = error.param;
  if (!request_id.empty()) answer.request_id = request_id;
  return recipe::ErrorBody(protocol, recipe::Profile::kDefault, answer);
}

void SendError(const HttpRequest& request, Responder& responder, recipe::Protocol protocol, const ApiError& error,
               HeaderList headers) {
  responder.Annotate("error", error.code.empty() ? std::string_view(NamesOf(error.status).anthropic) : error.code);
  responder.SendJson(error.status, ErrorBody(protocol, error, request.request_id), std::move(headers));
}

std::string TransportErrorBody(std::string_view path, int status, std::string_view message) {
  return ErrorBody(ProtocolOf(path), {.status = status, .message = std::string(message)});
}

}  // namespace deepinfer::server
