// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/parameter_header.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

void SkipBlanks(std::string_view* text) {
  const size_t begin = text->find_first_not_of(kBlanks);
  text->remove_prefix(begin == std::string_view::npos ? text->size() : begin);
}

std::string_view TrimBlanks(std::string_view text) {
  SkipBlanks(&text);
  const size_t last = text.find_last_not_of(kBlanks);
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

ParameterType TypeOf(std::string_view value) {
  std::string lower(value);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower == "true" ? ParameterType::kString : lower == "false" ? ParameterType::kJson : ParameterType::kUnstated;
}

// The value of an attribute: quoted either way, or bare up to a blank. Nothing where a quote does not end.
std::optional<std::string_view> TakeValue(std::string_view* text) {
  size_t end = 0;
  if (!text->empty() && (text->front() == '"' || text->front() == '\'')) {
    end = text->find(text->front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view value = text->substr(1, end - 1);
    text->remove_prefix(end + 1);
    return value;
  }
  end = std::min(text->find_first_of(kBlanks), text->size());
  const std::string_view value = text->substr(0, end);
  if (value.empty() || value.find_first_of("\"'") != std::string_view::npos) return std::nullopt;
  text->remove_prefix(end);
  return value;
}

// key=value pairs with blanks between them, and nothing else.
std::optional<ParameterHeader> ParseAttributes(std::string_view text) {
  ParameterHeader header;
  bool named = false;
  while (!text.empty()) {
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = text.substr(0, equals);
    if (key.empty() || key.find_first_of("\"' \t\r\n") != std::string_view::npos) return std::nullopt;
    text.remove_prefix(equals + 1);
    const auto value = TakeValue(&text);
    if (!value) return std::nullopt;
    if (!text.empty() && kBlanks.find(text.front()) == std::string_view::npos) return std::nullopt;
    SkipBlanks(&text);
    if (key == "name" && !named) {
      header.name = *value;
      named = true;
    } else if (key == "string") {
      header.type = TypeOf(*value);
    }
  }
  if (!named) return std::nullopt;
  return header;
}

// name="<anything>" string="true"
std::optional<ParameterHeader> ParseQuotedName(std::string_view text) {
  constexpr std::string_view kBegin = "name=\"";
  if (!text.starts_with(kBegin)) return std::nullopt;
  for (const auto& [end, type] : {std::pair<std::string_view, ParameterType>("string=\"true\"", ParameterType::kString),
                                  {"string=\"false\"", ParameterType::kJson}}) {
    if (!text.ends_with(end)) continue;
    const std::string_view before = text.substr(0, text.size() - end.size());
    const std::string_view name = TrimBlanks(before);
    if (name.size() == before.size() || name.size() <= kBegin.size() || name.back() != '"') return std::nullopt;
    return ParameterHeader{.name = std::string(name.substr(kBegin.size(), name.size() - kBegin.size() - 1)),
                           .type = type};
  }
  return std::nullopt;
}

}  // namespace

std::optional<ParameterHeader> ParseParameterHeader(std::string_view text) {
  text = TrimBlanks(text);
  if (auto header = ParseAttributes(text)) return header;
  return ParseQuotedName(text);
}

}  // namespace deepinfer::recipe
