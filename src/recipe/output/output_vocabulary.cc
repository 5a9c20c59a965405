// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/output_vocabulary.h"

#include <utility>

namespace deepinfer::recipe {

Result<OutputVocabulary> OutputVocabulary::Create(const Tokenizer& tokenizer) {
  OutputVocabulary vocabulary;
  const TokenId size = tokenizer.vocab_size();
  vocabulary.offsets_.reserve(size + 1);
  vocabulary.offsets_.push_back(0);
  for (TokenId id = 0; id < size; ++id) {
    vocabulary.bytes_ += tokenizer.TokenBytes(id);
    vocabulary.offsets_.push_back(static_cast<uint32_t>(vocabulary.bytes_.size()));
    vocabulary.roles_.push_back(tokenizer.IsAdded(id) ? TokenRole::kControl : TokenRole::kText);
  }
  for (const auto& [spelling, role] : {std::pair(kThinkEndSpelling, TokenRole::kThinkEnd),
                                       std::pair(kDsmlSpelling, TokenRole::kDsml),
                                       std::pair(kEndOfSentenceSpelling, TokenRole::kEndOfSentence)}) {
    const auto id = tokenizer.TokenToId(spelling);
    if (!id || !tokenizer.IsAdded(*id)) {
      return Error(Code::kInvalidArgument, "tokenizer: \"{}\" is not in the added vocabulary", spelling);
    }
    vocabulary.roles_[*id] = role;
  }
  return vocabulary;
}

}  // namespace deepinfer::recipe
