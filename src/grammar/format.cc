// SPDX-License-Identifier: Apache-2.0
// Sources: RFC 3339 (dates), ISO 8601 (durations), RFC 5321 (email), RFC 1123 (host names), RFC 4291 (IPv6),
// RFC 3986 and 3987 (URI, IRI), RFC 6570 (templates), RFC 6901 (pointers), RFC 4122 (UUID).
#include "grammar/format.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "grammar/regex.h"

namespace deepinfer::grammar {
namespace {

constexpr std::string_view kDate =
    R"((?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8])))"
    R"(|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29))";

// Ordinary seconds with any offset; second 60 only where it is 23:59 UTC, with offsets in whole quarters of an hour.
std::string Time() {
  std::string leap = R"(23:59:60(?:\.\d+)?[zZ])";
  for (int hours = 0; hours < 24; ++hours) {
    for (int minutes = 0; minutes < 60; minutes += 15) {
      const int offset = hours * 60 + minutes;
      const int east = (1439 + offset) % 1440, west = (1439 - offset + 1440) % 1440;
      leap += fmt::format(R"(|{:02}:{:02}:60(?:\.\d+)?\+{:02}:{:02}|{:02}:{:02}:60(?:\.\d+)?-{:02}:{:02})", east / 60,
                          east % 60, hours, minutes, west / 60, west % 60, hours, minutes);
    }
  }
  return R"((?:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[zZ]|[+-](?:[01]\d|2[0-3]):[0-5]\d)|)" + leap + ")";
}

constexpr std::string_view kDuration =
    R"(P(?:\d+W|(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)(?:T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S))?)"
    R"(|T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)))";

// Labels with "--" in the third and fourth place are left out: they claim to be Punycode, whose validity is not regular.
constexpr std::string_view kLabel =
    R"((?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]{0,1}[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-])"
    R"((?:[a-zA-Z0-9][a-zA-Z0-9-]|-[a-zA-Z0-9])[a-zA-Z0-9-]{0,58}[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]{2}[a-zA-Z0-9]))";
constexpr std::string_view kIpv4 =
    R"((?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";

std::string Ipv6() {
  const std::string h = "[0-9a-fA-F]{1,4}";
  const std::string tail = fmt::format("(?:{}:{}|{})", h, h, kIpv4);
  std::string all = fmt::format("(?:(?:{}:){{6}}{}", h, tail);
  all += fmt::format("|::(?:{}:){{5}}{}", h, tail);
  for (int left = 1; left <= 7; ++left) {  // up to `left` groups before "::"
    const std::string before = fmt::format("(?:(?:{}:){{0,{}}}{})?", h, left - 1, h);
    if (left <= 5) {
      all += fmt::format("|{}::(?:{}:){{{}}}{}", before, h, 5 - left, tail);
    } else {
      all += left == 6 ? fmt::format("|{}::{}", before, h) : fmt::format("|{}::", before);
    }
  }
  return all + ")";
}

std::string Hostname() { return fmt::format(R"({0}(?:\.{0})*)", kLabel); }

std::string Email() {
  const std::string atom = R"([a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+)";
  return fmt::format(R"re((?:{0}(?:\.{0})*|"(?:[ !#-\[\]-~]|\\[ -~])*")@(?:{1}|\[(?:{2}|IPv6:{3})\]))re", atom, Hostname(),
                     kIpv4, Ipv6());
}

// The pieces of RFC 3986; `extra` are the characters that IRIs add to the unreserved ones.
struct UriParts {
  explicit UriParts(std::string_view extra) {
    const std::string escaped = "%[0-9a-fA-F]{2}";
    pchar = fmt::format(R"((?:[a-zA-Z0-9._~!$&'()*+,;=:@{}-]|{}))", extra, escaped);
    const std::string no_colon = fmt::format(R"((?:[a-zA-Z0-9._~!$&'()*+,;=@{}-]|{}))", extra, escaped);
    const std::string reg = fmt::format(R"((?:[a-zA-Z0-9._~!$&'()*+,;={}-]|{})*)", extra, escaped);
    const std::string user = fmt::format(R"((?:[a-zA-Z0-9._~!$&'()*+,;=:{}-]|{})*)", extra, escaped);
    const std::string host = fmt::format(R"((?:\[(?:{}|[vV][0-9a-fA-F]+\.[a-zA-Z0-9._~!$&'()*+,;=:-]+)\]|{}))", Ipv6(), reg);
    const std::string authority = fmt::format(R"(//(?:{}@)?{}(?::\d*)?(?:/{}*)*)", user, host, pchar);
    const std::string absolute = fmt::format("/(?:{0}+(?:/{0}*)*)?", pchar);
    scheme = "[a-zA-Z][a-zA-Z0-9+.-]*:";
    hierarchy = fmt::format("(?:{}|{}|{}+(?:/{}*)*|)", authority, absolute, pchar, pchar);
    relative = fmt::format("(?:{}|{}|{}+(?:/{}*)*|)", authority, absolute, no_colon, pchar);
    const std::string_view in_query = extra.empty() ? "" : R"(\uE000-\uF8FF\u{F0000}-\u{FFFFD}\u{100000}-\u{10FFFD})";
    tail = fmt::format(R"((?:\?(?:{0}|[/?{1}])*)?(?:#(?:{0}|[/?])*)?)", pchar, in_query);
  }
  std::string pchar, scheme, hierarchy, relative, tail;
};

constexpr std::string_view kIriExtra =
    R"(\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF\u{10000}-\u{1FFFD}\u{20000}-\u{2FFFD}\u{30000}-\u{DFFFD}\u{E1000}-\u{EFFFD})";

std::string Uri(bool iri, bool reference) {
  const UriParts p(iri ? kIriExtra : "");
  const std::string full = p.scheme + p.hierarchy;
  return (reference ? fmt::format("(?:{}|{})", full, p.relative) : full) + p.tail;
}

constexpr std::string_view kUriTemplate =
    R"((?:[^\u0000-\u0020"<>\\^`{|}%\u007F-\u009F]|%[0-9a-fA-F]{2}|\{[+#./;?&=,!@|]?)"
    R"((?:[a-zA-Z0-9_]|%[0-9a-fA-F]{2})(?:\.?(?:[a-zA-Z0-9_]|%[0-9a-fA-F]{2}))*(?::[1-9]\d{0,3}|\*)?)"
    R"((?:,(?:[a-zA-Z0-9_]|%[0-9a-fA-F]{2})(?:\.?(?:[a-zA-Z0-9_]|%[0-9a-fA-F]{2}))*(?::[1-9]\d{0,3}|\*)?)*\})*)";

constexpr std::string_view kPointer = R"((?:/(?:[^~/]|~[01])*)*)";
constexpr std::string_view kUuid = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";

std::string PatternOf(std::string_view name) {
  if (name == "date") return std::string(kDate);
  if (name == "time") return Time();
  if (name == "date-time") return std::string(kDate) + "[tT]" + Time();
  if (name == "duration") return std::string(kDuration);
  if (name == "email") return Email();
  if (name == "hostname") return Hostname();
  if (name == "ipv4") return std::string(kIpv4);
  if (name == "ipv6") return Ipv6();
  if (name == "uuid") return std::string(kUuid);
  if (name == "uri") return Uri(false, false);
  if (name == "uri-reference") return Uri(false, true);
  if (name == "iri") return Uri(true, false);
  if (name == "iri-reference") return Uri(true, true);
  if (name == "uri-template") return std::string(kUriTemplate);
  if (name == "json-pointer") return std::string(kPointer);
  if (name == "relative-json-pointer") return R"((?:0|[1-9]\d*)(?:#|)" + std::string(kPointer) + ")";
  return "";
}

}  // namespace

FormatSupport SupportOfFormat(std::string_view name) {
  static constexpr std::string_view kEnforced[] = {
      "date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "uri-reference",
      "iri", "iri-reference", "uri-template", "json-pointer", "relative-json-pointer"};
  for (std::string_view known : kEnforced) {
    if (name == known) return FormatSupport::kEnforced;
  }
  const bool refused = name == "idn-email" || name == "idn-hostname" || name == "regex";
  return refused ? FormatSupport::kRefused : FormatSupport::kUnknown;
}

Result<ExprId> FormatExpr(ExprPool* pool, std::string_view name) {
  DI_ASSIGN_OR_RETURN(const ExprId expr, ParseRegex(pool, PatternOf(name), RegexMatch::kWhole));
  // RFC 1035: at most 253 characters in all.
  if (name == "hostname") return pool->And(expr, pool->Repeat(AnyChar(pool), 1, 253));
  return expr;
}

}  // namespace deepinfer::grammar
