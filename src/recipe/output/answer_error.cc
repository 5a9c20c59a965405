// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/answer_error.h"

#include "recipe/output/json_text.h"

namespace deepinfer::recipe {

AnswerError ErrorFromStatus(const Status& status) {
  AnswerError error;
  error.code = status.code();
  error.message = status.message();
  return error;
}

std::string ErrorType(Protocol protocol, Code code) {
  const bool messages = protocol == Protocol::kMessages;
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kFailedPrecondition:
    case Code::kUnimplemented:
    case Code::kResourceExhausted: return "invalid_request_error";
    case Code::kNotFound: return "not_found_error";
    case Code::kUnavailable: return messages ? "overloaded_error" : "service_unavailable";
    case Code::kDeadlineExceeded: return messages ? "timeout_error" : "timeout";
    case Code::kOk:
    case Code::kCancelled:
    case Code::kDataLoss:
    case Code::kInternal: break;
  }
  return messages ? "api_error" : "internal_error";
}

std::string ErrorBody(Protocol protocol, Profile profile, const AnswerError& error) {
  std::string body;
  JsonText json(&body);
  if (profile == Profile::kCompatible) {
    const std::string type = ErrorType(Protocol::kChat, error.code);
    json.Open('{').Key("error").Open('{').Key("message").String(error.message).Key("type").String(type);
    json.Key("param").Null().Key("code").String(type).Close('}').Close('}');
    return body;
  }
  const std::string type = error.type.value_or(ErrorType(protocol, error.code));
  if (protocol == Protocol::kMessages) {
    json.Open('{').Key("type").String("error").Key("error").Open('{').Key("type").String(type);
    json.Key("message").String(error.message).Close('}');
    json.Key("request_id");
    error.request_id ? json.String(*error.request_id) : json.Null();
    json.Close('}');
    return body;
  }
  json.Open('{').Key("error").Open('{').Key("message").String(error.message).Key("type").String(type).Key("param");
  error.param ? json.String(*error.param) : json.Null();
  json.Key("code").String(error.api_code.value_or(type)).Close('}').Close('}');
  return body;
}

}  // namespace deepinfer::recipe
