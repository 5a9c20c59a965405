// SPDX-License-Identifier: Apache-2.0
// What a vocabulary looks like from inside a JSON string, apart from what the string stands in: the tokens that stay
// inside it or end with its closing quote, and for the others the bytes after the quote, gathered into one small trie.
// A mask is then a copy plus a short walk. Immutable once built.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/lexer.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {

struct LexemeMask {
  // Tokens by what follows the closing quote.
  struct Suffixes {
    std::vector<uint32_t> tags;      // of the alternatives that the string was complete for
    Trie trie;                       // Node::token: index into `groups`
    std::vector<std::pair<uint32_t, uint32_t>> groups;  // ranges of `tokens`
    std::vector<uint32_t> tokens;
  };
  std::vector<uint32_t> inside;  // mask words
  std::vector<Suffixes> beyond;
};

// REQUIRES: lexer->IsOpenString(lexeme).
LexemeMask BuildLexemeMask(Lexer* lexer, LexId lexeme, const VocabularyImpl& vocabulary);

}  // namespace deepinfer::grammar
