// SPDX-License-Identifier: Apache-2.0
// Requests' look-ups and the table of routes. A linear search: a server has some twenty routes, and comparing their
// first segments costs less than hashing.
#include <algorithm>

#include "core/check.h"
#include "core/json.h"
#include "server/http/exchange.h"

namespace deepinfer::server {
namespace {

constexpr size_t kCaptureBytesMax = 256;

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return Lower(x) == Lower(y); });
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = Lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Nothing where a '%' is not followed by two hex digits.
std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      out.push_back(' ');
    } else if (text[i] != '%') {
      out.push_back(text[i]);
    } else {
      if (i + 2 >= text.size() || HexValue(text[i + 1]) < 0 || HexValue(text[i + 2]) < 0) return std::nullopt;
      out.push_back(static_cast<char>(HexValue(text[i + 1]) * 16 + HexValue(text[i + 2])));
      i += 2;
    }
  }
  return out;
}

bool IsCapture(std::string_view text) {
  if (text.empty() || text.size() > kCaptureBytesMax || text[0] == '.') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == ':' || c == '-';
  });
}

// Cuts the next segment off `rest`, which begins with '/'.
std::string_view TakeSegment(std::string_view* rest) {
  const size_t end = std::min(rest->find('/', 1), rest->size());
  const std::string_view segment = rest->substr(1, end - 1);
  rest->remove_prefix(end);
  return segment;
}

bool Matches(std::string_view pattern, std::string_view path,
             std::vector<std::pair<std::string, std::string>>* captures) {
  captures->clear();
  while (!pattern.empty() && !path.empty() && path[0] == '/') {
    const std::string_view want = TakeSegment(&pattern);
    const std::string_view have = TakeSegment(&path);
    if (want.size() > 2 && want.front() == '{' && want.back() == '}') {
      std::optional<std::string> text = PercentDecode(have, /*plus_is_space=*/false);
      if (!text || !IsCapture(*text)) return false;
      captures->emplace_back(want.substr(1, want.size() - 2), *std::move(text));
    } else if (want != have) {
      return false;
    }
  }
  return pattern.empty() && path.empty();
}

}  // namespace

const std::string* HttpRequest::Header(std::string_view name) const {
  const auto found =
      std::find_if(headers.begin(), headers.end(), [&](const auto& h) { return EqualIgnoringCase(h.first, name); });
  return found == headers.end() ? nullptr : &found->second;
}

const std::string& HttpRequest::Capture(std::string_view name) const {
  const auto found = std::find_if(captures.begin(), captures.end(), [&](const auto& c) { return c.first == name; });
  DI_CHECK(found != captures.end());
  return found->second;
}

std::optional<std::string> HttpRequest::QueryValue(std::string_view name) const {
  std::string_view rest = query;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view item = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t equals = std::min(item.find('='), item.size());
    if (PercentDecode(item.substr(0, equals), true) != std::string(name)) continue;
    return PercentDecode(item.substr(std::min(equals + 1, item.size())), true);
  }
  return std::nullopt;
}

void Router::Add(Route route) {
  DI_CHECK(!route.pattern.empty() && route.pattern[0] == '/');
  DI_CHECK(route.handler != nullptr);
  routes_.push_back(std::move(route));
}

Router::Match Router::Find(std::string_view method, std::string_view path) const {
  Match match;
  const std::string_view wanted = method == "HEAD" ? std::string_view("GET") : method;
  std::vector<std::pair<std::string, std::string>> captures;
  for (const Route& route : routes_) {
    if (!Matches(route.pattern, path, &captures)) continue;
    if (route.method == wanted) {
      match.route = &route;
      match.captures = std::move(captures);
      match.allow.clear();
      return match;
    }
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  return match;
}

std::string Router::ErrorBody(std::string_view path, int status, std::string_view message) const {
  if (error_body_) return error_body_(path, status, message);
  std::string body = R"({"error":{"message":)";
  AppendJsonString(message, /*ascii_only=*/false, &body);
  body += R"(,"type":")";
  body += status >= 500 ? "server_error" : status == 401 ? "authentication_error" : "invalid_request_error";
  body += R"(","param":null,"code":null}})";
  return body;
}

}  // namespace deepinfer::server
