// SPDX-License-Identifier: Apache-2.0
// Single transfers from the hub with its rules: what a status means, when to try again and how long to wait, how an
// interrupted file goes on, when it counts as whole. The layer between HttpClient and DownloadModel.
// Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "checkpoint/http.h"
#include "checkpoint/hub.h"
#include "checkpoint/hub_listing.h"
#include "core/status.h"

namespace deepinfer::checkpoint {

class HubTransfer {
 public:
  // `on_bytes` learns how much of the file at hand is there (false: cancel); it is also called while waiting.
  HubTransfer(const HubOptions& options, std::function<bool(int64_t bytes)> on_bytes)
      : options_(options), on_bytes_(std::move(on_bytes)) {}

  // A small answer as text.
  Result<std::string> GetText(const std::string& url, size_t size_bytes_max);
  // The file at `url` to `path`, by way of `path`.incomplete. Nothing to do where `path` exists.
  Status GetFile(const std::string& url, const HubFile& file, const std::string& path);

 private:
  // Calls `attempt` until it succeeds, fails for good, or has failed too often without progress.
  Status Retry(const std::function<Status()>& attempt);
  Status Wait(std::chrono::milliseconds time);
  Status CheckStatus(const HttpResponse& response, const std::string& url);
  HttpRequest MakeRequest(const std::string& url) const;

  const HubOptions& options_;
  std::function<bool(int64_t)> on_bytes_;
  HttpClient client_;
  int64_t file_bytes_ = 0;                    // of the file at hand
  std::chrono::milliseconds retry_after_{0};  // what the last response asked for
};

}  // namespace deepinfer::checkpoint
