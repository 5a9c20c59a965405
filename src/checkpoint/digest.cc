// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <iterator>

#include "core/check.h"

namespace deepinfer::checkpoint {

struct Digest::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_MD_CTX_free(md); }
};

Digest::Digest(Kind kind) : context_(std::make_unique<Context>()) {
  DI_CHECK(context_->md != nullptr);
  DI_CHECK(EVP_DigestInit_ex(context_->md, kind == Kind::kSha1 ? EVP_sha1() : EVP_sha256(), nullptr) == 1);
}

Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;
Digest::~Digest() = default;

void Digest::Add(std::span<const std::byte> bytes) {
  DI_CHECK(EVP_DigestUpdate(context_->md, bytes.data(), bytes.size()) == 1);
}

std::string Digest::Finish() {
  unsigned char value[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  DI_CHECK(EVP_DigestFinal_ex(context_->md, value, &size) == 1);
  std::string text;
  for (unsigned i = 0; i < size; ++i) fmt::format_to(std::back_inserter(text), "{:02x}", value[i]);
  return text;
}

}  // namespace deepinfer::checkpoint
