// SPDX-License-Identifier: Apache-2.0
// Writes JSON straight into a string, with commas where they belong. The caller keeps the nesting right; strings are
// escaped. Not for concurrent use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"

namespace deepinfer::recipe {

class JsonText {
 public:
  explicit JsonText(std::string* out) : out_(out) {}

  JsonText& Open(char bracket);   // '{' or '['
  JsonText& Close(char bracket);  // '}' or ']'
  JsonText& Key(std::string_view key);
  JsonText& String(std::string_view text);
  JsonText& Int(int64_t value);
  JsonText& Float(float value);    // shortest spelling; a whole number keeps ".0"
  JsonText& Double(double value);  // the same
  JsonText& Bool(bool value);
  JsonText& Null();
  JsonText& Raw(std::string_view json);  // JSON text, as it is; nothing where it is empty
  JsonText& Value(const Json& value);

 private:
  void Comma();

  std::string* out_;
  bool comma_ = false;  // before the next value
};

}  // namespace deepinfer::recipe
