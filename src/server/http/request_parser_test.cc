// SPDX-License-Identifier: Apache-2.0
// Property: how a request's bytes are cut into pieces changes nothing, for good requests and for bytes changed at random; what
// comes out obeys the limits. (What is refused, and how, is tested over sockets: tests/server/http_test.py.)
#include "server/http/request_parser.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

namespace deepinfer::server {
namespace {

constexpr size_t kBodyMax = 64;

struct Outcome {
  RequestParser::Progress end = RequestParser::Progress::kNeedMore;
  int status = 0;
  size_t used = 0;
  HttpRequest request;

  bool operator==(const Outcome& other) const {
    const HttpRequest &a = request, &b = other.request;
    // Bytes that come together may be found bad before those that come one by one; neither is ever taken for good.
    if (end != RequestParser::Progress::kDone) return other.end != RequestParser::Progress::kDone;
    if (other.end != RequestParser::Progress::kDone) return false;
    return used == other.used && a.method == b.method && a.path == b.path && a.query == b.query && a.headers == b.headers &&
           a.body == b.body;
  }
};

// Feeds `bytes` so that each put sees what is unused so far up to the next cut, as a connection does.
Outcome Parse(std::string_view bytes, const std::vector<size_t>& cuts) {
  Outcome outcome;
  RequestParser parser({.header_bytes_max = 1024, .header_fields_max = 8, .framing_bytes_max = 256}, &outcome.request);
  for (const size_t cut : cuts) {
    for (;;) {
      // A copy of exact size: reads past the end are seen by the sanitizer.
      const std::string piece(bytes.substr(outcome.used, cut - outcome.used));
      std::string_view input = piece;
      outcome.end = parser.Put(&input);
      outcome.used += piece.size() - input.size();
      if (outcome.end != RequestParser::Progress::kHeader) break;
      parser.LimitBody(kBodyMax);
    }
    if (outcome.end != RequestParser::Progress::kNeedMore) break;
  }
  if (outcome.end == RequestParser::Progress::kRefused) outcome.status = parser.refusal().status;
  return outcome;
}

std::vector<size_t> EveryByte(std::string_view bytes) {
  std::vector<size_t> cuts;
  for (size_t i = 1; i <= bytes.size(); ++i) cuts.push_back(i);
  return cuts;
}

const std::vector<std::string>& Samples() {
  static const std::vector<std::string> samples = {
      "GET /v1/models?a=b HTTP/1.1\r\nHost: x\r\nX-Api-Key:  k \r\n\r\n",
      "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nhello world",
      "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;n=\"v\"\r\n world\r\n0\r\nT: x\r\n\r\n",
      // Beast asserts where this one comes in certain pieces.
      "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "GET http://host/path HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
      "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n",
  };
  return samples;
}

TEST(RequestParser, CutsChangeNothing) {
  for (const std::string& sample : Samples()) {
    const std::string bytes = sample + "GET /next HTTP/1.1\r\n";
    const Outcome whole = Parse(bytes, {bytes.size()});
    EXPECT_EQ(whole.end, RequestParser::Progress::kDone) << sample;
    EXPECT_EQ(whole.used, sample.size()) << sample;
    EXPECT_EQ(whole, Parse(bytes, EveryByte(bytes))) << sample;
    for (size_t cut = 1; cut < bytes.size(); ++cut) EXPECT_EQ(whole, Parse(bytes, {cut, bytes.size()})) << sample << cut;
  }
  EXPECT_EQ(Parse(Samples()[1], {Samples()[1].size()}).request.body, "hello world");
  EXPECT_EQ(Parse(Samples()[2], {Samples()[2].size()}).request.body, "hello world");
  EXPECT_EQ(Parse(Samples()[4], {Samples()[4].size()}).request.path, "/path");
  EXPECT_EQ(Parse(Samples()[0], {Samples()[0].size()}).request.headers[1].second, "k");
}

TEST(RequestParser, CutsChangeNothingWhereBytesAreWrong) {
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = Samples()[random() % Samples().size()];
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0: bytes[at] = static_cast<char>(random() % 256); break;
        case 1: bytes.insert(at, 1, "\r\n :;,0f"[random() % 8]); break;
        default: bytes.erase(at, 1 + random() % 3); break;
      }
      if (bytes.empty()) bytes = "x";
    }
    const Outcome whole = Parse(bytes, {bytes.size()});
    refused += whole.end == RequestParser::Progress::kRefused ? 1 : 0;
    ASSERT_LE(whole.request.body.size(), kBodyMax);
    ASSERT_LE(whole.request.headers.size(), 8U);
    ASSERT_EQ(whole, Parse(bytes, EveryByte(bytes))) << "round " << round << ": " << bytes;
    const size_t cut = 1 + random() % bytes.size();
    ASSERT_EQ(whole, Parse(bytes, {cut, bytes.size()})) << "round " << round << " cut " << cut << ": " << bytes;
  }
  EXPECT_GT(refused, 1000);
}

TEST(RequestParser, LimitsHoldHoweverTheBytesCome) {
  const std::string start = "GET / HTTP/1.1\r\nHost: x\r\n";
  const std::string many = start + "A: b\r\nB: b\r\nC: b\r\nD: b\r\nE: b\r\nF: b\r\nG: b\r\nH: b\r\n\r\n";
  const std::string wide = start + "A: " + std::string(2000, 'a') + "\r\n\r\n";
  std::string chunks = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 60; ++i) chunks += "1;extension\r\na\r\n";
  const std::string large = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n41\r\n" + std::string(65, 'a');
  for (const auto& [bytes, status] : {std::pair(many, 431), std::pair(wide, 431), std::pair(chunks, 400), std::pair(large, 413)}) {
    EXPECT_EQ(Parse(bytes, {bytes.size()}).status, status);
    EXPECT_EQ(Parse(bytes, EveryByte(bytes)).status, status);
  }
}

}  // namespace
}  // namespace deepinfer::server
