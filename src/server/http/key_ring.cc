// SPDX-License-Identifier: Apache-2.0
#include "server/http/key_ring.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <strings.h>

namespace deepinfer::server {
namespace {

// Longer ones are no secrets of ours; the limit bounds the hashing.
constexpr size_t kSecretBytesMax = 512;

}  // namespace

SecretDigest DigestOfSecret(std::string_view secret) {
  SecretDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), digest.data());
  return digest;
}

void KeyRing::Add(ApiKey key, const SecretDigest& digest) {
  auto entry = std::make_shared<KeyEntry>();
  entry->key = std::move(key);
  entry->digest = digest;
  entries_.push_back(std::move(entry));
}

std::shared_ptr<KeyEntry> KeyRing::Find(std::string_view secret) const {
  const SecretDigest digest = DigestOfSecret(secret.substr(0, kSecretBytesMax));
  size_t found = entries_.size();
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (CRYPTO_memcmp(digest.data(), entries_[i]->digest.data(), digest.size()) == 0) found = i;
  }
  return found < entries_.size() && secret.size() <= kSecretBytesMax ? entries_[found] : nullptr;
}

std::shared_ptr<KeyEntry> KeyRing::FindFor(const HttpRequest& request) const {
  constexpr std::string_view kBearer = "bearer ";
  std::shared_ptr<KeyEntry> by_bearer, by_header;
  if (const std::string* value = request.Header("authorization")) {
    if (value->size() > kBearer.size() && strncasecmp(value->c_str(), kBearer.data(), kBearer.size()) == 0) {
      by_bearer = Find(std::string_view(*value).substr(kBearer.size()));
    }
  }
  if (const std::string* value = request.Header("x-api-key")) by_header = Find(*value);
  return by_bearer ? by_bearer : by_header;
}

}  // namespace deepinfer::server
