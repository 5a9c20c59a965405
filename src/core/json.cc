// SPDX-License-Identifier: Apache-2.0
#include "core/json.h"

// RapidJSON's empty stack adds to a null pointer before it allocates: harmless, but UndefinedBehaviorSanitizer reports it.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((no_sanitize("pointer-overflow"))), apply_to = function)
#endif
#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>
#if defined(__clang__)
#pragma clang attribute pop
#endif

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "core/utf8.h"

namespace deepinfer {
namespace {

// Collects SAX events into a Json. A limit that is exceeded stops the parser and leaves its name in `limit`.
class DocumentBuilder {
 public:
  explicit DocumentBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool Null() { return Add(Json()); }
  bool Bool(bool value) { return Add(Json(value)); }
  bool RawNumber(const char* text, rapidjson::SizeType length, bool) {
    return Add(Json(Json::Number{std::string(text, length)}));
  }
  bool String(const char* text, rapidjson::SizeType length, bool) { return Add(Json(std::string(text, length))); }
  bool StartObject() { return Open(Json(Json::Object())); }
  bool Key(const char* text, rapidjson::SizeType length, bool) {
    stack_.back().key.assign(text, length);
    return true;
  }
  bool EndObject(rapidjson::SizeType) { return Close(); }
  bool StartArray() { return Open(Json(Json::Array())); }
  bool EndArray(rapidjson::SizeType) { return Close(); }

  // Never called: numbers come as RawNumber.
  bool Int(int) { return false; }
  bool Uint(unsigned) { return false; }
  bool Int64(int64_t) { return false; }
  bool Uint64(uint64_t) { return false; }
  bool Double(double) { return false; }

  const char* limit = nullptr;
  Json root;

 private:
  struct Frame {
    Json value;
    std::string key;  // of the member that is being read
  };

  bool Add(Json value) {
    if (++nodes_ > limits_.nodes_max) {
      limit = "number of values";
      return false;
    }
    if (stack_.empty()) {
      root = std::move(value);
    } else if (Frame& top = stack_.back(); top.value.IsArray()) {
      top.value.Items().push_back(std::move(value));
    } else {
      top.value.Members().emplace_back(std::move(top.key), std::move(value));
    }
    return true;
  }
  bool Open(Json container) {
    if (stack_.size() >= limits_.depth_max) {
      limit = "nesting depth";
      return false;
    }
    stack_.push_back({std::move(container), {}});
    return true;
  }
  bool Close() {
    Json done = std::move(stack_.back().value);
    stack_.pop_back();
    return Add(std::move(done));
  }

  const JsonLimits& limits_;
  std::vector<Frame> stack_;
  size_t nodes_ = 0;
};

void AppendEscape(uint32_t unit, std::string* out) { fmt::format_to(std::back_inserter(*out), "\\u{:04x}", unit); }

}  // namespace

Json Json::Integer(int64_t value) { return Json(Number{std::to_string(value)}); }

Json Json::Double(double value) {
  DI_CHECK(std::isfinite(value));
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value);
  return Json(Number{std::string(text, end.ptr)});
}

std::string_view Json::KindName() const {
  static constexpr std::string_view kNames[] = {"null", "boolean", "number", "string", "array", "object"};
  return kNames[value_.index()];
}

std::optional<int64_t> Json::ToInt64() const {
  if (!IsNumber()) return std::nullopt;
  const std::string& text = Literal();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> Json::ToDouble() const {
  if (!IsNumber()) return std::nullopt;
  const std::string& text = Literal();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size()) return std::nullopt;
  // from_chars leaves the value alone when it is out of range; strtod gives the limit (0 or infinity).
  if (error == std::errc::result_out_of_range) return std::strtod(text.c_str(), nullptr);
  return value;
}

const Json* Json::Find(std::string_view key) const { return const_cast<Json*>(this)->Find(key); }

Json* Json::Find(std::string_view key) {
  if (!IsObject()) return nullptr;
  Object& members = Members();
  for (auto it = members.rbegin(); it != members.rend(); ++it) {
    if (it->first == key) return &it->second;
  }
  return nullptr;
}

Result<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.size_bytes_max) {
    return Error(Code::kResourceExhausted, "JSON of {} bytes is over the limit of {}", text.size(),
                 limits.size_bytes_max);
  }
  rapidjson::MemoryStream stream(text.data(), text.size());
  rapidjson::Reader reader;
  DocumentBuilder builder(limits);
  constexpr unsigned kFlags = rapidjson::kParseNumbersAsStringsFlag | rapidjson::kParseIterativeFlag |
                              rapidjson::kParseValidateEncodingFlag;
  const rapidjson::ParseResult result = reader.Parse<kFlags>(stream, builder);
  if (builder.limit != nullptr) {
    return Error(Code::kResourceExhausted, "JSON goes over the limit of its {} at byte {}", builder.limit,
                 result.Offset());
  }
  if (result.IsError()) {
    return Error(Code::kInvalidArgument, "not valid JSON at byte {}: {}", result.Offset(),
                 rapidjson::GetParseError_En(result.Code()));
  }
  // The reader takes a zero byte for the end of its input.
  if (stream.Tell() != text.size()) {
    return Error(Code::kInvalidArgument, "not valid JSON at byte {}: zero byte", stream.Tell());
  }
  return std::move(builder.root);
}

std::string WriteJson(const Json& value, const JsonStyle& style) {
  std::string out;
  AppendJson(value, style, &out);
  return out;
}

void AppendJson(const Json& value, const JsonStyle& style, std::string* out) {
  if (value.IsNull()) {
    *out += "null";
  } else if (value.IsBool()) {
    *out += value.AsBool() ? "true" : "false";
  } else if (value.IsNumber()) {
    *out += value.Literal();
  } else if (value.IsString()) {
    AppendJsonString(value.AsString(), style.ascii_only, out);
  } else if (value.IsArray()) {
    *out += '[';
    std::string_view separator;
    for (const Json& item : value.Items()) {
      *out += separator;
      separator = style.item_separator;
      AppendJson(item, style, out);
    }
    *out += ']';
  } else {
    *out += '{';
    std::string_view separator;
    for (const auto& [key, item] : value.Members()) {
      *out += separator;
      separator = style.item_separator;
      AppendJsonString(key, style.ascii_only, out);
      *out += style.key_separator;
      AppendJson(item, style, out);
    }
    *out += '}';
  }
}

void AppendJsonString(std::string_view text, bool ascii_only, std::string* out) {
  *out += '"';
  size_t i = 0;
  while (i < text.size()) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '"' || byte == '\\') {
      *out += '\\';
      *out += text[i++];
    } else if (byte < 0x20) {
      static constexpr std::string_view kShort = "btn_fr";  // \b \t \n . \f \r are 8 to 13
      if (byte >= 8 && byte <= 13 && byte != 11) {
        *out += '\\';
        *out += kShort[byte - 8];
      } else {
        AppendEscape(byte, out);
      }
      ++i;
    } else if (byte < 0x80) {
      *out += text[i++];
    } else {
      const Utf8Char c = DecodeUtf8(text.substr(i));
      const uint32_t code_point = c.valid ? c.code_point : 0xFFFD;
      if (!ascii_only) {
        AppendUtf8(code_point, out);
      } else if (code_point < 0x10000) {
        AppendEscape(code_point, out);
      } else {
        AppendEscape(0xD800 + ((code_point - 0x10000) >> 10), out);
        AppendEscape(0xDC00 + ((code_point - 0x10000) & 0x3FF), out);
      }
      i += c.size;
    }
  }
  *out += '"';
}

}  // namespace deepinfer
