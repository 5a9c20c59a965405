// SPDX-License-Identifier: Apache-2.0
// What the output parser needs of a tokenizer: the bytes of each id, and which ids are control tokens. One compact
// copy: the parser's inner loop reads 8 bytes for an id, and then its text. Immutable after creation; share it between threads and
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

  // Bytes behind every entry that may be read (not used): short entries can be copied with a fixed size.
  static constexpr size_t kPadding = 16;

  TokenId size() const { return static_cast<TokenId>(entries_.size()); }
  // Empty beyond the vocabulary.
  std::string_view Bytes(TokenId id) const {
    const Entry entry = Find(id);
    return {bytes_.data() + entry.offset, entry.size};
  }
  TokenRole Role(TokenId id) const { return Find(id).role; }

 private:
  struct Entry {
    uint32_t offset = 0;
    uint16_t size = 0;
    TokenRole role = TokenRole::kText;
  };
  Entry Find(TokenId id) const { return id < 0 || id >= size() ? Entry() : entries_[static_cast<size_t>(id)]; }

  std::string bytes_;
  std::vector<Entry> entries_;
};

}  // namespace deepinfer::recipe
