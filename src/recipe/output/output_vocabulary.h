// SPDX-License-Identifier: Apache-2.0
// What the output parser needs of a tokenizer: the bytes of each id, and which ids are control tokens. One compact
// copy, so that the parser's inner loop touches two arrays. Immutable after creation; share it between threads and
// parsers, which must not outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

inline constexpr std::string_view kThinkEndSpelling = "</think>";
inline constexpr std::string_view kDsmlSpelling = "｜DSML｜";
inline constexpr std::string_view kEndOfSentenceSpelling = "<｜end▁of▁sentence｜>";

enum class TokenRole : uint8_t {
  kText,           // bytes of text
  kControl,        // an added token that the parser has no use for: it appears with its spelling and matches nothing
  kThinkEnd,       // </think>
  kDsml,           // ｜DSML｜
  kEndOfSentence,  // <｜end▁of▁sentence｜>
};

class OutputVocabulary {
 public:
  // Errors: kInvalidArgument where the tokenizer lacks </think>, ｜DSML｜ or the end of sentence as added tokens.
  static Result<OutputVocabulary> Create(const Tokenizer& tokenizer);

  TokenId size() const { return static_cast<TokenId>(roles_.size()); }
  // Empty beyond the vocabulary.
  std::string_view Bytes(TokenId id) const {
    if (id < 0 || id >= size()) return {};
    return std::string_view(bytes_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }
  TokenRole Role(TokenId id) const { return id < 0 || id >= size() ? TokenRole::kText : roles_[id]; }

 private:
  std::string bytes_;
  std::vector<uint32_t> offsets_;  // size() + 1
  std::vector<TokenRole> roles_;
};

}  // namespace deepinfer::recipe
