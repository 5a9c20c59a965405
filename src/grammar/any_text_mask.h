// SPDX-License-Identifier: Apache-2.0
// What a vocabulary looks like from inside a JSON string of any text, apart from what the string stands in: the tokens that
// stay inside it or end with its closing quote, and for the others the bytes after the quote, as one small trie. A mask is
// then a copy plus a short walk. Immutable once built.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/lexer.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {

struct AnyTextMask {
  static constexpr size_t kCharsMax = 48;

  std::vector<uint32_t> inside;  // mask words: open, and those that end with the closing quote
  std::vector<uint32_t> open;    // those that stay inside
  // up_to[n]: those of `inside` that the string has room for when n more characters may come.
  std::vector<std::vector<uint32_t>> up_to;
  // Tokens that go beyond the closing quote, with their characters before it; the longest first.
  std::vector<std::pair<size_t, uint32_t>> closing_chars;
  Trie beyond;                   // tokens that go beyond the closing quote, by what follows it
  Trie closing;                  // tokens with a closing quote
};

AnyTextMask BuildAnyTextMask(Lexer* lexer, const VocabularyImpl& vocabulary);

}  // namespace deepinfer::grammar
