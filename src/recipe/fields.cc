// SPDX-License-Identifier: Apache-2.0
#include "recipe/fields.h"

#include <charconv>

namespace deepinfer::recipe {

Field Field::Member(std::string_view key) const {
  const Json* member = value_ == nullptr ? nullptr : value_->Find(key);
  return {member, fmt::format("{}/{}", pointer_, key)};
}

Field Field::Item(size_t index) const { return {&value_->Items()[index], fmt::format("{}/{}", pointer_, index)}; }

Status Field::BadKind(std::string_view expected) const {
  if (!present()) return Bad("is missing: expected {}", expected);
  return Bad("expected {}, found {}", expected, kind());
}

Status ExpectObject(const Field& field) { return field.IsObject() ? Status() : field.BadKind("an object"); }

Status ExpectArray(const Field& field) { return field.IsArray() ? Status() : field.BadKind("an array"); }

Result<std::string> ReadString(const Field& field) {
  if (!field.IsString()) return field.BadKind("a string");
  return field.json().AsString();
}

Result<bool> ReadBool(const Field& field) {
  if (!field.present() || !field.json().IsBool()) return field.BadKind("true or false");
  return field.json().AsBool();
}

Result<int64_t> ReadInteger(const Field& field, int64_t min, int64_t max) {
  const auto value = field.present() ? field.json().ToInt64() : std::nullopt;
  // "-0" is a double for the services that this reads like.
  if (field.present() && field.json().IsNumber() && value && field.json().Literal() != "-0") {
    if (*value >= min && *value <= max) return *value;
  }
  if (field.present() && field.json().IsNumber()) {
    return field.Bad("expected an integer from {} to {}, found {}", min, max, field.json().Literal().substr(0, 40));
  }
  return field.BadKind(fmt::format("an integer from {} to {}", min, max));
}

Result<uint64_t> ReadUnsigned(const Field& field) {
  if (!field.present() || !field.json().IsNumber()) return field.BadKind("an integer of at least 0");
  const std::string& literal = field.json().Literal();
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(literal.data(), literal.data() + literal.size(), value);
  if (error != std::errc() || end != literal.data() + literal.size()) {
    return field.Bad("expected an integer from 0 to 2^64 - 1, found {}", literal.substr(0, 40));
  }
  return value;
}

Result<double> ReadNumber(const Field& field) {
  const auto value = field.present() ? field.json().ToDouble() : std::nullopt;
  if (!value) return field.BadKind("a number");
  return *value;
}

Result<std::optional<std::string>> ReadOptionalString(const Field& field) {
  if (!field.given()) return std::optional<std::string>();
  DI_ASSIGN_OR_RETURN(std::string value, ReadString(field));
  return std::optional<std::string>(std::move(value));
}

Result<std::optional<bool>> ReadOptionalBool(const Field& field) {
  if (!field.given()) return std::optional<bool>();
  DI_ASSIGN_OR_RETURN(const bool value, ReadBool(field));
  return std::optional<bool>(value);
}

Result<std::optional<int64_t>> ReadOptionalInteger(const Field& field, int64_t min, int64_t max) {
  if (!field.given()) return std::optional<int64_t>();
  DI_ASSIGN_OR_RETURN(const int64_t value, ReadInteger(field, min, max));
  return std::optional<int64_t>(value);
}

Result<std::optional<double>> ReadOptionalNumber(const Field& field) {
  if (!field.given()) return std::optional<double>();
  DI_ASSIGN_OR_RETURN(const double value, ReadNumber(field));
  return std::optional<double>(value);
}

}  // namespace deepinfer::recipe
