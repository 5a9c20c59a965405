// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <mutex>

namespace deepinfer::checkpoint {
namespace {

constexpr long kRedirectsMax = 10;
constexpr size_t kHeadersMax = 256;

// One transfer, as the callbacks see it.
struct Transfer {
  const HttpSink& sink;
  CURL* curl;
  HttpResponse response;
  bool started = false;
  Status error;  // of the sink

  Status Start() {
    if (started) return Status();
    started = true;
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    response.status = static_cast<int>(status);
    return sink.on_start ? sink.on_start(response) : Status();
  }
};

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// A header line. Each response of a chain of redirects begins with its status line; the last one's headers remain.
size_t OnHeader(char* data, size_t, size_t size, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  const std::string_view line(data, size);
  if (line.starts_with("HTTP/")) {
    transfer->response.headers.clear();
    return size;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || transfer->response.headers.size() >= kHeadersMax) return size;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  transfer->response.headers[name] = Trim(line.substr(colon + 1));
  return size;
}

size_t OnData(char* data, size_t, size_t size, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  transfer->error = transfer->Start();
  if (transfer->error.ok() && transfer->sink.on_data) {
    transfer->error = transfer->sink.on_data(std::as_bytes(std::span(data, size)));
  }
  return transfer->error.ok() ? size : 0;  // less than `size` ends the transfer
}

int OnTick(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto* transfer = static_cast<Transfer*>(user);
  if (!transfer->sink.on_tick || transfer->sink.on_tick()) return 0;
  transfer->error = Error(Code::kCancelled, "cancelled");
  return 1;
}

// Whether trying the same again can help.
Code CodeOf(CURLcode code) {
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_BAD_FUNCTION_ARGUMENT:
      return Code::kFailedPrecondition;
    default:
      return Code::kUnavailable;
  }
}

}  // namespace

std::string_view HttpResponse::Header(std::string_view name) const {
  const auto found = headers.find(std::string(name));
  return found == headers.end() ? std::string_view() : found->second;
}

struct HttpClient::Handle {
  CURL* curl = nullptr;
  char message[CURL_ERROR_SIZE] = {};
};

HttpClient::HttpClient() : handle_(std::make_unique<Handle>()) {
  static std::once_flag once;
  std::call_once(once, [] { DI_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK); });
  handle_->curl = curl_easy_init();
  DI_CHECK(handle_->curl != nullptr);
}

HttpClient::~HttpClient() { curl_easy_cleanup(handle_->curl); }

Result<HttpResponse> HttpClient::Send(const HttpRequest& request, const HttpSink& sink) {
  CURL* curl = handle_->curl;
  curl_easy_reset(curl);  // keeps the connection
  handle_->message[0] = '\0';
  Transfer transfer = {.sink = sink, .curl = curl, .response = {}, .started = false, .error = {}};
  const bool secure = request.url.starts_with("https:");
  const std::string range = fmt::format("{}-", request.range_begin);
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, handle_->message);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "deepinfer");
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, kRedirectsMax);
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, static_cast<long>(request.connect_timeout.count()));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_timeout.count()));
  if (request.range_begin > 0) curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  if (!request.bearer_token.empty()) {
    // As curl's own authentication, not as a header of ours: curl leaves it out when a redirect goes elsewhere.
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
    curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, request.bearer_token.c_str());
    curl_easy_setopt(curl, CURLOPT_UNRESTRICTED_AUTH, 0L);
  }
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, OnData);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, OnTick);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);

  const CURLcode code = curl_easy_perform(curl);
  if (!transfer.error.ok()) return transfer.error;
  if (code != CURLE_OK) {
    return Error(CodeOf(code), "{}: {}", request.url,
                 handle_->message[0] != '\0' ? handle_->message : curl_easy_strerror(code));
  }
  DI_RETURN_IF_ERROR(transfer.Start());  // a response without a body
  return std::move(transfer.response);
}

}  // namespace deepinfer::checkpoint
