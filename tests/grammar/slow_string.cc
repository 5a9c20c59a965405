// SPDX-License-Identifier: Apache-2.0
#include "slow_string.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/utf8.h"

namespace deepinfer::grammar {
namespace {

using Range = std::pair<uint32_t, uint32_t>;  // first and last

// An escape at the beginning of a text: what it can be, and how much of the text it takes; 0: it is not finished.
struct Escape {
  std::vector<Range> characters;  // none: it is wrong
  size_t size = 0;
};

// Reads up to four hex digits: the code units that they begin, or nothing where something else stands among them.
std::vector<Range> Units(std::string_view digits) {
  digits = digits.substr(0, 4);
  uint32_t value = 0;
  for (char c : digits) {
    if (!std::isxdigit(static_cast<unsigned char>(c))) return {};
    value = value << 4 | static_cast<uint32_t>(std::stoul(std::string(1, c), nullptr, 16));
  }
  const uint32_t open = 16 - 4 * static_cast<uint32_t>(digits.size());
  return {{value << open, (value << open) + (1u << open) - 1}};
}

Escape ReadPair(std::string_view text, uint32_t high) {
  const uint32_t base = 0x10000 + ((high - 0xD800) << 10);
  if (std::string_view("\\u").substr(0, text.size()) != text.substr(0, 2)) return {};
  if (text.size() < 2) return {{{base, base + 0x3FF}}, 0};
  const std::vector<Range> units = Units(text.substr(2));
  if (units.empty()) return {};
  const uint32_t first = std::max(units[0].first, 0xDC00u), last = std::min(units[0].second, 0xDFFFu);
  if (first > last) return {};
  return {{{base + first - 0xDC00, base + last - 0xDC00}}, text.size() >= 6 ? size_t{12} : 0};
}

Escape ReadEscape(std::string_view text) {
  constexpr std::string_view kShort = "\"\\/bfnrt", kMeans = "\"\\/\b\f\n\r\t";
  if (text.size() == 1) return {{{0, 0xD7FF}, {0xE000, 0x10FFFF}}, 0};
  if (const size_t i = kShort.find(text[1]); i != std::string_view::npos) {
    const auto c = static_cast<uint32_t>(kMeans[i]);
    return {{{c, c}}, 2};
  }
  const std::vector<Range> units = text[1] == 'u' ? Units(text.substr(2)) : std::vector<Range>();
  if (units.empty()) return {};
  const auto [first, last] = units[0];
  if (first == last && first >= 0xD800 && first <= 0xDBFF) return ReadPair(text.substr(6), first);
  Escape escape{.size = first == last ? size_t{6} : 0};
  const auto add = [&](uint32_t low, uint32_t high) {
    if (low <= high) escape.characters.emplace_back(low, high);
  };
  add(first, std::min(last, 0xD7FFu));
  add(std::max(first, 0xE000u), last);
  const uint32_t low = std::max(first, 0xD800u), high = std::min(last, 0xDBFFu);
  if (low <= high) add(0x10000 + ((low - 0xD800) << 10), 0x10000 + ((high - 0xD800) << 10) + 0x3FF);
  return escape;
}

}  // namespace

bool SlowString::FitsAny(const std::string& text, uint32_t first, uint32_t last, bool escaped_in_full) {
  for (uint32_t c = first; c <= last; ++c) {
    if (usual_ && escaped_in_full && c < 0x80 && std::isalnum(static_cast<int>(c))) continue;
    std::string next = text;
    AppendUtf8(c, &next);
    if (text_.CanAccept(next)) return true;
    if (c >= 0x100) break;  // the others are like this one
  }
  return false;
}

bool SlowString::Fits(std::string_view json, bool* closed) {
  if (json.empty()) return true;
  if (json[0] != '"') return false;
  std::string text;
  for (size_t i = 1; i < json.size();) {
    if (json[i] == '"') {
      if (i + 1 != json.size() || !text_.AcceptAll(text)) return false;
      const bool complete = text_.IsComplete();
      text_.Pop(text.size());
      if (closed != nullptr) *closed = complete;
      return complete;
    }
    if (static_cast<uint8_t>(json[i]) < 0x20) return false;
    if (json[i] != '\\') {
      text += json[i++];
      continue;
    }
    const Escape escape = ReadEscape(json.substr(i));
    if (escape.size == 0 || escape.characters.empty()) {
      return std::any_of(escape.characters.begin(), escape.characters.end(),
                         [&](const Range& range) { return FitsAny(text, range.first, range.second, true); });
    }
    const uint32_t c = escape.characters[0].first;
    if (!FitsAny(text, c, c, escape.size > 2)) return false;
    AppendUtf8(c, &text);
    i += escape.size;
  }
  return text_.CanAccept(text);
}

}  // namespace deepinfer::grammar
