// SPDX-License-Identifier: Apache-2.0
#include "recipe/prompt_json.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "core/utf8.h"

namespace deepinfer::recipe {
namespace {

// The value of `literal` where it is an integer of 64 bits, signed or unsigned, which is then written as it stands.
bool IsExactInteger(const std::string& literal) {
  if (literal == "-0") return false;  // a double: -0.0
  const char* const end = literal.data() + literal.size();
  int64_t as_signed = 0;
  if (const auto [stop, error] = std::from_chars(literal.data(), end, as_signed); stop == end) {
    if (error == std::errc()) return true;
    uint64_t as_unsigned = 0;
    const auto [unsigned_stop, unsigned_error] = std::from_chars(literal.data(), end, as_unsigned);
    return unsigned_stop == end && unsigned_error == std::errc();
  }
  return false;
}

// Decimal digits and exponent of a double in its shortest form that reads back: value = 0.d1d2d3... * 10^point.
struct Decimal {
  std::string digits;
  int point = 0;
};

Decimal Shortest(double magnitude) {
  char text[40];
  const auto result = std::to_chars(text, text + sizeof(text), magnitude, std::chars_format::scientific);
  const std::string_view written(text, static_cast<size_t>(result.ptr - text));
  const size_t e = written.find('e');
  Decimal decimal;
  for (const char c : written.substr(0, e)) {
    if (c != '.') decimal.digits += c;
  }
  decimal.point = std::atoi(std::string(written.substr(e + 1)).c_str()) + 1;
  return decimal;
}

void AppendDouble(double value, bool python, std::string* out) {
  if (std::signbit(value)) *out += '-';
  const double magnitude = std::fabs(value);
  if (magnitude == 0) {
    *out += "0.0";
    return;
  }
  const auto [digits, point] = Shortest(magnitude);
  const int num_digits = static_cast<int>(digits.size());
  const int smallest_fixed = python ? -3 : -4;  // 0.0001 and 0.00001
  if (point > 16 || point < smallest_fixed) {
    *out += digits[0];
    if (num_digits > 1) *out += '.';
    *out += digits.substr(1);
    const int exponent = point - 1;
    *out += exponent < 0 ? "e-" : "e+";
    if (python && std::abs(exponent) < 10) *out += '0';
    *out += std::to_string(std::abs(exponent));
  } else if (point <= 0) {
    *out += "0.";
    out->append(static_cast<size_t>(-point), '0');
    *out += digits;
  } else if (point >= num_digits) {
    *out += digits;
    out->append(static_cast<size_t>(point - num_digits), '0');
    *out += ".0";
  } else {
    *out += digits.substr(0, static_cast<size_t>(point));
    *out += '.';
    *out += digits.substr(static_cast<size_t>(point));
  }
}

void MergeDuplicates(Json::Object* members) {
  if (members->size() < 2) return;
  std::unordered_map<std::string_view, size_t> first;
  first.reserve(members->size());
  size_t kept = 0;
  for (size_t i = 0; i < members->size(); ++i) {
    const auto found = first.find((*members)[i].first);
    if (found != first.end()) {
      (*members)[found->second].second = std::move((*members)[i].second);
      continue;
    }
    // Moving a short string moves its bytes, so the key's view is taken where the member comes to rest.
    if (kept != i) (*members)[kept] = std::move((*members)[i]);
    first.emplace((*members)[kept].first, kept);
    ++kept;
  }
  members->erase(members->begin() + static_cast<ptrdiff_t>(kept), members->end());
}

// Depth is bounded by the limits that the document was parsed with.
Status Canonicalize(Json* value) {
  if (value->IsNumber() && !std::isfinite(*value->ToDouble())) {
    return Error(Code::kInvalidArgument, "not valid JSON: number out of range: {}", value->Literal().substr(0, 40));
  }
  // An escaped lone surrogate passes the parser and is no character.
  if (value->IsString() && FindInvalidUtf8(value->AsString()) != std::string_view::npos) {
    return Error(Code::kInvalidArgument, "not valid JSON: lone surrogate in a string");
  }
  if (value->IsArray()) {
    for (Json& item : value->Items()) DI_RETURN_IF_ERROR(Canonicalize(&item));
  } else if (value->IsObject()) {
    MergeDuplicates(&value->Members());
    for (auto& [key, member] : value->Members()) {
      if (FindInvalidUtf8(key) != std::string_view::npos) {
        return Error(Code::kInvalidArgument, "not valid JSON: lone surrogate in a name");
      }
      DI_RETURN_IF_ERROR(Canonicalize(&member));
    }
  }
  return {};
}

struct Separators {
  std::string_view item;
  std::string_view key;
};

template <typename Container, typename AppendItem>
void AppendList(const Container& items, char open, char close, std::string_view separator, AppendItem append,
                std::string* out) {
  *out += open;
  std::string_view before;
  for (const auto& item : items) {
    *out += before;
    before = separator;
    append(item);
  }
  *out += close;
}

}  // namespace

Result<Json> ParseRequestJson(std::string_view text, const JsonLimits& limits) {
  DI_ASSIGN_OR_RETURN(Json value, ParseJson(text, limits));
  DI_RETURN_IF_ERROR(Canonicalize(&value));
  return value;
}

void AppendPromptJson(const Json& value, JsonForm form, std::string* out) {
  const Separators separators = form == JsonForm::kCompact ? Separators{",", ":"} : Separators{", ", ": "};
  if (value.IsNumber()) {
    if (IsExactInteger(value.Literal())) {
      *out += value.Literal();
    } else {
      AppendDouble(*value.ToDouble(), form == JsonForm::kPrompt, out);
    }
  } else if (value.IsArray()) {
    AppendList(value.Items(), '[', ']', separators.item,
               [&](const Json& item) { AppendPromptJson(item, form, out); }, out);
  } else if (value.IsObject()) {
    AppendList(value.Members(), '{', '}', separators.item,
               [&](const Json::Member& member) {
                 AppendJsonString(member.first, /*ascii_only=*/false, out);
                 *out += separators.key;
                 AppendPromptJson(member.second, form, out);
               },
               out);
  } else {
    AppendJson(value, {}, out);
  }
}

std::string WritePromptJson(const Json& value, JsonForm form) {
  std::string out;
  AppendPromptJson(value, form, &out);
  return out;
}

}  // namespace deepinfer::recipe
