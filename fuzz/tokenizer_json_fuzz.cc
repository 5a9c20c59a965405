// SPDX-License-Identifier: Apache-2.0
// Any bytes as tokenizer.json: an error with a message, or a tokenizer that works on any text. Seeds: the
// tokenizer.json files of tests/golden/model.
#include "core/utf8.h"
#include "tokenizer/compressed_vocab.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = Tokenizer::FromBytes(input, "fuzz.json", {.file_bytes_max = 1 << 20, .id_max = 1 << 14});
  if (!tokenizer.ok()) {
    DI_CHECK(!tokenizer.status().message().empty());
    return 0;
  }
  const auto ids = (*tokenizer)->Encode(input.substr(0, 2000));
  if (!ids.ok()) return 0;
  for (const TokenId id : *ids) DI_CHECK((*tokenizer)->IdToToken(id).has_value());
  DI_CHECK(FindInvalidUtf8((*tokenizer)->Decode(*ids)) == std::string_view::npos);
  DI_CHECK(CompressVocab(**tokenizer).ok());
  return 0;
}
