// SPDX-License-Identifier: Apache-2.0
// Reading typed fields out of a request's JSON. Every error is kInvalidArgument and begins with the JSON pointer of the
// field: "/messages/3/content: expected a string or an array, found number".
// A Field refers into the request's Json and must not outlive it. Const use from many threads is safe.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/json.h"
#include "core/status.h"

namespace deepinfer::recipe {

class Field {
 public:
  // The request itself, pointer "".
  explicit Field(const Json& root) : value_(&root) {}

  // The member of that name; absent where there is none or this is no object.
  Field Member(std::string_view key) const;
  // The same place with another value. REQUIRES: `value` outlives the result.
  Field With(const Json& value) const { return {&value, pointer_}; }
  // REQUIRES: an array, index < size.
  Field Item(size_t index) const;

  bool present() const { return value_ != nullptr; }
  // Present and not null: null means "not given" wherever a field is optional.
  bool given() const { return value_ != nullptr && !value_->IsNull(); }
  // REQUIRES: present().
  const Json& json() const { return *value_; }
  const std::string& pointer() const { return pointer_; }

  bool IsString() const { return value_ != nullptr && value_->IsString(); }
  bool IsArray() const { return value_ != nullptr && value_->IsArray(); }
  bool IsObject() const { return value_ != nullptr && value_->IsObject(); }
  // Items of an array; 0 for all else.
  size_t size() const { return IsArray() ? value_->Items().size() : 0; }
  // The kind of the value for messages; "nothing" where it is absent.
  std::string_view kind() const { return value_ == nullptr ? "nothing" : value_->KindName(); }

  // An error about this field.
  template <typename... Args>
  Status Bad(fmt::format_string<Args...> format, Args&&... args) const {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: {}", pointer_, fmt::format(format, std::forward<Args>(args)...)));
  }
  // "expected X, found Y", or "is missing: expected X".
  Status BadKind(std::string_view expected) const;

 private:
  Field(const Json* value, std::string pointer) : value_(value), pointer_(std::move(pointer)) {}

  const Json* value_ = nullptr;
  std::string pointer_;
};

Status ExpectObject(const Field& field);
Status ExpectArray(const Field& field);
Result<std::string> ReadString(const Field& field);
Result<bool> ReadBool(const Field& field);
// A number written as an integer, min <= value <= max.
Result<int64_t> ReadInteger(const Field& field, int64_t min, int64_t max);
Result<uint64_t> ReadUnsigned(const Field& field);
Result<double> ReadNumber(const Field& field);

// Nothing where the field is not given.
Result<std::optional<std::string>> ReadOptionalString(const Field& field);
Result<std::optional<bool>> ReadOptionalBool(const Field& field);
Result<std::optional<int64_t>> ReadOptionalInteger(const Field& field, int64_t min, int64_t max);
Result<std::optional<double>> ReadOptionalNumber(const Field& field);

// One of a few words.
template <typename T>
using Words = std::initializer_list<std::pair<std::string_view, T>>;

template <typename T>
Result<T> ReadWord(const Field& field, Words<T> words) {
  std::string expected;
  for (const auto& [word, value] : words) {
    if (field.IsString() && field.json().AsString() == word) return value;
    expected += expected.empty() ? "" : ", ";
    expected += word;
  }
  if (!field.IsString()) return field.BadKind(fmt::format("one of: {}", expected));
  return field.Bad("expected one of: {}; found \"{}\"", expected, field.json().AsString().substr(0, 80));
}

}  // namespace deepinfer::recipe
