// SPDX-License-Identifier: Apache-2.0
#include "grammar/any_text_mask.h"

#include <algorithm>
#include <string_view>

namespace deepinfer::grammar {

AnyTextMask BuildAnyTextMask(Lexer* lexer, const VocabularyImpl& vocabulary) {
  AnyTextMask result;
  result.open.assign(vocabulary.mask_words(), 0);
  result.inside = result.open;
  result.up_to.assign(AnyTextMask::kCharsMax + 1, result.open);
  std::vector<Trie::Entry> beyond, closing;
  const Trie& trie = vocabulary.all();
  // One that ends within a character takes the room of it.
  const auto add = [&](uint32_t token, size_t chars) {
    SetBit(token, result.inside.data());
    for (size_t n = chars; n <= AnyTextMask::kCharsMax; ++n) SetBit(token, result.up_to[n].data());
  };
  const LexId any = lexer->AnyTextString();
  struct Place {
    LexId lexeme;
    size_t chars;
  };
  trie.Walk(trie.nodes[0], Place{any, 0}, [&](const Trie::Node& node, const Place& at, Place* next) {
    next->lexeme = lexer->Next(at.lexeme, node.byte);
    if (next->lexeme == kNoLex) return false;
    const bool closed = lexer->IsClosed(next->lexeme);
    const bool begins = at.lexeme == any && !closed;  // a character
    next->chars = at.chars + (begins ? 1 : 0);
    if (!closed) {
      for (uint32_t i = node.first; i < node.below; ++i) {
        SetBit(trie.tokens[i], result.open.data());
        add(trie.tokens[i], next->chars);
      }
      return true;
    }
    for (uint32_t i = node.first; i < node.end; ++i) {
      const std::string_view bytes = vocabulary.TokenBytes(trie.tokens[i]);
      closing.emplace_back(bytes, trie.tokens[i]);
      if (i < node.below) {
        add(trie.tokens[i], at.chars);
      } else {
        beyond.emplace_back(bytes.substr(node.depth), trie.tokens[i]);
        result.closing_chars.emplace_back(at.chars, trie.tokens[i]);
      }
    }
    return false;
  });
  std::sort(result.closing_chars.rbegin(), result.closing_chars.rend());
  result.beyond = Trie::Build(std::move(beyond), {});
  result.closing = Trie::Build(std::move(closing), {});
  return result;
}

}  // namespace deepinfer::grammar
