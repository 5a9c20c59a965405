// SPDX-License-Identifier: Apache-2.0
// What the hub says about a repository at a revision: /api/models/<org/name>/revision/<revision>?blobs=true.
// Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"

namespace deepinfer::checkpoint {

struct HubFile {
  std::string name;
  int64_t size = 0;
  // SHA-256 of the bytes (64 digits; large files), or git's object id (40 digits): SHA-1 of "blob <size>\0" and the
  // bytes. It is the name of the blob in the cache.
  std::string hash;

  bool is_sha256() const { return hash.size() == 64; }
};

struct HubListing {
  std::string commit;
  std::map<std::string, HubFile> files;  // by name in the repository

  const HubFile* Find(const std::string& name) const;
};

inline constexpr size_t kHubListingSizeMax = size_t{64} << 20;

// kDataLoss where the text is no such answer. Files without a usable size and hash are left out.
Result<HubListing> ParseHubListing(std::string_view json_text);

}  // namespace deepinfer::checkpoint
