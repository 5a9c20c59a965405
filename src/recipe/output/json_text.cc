// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/json_text.h"

#include <charconv>
#include <cmath>

namespace deepinfer::recipe {
namespace {

template <typename T>
void AppendNumber(T value, std::string* out) {
  if (!std::isfinite(value)) {  // -inf of a token that cannot come: JSON has no such number
    *out += value < 0 ? "-9999.0" : "null";
    return;
  }
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  const std::string_view number(text, static_cast<size_t>(end - text));
  *out += number;
  if (number.find_first_of(".e") == std::string_view::npos) *out += ".0";
}

}  // namespace

void JsonText::Comma() {
  if (comma_) *out_ += ',';
  comma_ = true;
}

JsonText& JsonText::Open(char bracket) {
  Comma();
  *out_ += bracket;
  comma_ = false;
  return *this;
}

JsonText& JsonText::Close(char bracket) {
  *out_ += bracket;
  comma_ = true;
  return *this;
}

JsonText& JsonText::Key(std::string_view key) {
  String(key);
  *out_ += ':';
  comma_ = false;
  return *this;
}

JsonText& JsonText::String(std::string_view text) {
  Comma();
  AppendJsonString(text, false, out_);
  return *this;
}

JsonText& JsonText::Int(int64_t value) { return Raw(std::to_string(value)); }

JsonText& JsonText::Float(float value) {
  Comma();
  AppendNumber(value, out_);
  return *this;
}

JsonText& JsonText::Double(double value) {
  Comma();
  AppendNumber(value, out_);
  return *this;
}

JsonText& JsonText::Bool(bool value) { return Raw(value ? "true" : "false"); }
JsonText& JsonText::Null() { return Raw("null"); }

JsonText& JsonText::Raw(std::string_view json) {
  if (json.empty()) return *this;
  Comma();
  *out_ += json;
  return *this;
}

JsonText& JsonText::Value(const Json& value) {
  Comma();
  AppendJson(value, {}, out_);
  return *this;
}

}  // namespace deepinfer::recipe
