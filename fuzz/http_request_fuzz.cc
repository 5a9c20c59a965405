// SPDX-License-Identifier: Apache-2.0
// Any bytes as what a client sends on one connection: requests come out under the limits or are refused with a status and a
// message, and where the pieces are cut changes neither whether a request is taken nor a byte of it. The first byte says how
// the bytes are cut.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "server/http/request_parser.h"

namespace deepinfer::server {
namespace {

constexpr ParserLimits kLimits = {.header_bytes_max = 2048, .header_fields_max = 16, .framing_bytes_max = 512};
constexpr size_t kBodyBytesMax = 4096;

struct Taken {
  HttpRequest request;
  size_t end = 0;  // of its bytes

  bool operator==(const Taken& other) const {
    const HttpRequest &a = request, &b = other.request;
    return end == other.end && a.method == b.method && a.path == b.path && a.query == b.query && a.headers == b.headers &&
           a.body == b.body;
  }
};

void CheckLimits(const HttpRequest& request) {
  DI_CHECK(request.body.size() <= kBodyBytesMax);
  DI_CHECK(request.headers.size() <= kLimits.header_fields_max);
  size_t header_bytes = request.method.size() + request.path.size() + request.query.size();
  for (const auto& [name, value] : request.headers) header_bytes += name.size() + value.size();
  DI_CHECK(header_bytes <= kLimits.header_bytes_max);
}

// All requests that are read off `bytes` one after the other, as a connection does that is kept alive.
std::vector<Taken> ReadAll(std::string_view bytes, size_t piece_bytes) {
  std::vector<Taken> all;
  size_t used = 0;
  while (used < bytes.size()) {
    Taken taken;
    RequestParser parser(kLimits, &taken.request);
    size_t seen = used;
    auto progress = RequestParser::Progress::kNeedMore;
    while (progress == RequestParser::Progress::kNeedMore && seen < bytes.size()) {
      seen = std::min(bytes.size(), seen + piece_bytes);
      do {
        const std::string piece(bytes.substr(used, seen - used));  // of exact size: a read past its end is seen
        std::string_view input = piece;
        progress = parser.Put(&input);
        used += piece.size() - input.size();
        if (progress == RequestParser::Progress::kHeader) parser.LimitBody(kBodyBytesMax);
      } while (progress == RequestParser::Progress::kHeader);
    }
    if (progress == RequestParser::Progress::kRefused) {
      DI_CHECK(parser.refusal().status >= 400 && parser.refusal().status < 600);
      DI_CHECK(!std::string_view(parser.refusal().message).empty());
    }
    if (progress != RequestParser::Progress::kDone) break;
    CheckLimits(taken.request);
    taken.end = used;
    all.push_back(std::move(taken));
  }
  return all;
}

}  // namespace
}  // namespace deepinfer::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer::server;
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  DI_CHECK(ReadAll(bytes, bytes.size()) == ReadAll(bytes, 1 + data[0] % 64));
  return 0;
}
