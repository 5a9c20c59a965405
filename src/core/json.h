// SPDX-License-Identifier: Apache-2.0
// A JSON document that keeps what reaches a prompt: the order of keys, duplicate keys, and the literal spelling of
// numbers. Parsing is RapidJSON's validating SAX reader (no recursion, so no depth can overflow the stack) under
// stated limits; writing is a small writer of our own.
// A Json is a plain value without shared state: const use from many threads is safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/status.h"

namespace deepinfer {

class Json {
 public:
  struct Number {
    std::string literal;  // as it was spelled: "1e5", "0.1000", "12345678901234567890"
    bool operator==(const Number&) const = default;
  };
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in document order, duplicates kept

  Json() = default;  // null
  explicit Json(bool value) : value_(value) {}
  explicit Json(Number value) : value_(std::move(value)) {}
  explicit Json(std::string value) : value_(std::move(value)) {}
  explicit Json(const char* value) : value_(std::string(value)) {}
  explicit Json(Array value) : value_(std::move(value)) {}
  explicit Json(Object value) : value_(std::move(value)) {}
  static Json Integer(int64_t value);
  // Shortest spelling that reads back as the same double. REQUIRES: finite.
  static Json Double(double value);

  bool IsNull() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool IsBool() const { return std::holds_alternative<bool>(value_); }
  bool IsNumber() const { return std::holds_alternative<Number>(value_); }
  bool IsString() const { return std::holds_alternative<std::string>(value_); }
  bool IsArray() const { return std::holds_alternative<Array>(value_); }
  bool IsObject() const { return std::holds_alternative<Object>(value_); }
  // "null", "boolean", "number", "string", "array" or "object".
  std::string_view KindName() const;

  // REQUIRES: the value is of that kind.
  bool AsBool() const { return std::get<bool>(value_); }
  const std::string& AsString() const { return std::get<std::string>(value_); }
  const std::string& Literal() const { return std::get<Number>(value_).literal; }
  const Array& Items() const { return std::get<Array>(value_); }
  Array& Items() { return std::get<Array>(value_); }
  const Object& Members() const { return std::get<Object>(value_); }
  Object& Members() { return std::get<Object>(value_); }

  // A number spelled as an integer ("12", not "12.0" or "1e3") that fits; nothing for all else.
  std::optional<int64_t> ToInt64() const;
  // A number as the nearest double; nothing for all else.
  std::optional<double> ToDouble() const;

  // The last member of that name (the usual rule for duplicates); nullptr where there is none or this is no object.
  const Json* Find(std::string_view key) const;
  Json* Find(std::string_view key);

  bool operator==(const Json&) const = default;

 private:
  std::variant<std::nullptr_t, bool, Number, std::string, Array, Object> value_ = nullptr;
};

struct JsonLimits {
  size_t size_bytes_max = size_t{64} << 20;
  size_t depth_max = 256;
  size_t nodes_max = size_t{4} << 20;  // values of any kind
};

// One whole document; text after it is refused, as are bad UTF-8, NaN, and whatever else RFC 8259 does not allow.
// Errors (kInvalidArgument, kResourceExhausted for limits) name the byte offset.
Result<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

struct JsonStyle {
  std::string_view item_separator = ",";
  std::string_view key_separator = ":";
  bool ascii_only = false;  // \uXXXX for all beyond ASCII, as Python's json.dumps does by default
};

// `value` as JSON text: numbers as they were spelled, keys in order, control characters escaped.
std::string WriteJson(const Json& value, const JsonStyle& style = {});
void AppendJson(const Json& value, const JsonStyle& style, std::string* out);
// `text` in quotes, escaped. Invalid UTF-8 is written as U+FFFD.
void AppendJsonString(std::string_view text, bool ascii_only, std::string* out);

}  // namespace deepinfer
