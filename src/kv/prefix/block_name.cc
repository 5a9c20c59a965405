// SPDX-License-Identifier: Apache-2.0
// The one-shot SHA-256 functions and not EVP: fetching and resetting an EVP context costs as much as a third of the
// digest itself at this size (1.3 ms more for a million tokens).
#define OPENSSL_SUPPRESS_DEPRECATED
#include "kv/prefix/block_name.h"

#include <openssl/sha.h>

#include <bit>

#include "core/check.h"

namespace deepinfer::kv {
namespace {

static_assert(std::endian::native == std::endian::little);

void HashUint64(SHA256_CTX* context, uint64_t value) {
  uint8_t bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
  SHA256_Update(context, bytes, sizeof(bytes));
}

void HashField(SHA256_CTX* context, std::string_view field) {
  HashUint64(context, field.size());
  SHA256_Update(context, field.data(), field.size());
}

}  // namespace

BlockName NameOf(const BlockName& chain, BlockClass block_class) {
  if (block_class == BlockClass::kPure) return chain;
  BlockName name;
  for (size_t i = 0; i < name.bytes.size(); ++i) name.bytes[i] = static_cast<uint8_t>(~chain.bytes[i]);
  return name;
}

BlockNamer::BlockNamer(std::string_view model_identity, std::string_view numeric_identity, std::string_view salt) {
  SHA256_CTX context;
  SHA256_Init(&context);
  HashField(&context, "deepinfer block names 1");
  HashField(&context, model_identity);
  HashField(&context, numeric_identity);
  HashField(&context, salt);
  SHA256_Final(chain_.bytes.data(), &context);
}

BlockName BlockNamer::Next(std::span<const int32_t, kBlockTokens> ids, std::span<const ImageSpan> images) {
  std::array<uint8_t, 32 + 3 * kBlockTokens + 1> message;  // the spare byte takes the fourth of the last id
  std::memcpy(message.data(), chain_.bytes.data(), 32);
  uint8_t* out = message.data() + 32;
  uint32_t all_bits = 0;
  for (const int32_t id : ids) {
    const auto bits = static_cast<uint32_t>(id);
    all_bits |= bits;
    std::memcpy(out, &bits, sizeof(bits));  // four bytes, the next id overwrites the last
    out += 3;
  }
  DI_CHECK(all_bits <= static_cast<uint32_t>(kTokenIdMax));
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, message.data(), message.size() - 1);
  const int64_t begin = blocks_ * kBlockTokens;
  for (const ImageSpan& image : images) {
    if (image.begin >= begin + kBlockTokens) break;
    if (image.end <= begin) continue;
    SHA256_Update(&context, image.key.data(), image.key.size());
    HashUint64(&context, static_cast<uint64_t>(image.grid_height));
    HashUint64(&context, static_cast<uint64_t>(image.grid_width));
    HashUint64(&context, static_cast<uint64_t>(begin - image.begin));
    HashUint64(&context, static_cast<uint64_t>(image.end - image.begin));
  }
  SHA256_Final(chain_.bytes.data(), &context);
  ++blocks_;
  return chain_;
}

PromptNames NamePrompt(BlockNamer namer, std::span<const int32_t> ids, std::span<const ImageSpan> images) {
  PromptNames names{namer, {}};
  names.chain.reserve(ids.size() / kBlockTokens);
  for (size_t at = 0; at + kBlockTokens <= ids.size(); at += kBlockTokens) {
    while (!images.empty() && images.front().end <= static_cast<int64_t>(at)) images = images.subspan(1);
    names.chain.push_back(names.namer.Next(ids.subspan(at).first<kBlockTokens>(), images));
  }
  return names;
}

}  // namespace deepinfer::kv
