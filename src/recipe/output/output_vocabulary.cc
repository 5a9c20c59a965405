// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/output_vocabulary.h"

#include <utility>

namespace deepinfer::recipe {

Result<OutputVocabulary> OutputVocabulary::Create(const Tokenizer& tokenizer) {
  OutputVocabulary vocabulary;
  const TokenId size = tokenizer.vocab_size();
  for (TokenId id = 0; id < size; ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    if (bytes.size() > UINT16_MAX) {
      return Error(Code::kResourceExhausted, "tokenizer: id {} stands for {} bytes, the limit is {}", id, bytes.size(),
                   UINT16_MAX);
    }
    vocabulary.entries_.push_back({.offset = static_cast<uint32_t>(vocabulary.bytes_.size()),
                                   .size = static_cast<uint16_t>(bytes.size()),
                                   .role = tokenizer.IsAdded(id) ? TokenRole::kControl : TokenRole::kText});
    vocabulary.bytes_ += bytes;
  }
  vocabulary.bytes_.append(kPadding, '\0');
  for (const auto& [spelling, role] : {std::pair(kThinkEndSpelling, TokenRole::kThinkEnd),
                                       std::pair(kDsmlSpelling, TokenRole::kDsml),
                                       std::pair(kEndOfSentenceSpelling, TokenRole::kEndOfSentence)}) {
    const auto id = tokenizer.TokenToId(spelling);
    if (!id || !tokenizer.IsAdded(*id)) {
      return Error(Code::kInvalidArgument, "tokenizer: \"{}\" is not in the added vocabulary", spelling);
    }
    vocabulary.entries_[static_cast<size_t>(*id)].role = role;
  }
  return vocabulary;
}

}  // namespace deepinfer::recipe
