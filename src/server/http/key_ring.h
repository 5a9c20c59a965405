// SPDX-License-Identifier: Apache-2.0
// The API keys of a server. Only SHA-256 digests of the secrets are kept; a presented secret is compared with all of
// them, without an early end, so that time tells nothing. Immutable after filling; Find may be called from any thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"

namespace deepinfer::server {

using SecretDigest = std::array<unsigned char, 32>;
SecretDigest DigestOfSecret(std::string_view secret);

struct KeyEntry {
  ApiKey key;
  SecretDigest digest{};
  std::atomic<int> requests_open{0};
};

class KeyRing {
 public:
  void Add(ApiKey key, const SecretDigest& digest);
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  // The key of that secret; nullptr: none.
  std::shared_ptr<KeyEntry> Find(std::string_view secret) const;
  // The key that a request presents, as `Authorization: Bearer` or as `x-api-key`.
  std::shared_ptr<KeyEntry> FindFor(const HttpRequest& request) const;

 private:
  std::vector<std::shared_ptr<KeyEntry>> entries_;
};

}  // namespace deepinfer::server
