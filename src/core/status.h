// SPDX-License-Identifier: Apache-2.0
// Errors as values: Status says what, where and what to do; Result<T> is a T or a Status.
// No exception crosses a module. Both types are plain values: copy them, move them, share them between threads
// like any other value. Messages are written for a person ("config.json: num_hidden_layers: expected 1..4096, found 0").
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/check.h"

namespace deepinfer {

enum class Code {
  kOk,
  kInvalidArgument,     // the caller's input is wrong: a request, a flag, an id
  kNotFound,            // a file, model or tensor that is not there
  kDataLoss,            // damaged or unsuitable data: truncated file, wrong checksum, broken JSON
  kResourceExhausted,   // a stated limit or a budget is reached
  kUnavailable,         // may work later: a peer, a download
  kCancelled,
  kDeadlineExceeded,
  kFailedPrecondition,  // right input at the wrong time
  kUnimplemented,       // recognised and not supported
  kInternal,            // a bug or a device error
};

// "INVALID_ARGUMENT" and the like.
std::string_view CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // The same error with "where: " put in front of its message.
  Status In(std::string_view where) const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// Error(Code::kDataLoss, "{}: expected {} bytes, found {}", path, want, got)
template <typename... Args>
Status Error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit on purpose, `return value;`
  Result(Status status) : value_(std::move(status)) {}  // NOLINT: implicit on purpose, `return Error(...);`

  bool ok() const { return std::holds_alternative<T>(value_); }
  // The error; Status() where there is a value.
  Status status() const { return ok() ? Status() : std::get<Status>(value_); }

  // REQUIRES: ok().
  const T& operator*() const& { return Get(); }
  T& operator*() & { return Get(); }
  T&& operator*() && { return std::move(Get()); }
  const T* operator->() const { return &Get(); }
  T* operator->() { return &Get(); }

 private:
  const T& Get() const {
    DI_CHECK(ok());
    return std::get<T>(value_);
  }
  T& Get() {
    DI_CHECK(ok());
    return std::get<T>(value_);
  }
  std::variant<T, Status> value_;
};

}  // namespace deepinfer

#define DI_CONCAT_INNER(a, b) a##b
#define DI_CONCAT(a, b) DI_CONCAT_INNER(a, b)

// Returns the error of a Status expression, if it is one.
#define DI_RETURN_IF_ERROR(expression)                                  \
  do {                                                                  \
    if (::deepinfer::Status di_status = (expression); !di_status.ok()) { \
      return di_status;                                                 \
    }                                                                   \
  } while (false)

// DI_ASSIGN_OR_RETURN(auto file, OpenFile(path)); returns the error, if it is one.
#define DI_ASSIGN_OR_RETURN(declaration, expression) \
  DI_ASSIGN_OR_RETURN_INNER(DI_CONCAT(di_result_, __LINE__), declaration, expression)
#define DI_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                      \
  if (!result.ok()) {                                              \
    return result.status();                                        \
  }                                                                \
  declaration = *std::move(result)
