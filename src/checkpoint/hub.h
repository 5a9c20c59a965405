// SPDX-License-Identifier: Apache-2.0
// Fetches a checkpoint from the Hugging Face hub, or from a server that speaks its API, into the hub's cache layout
// (hub_cache.h). Of a repository only what a checkpoint needs is fetched: config, tokenizer, index, and the shards that
// the index names; an unsupported architecture is refused before the first shard.
// Interrupted transfers go on where they ended. A file gets its name only when its size and its hash (SHA-256 of large
// files, git's object id of others) are those that the hub lists; refs/ is written last.
// Blocking; safe to call from several threads and processes (one of them fetches a given model, the others get
// kUnavailable).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/model_name.h"
#include "core/status.h"

namespace deepinfer::checkpoint {

struct DownloadProgress {
  std::string file;
  int64_t file_done = 0;  // bytes
  int64_t file_size = 0;
  int64_t total_done = 0;  // of all files that are known to be needed so far
  int64_t total_size = 0;
};

struct HubOptions {
  std::string endpoint = "https://huggingface.co";
  std::string token;      // sent as a bearer token, to the endpoint's host only; "": none
  std::string model_dir;  // made where it is not there
  // Called several times a second; false ends the download with kCancelled. May be empty.
  std::function<bool(const DownloadProgress&)> progress;

  // Attempts in a row that bring less than a megabyte; after each the wait doubles.
  int attempts_max = 6;
  std::chrono::milliseconds wait_first{1000};
  std::chrono::milliseconds wait_max{60000};
  std::chrono::seconds connect_timeout{30};
  std::chrono::seconds stall_timeout{60};  // without a byte
};

// The snapshot's directory. Errors: kNotFound (no such model, revision or file), kFailedPrecondition (access refused:
// token, licence), kResourceExhausted (disk full; what was fetched is kept), kDataLoss (wrong size or hash, twice),
// kUnavailable (network, after all attempts), kUnimplemented (another architecture), kCancelled.
Result<std::string> DownloadModel(const ModelName& name, const HubOptions& options);

}  // namespace deepinfer::checkpoint
