// SPDX-License-Identifier: Apache-2.0
// SHA-1 (git object ids) and SHA-256 over bytes that come in pieces. Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace deepinfer::checkpoint {

class Digest {
 public:
  enum class Kind { kSha1, kSha256 };

  explicit Digest(Kind kind);
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  ~Digest();

  void Add(std::span<const std::byte> bytes);
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text.data(), text.size()))); }
  // The digest in lower-case hexadecimal. Call it once; nothing may be added after it.
  std::string Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace deepinfer::checkpoint
