// SPDX-License-Identifier: Apache-2.0
#include "core/status.h"

namespace deepinfer {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kDataLoss:
      return "DATA_LOSS";
    case Code::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::kUnavailable:
      return "UNAVAILABLE";
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case Code::kUnimplemented:
      return "UNIMPLEMENTED";
    case Code::kInternal:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

Status Status::In(std::string_view where) const {
  return ok() ? *this : Status(code_, fmt::format("{}: {}", where, message_));
}

}  // namespace deepinfer
