// SPDX-License-Identifier: Apache-2.0
// The vocabulary as a trie in depth-first order, so that a walk is a scan with jumps, and the tokens of plain text split
// off by length, so that inside free text most of the mask is a copy. Immutable, safe to share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepinfer/grammar.h"
#include "grammar/text_class.h"

namespace deepinfer::grammar {

struct Trie {
  struct Node {
    uint8_t byte = 0;
    uint8_t depth = 0;
    uint8_t classes = 0;  // the classes of text in which all tokens from here on down are whole
    int32_t token = -1;  // first token that ends here
    uint32_t skip = 0;   // index of the next node that is not below this one
  };
  std::vector<Node> nodes;
};

struct LexemeMask;

class VocabularyImpl : public Vocabulary {
 public:
  static constexpr size_t kPlainCharsMax = 32;
  static constexpr size_t kShortBytesMax = 48;

  VocabularyImpl(std::span<const std::string> token_bytes, std::span<const uint32_t> special, std::span<const uint32_t> stop);

  size_t size() const override { return tokens_.size(); }
  size_t mask_words() const override { return (tokens_.size() + 31) / 32; }

  // Bytes under which a token is walked: its text, or the spelling of a special id. Empty: never allowed.
  const std::string& TokenBytes(uint32_t id) const { return tokens_[id]; }
  bool IsStop(uint32_t id) const { return id < is_stop_.size() && is_stop_[id]; }
  const std::vector<uint32_t>& stop_ids() const { return stop_ids_; }
  const Trie& all() const { return all_; }
  const Trie& residual() const { return residual_; }  // all but the tokens of 1..kPlainCharsMax plain characters
  // Mask of the plain tokens with at most `chars` characters.
  const std::vector<uint32_t>& PlainMask(uint64_t chars) const {
    return plain_[chars < kPlainCharsMax ? chars : kPlainCharsMax];
  }
  // Sets the bits of the tokens that are runs of up to kRunCharsMax characters of one of the classes.
  void AddRuns(uint8_t classes, uint32_t* mask) const;
  // The view from inside a string of any text (grammar/lexeme_mask.h); the same for all grammars. Tags are to be ignored.
  const LexemeMask& AnyText(Spelling spelling) const { return *any_text_[spelling == Spelling::kUsual]; }
  // Tokens of more than kShortBytesMax bytes, longest first.
  const std::vector<uint32_t>& long_tokens() const { return long_tokens_; }
  // Next token with the same bytes, or -1.
  int32_t NextSame(int32_t token) const { return next_same_[static_cast<size_t>(token)]; }

 private:
  Trie Build(const std::vector<uint32_t>& ids, const std::vector<uint8_t>& classes);

  std::vector<std::string> tokens_;
  std::vector<bool> is_stop_;
  std::vector<uint32_t> stop_ids_;
  std::vector<int32_t> next_same_;
  std::vector<uint32_t> long_tokens_;
  Trie all_, residual_;
  std::vector<std::vector<uint32_t>> plain_;
  std::array<std::vector<uint32_t>, 8> runs_;  // in the order of TextClasses()
  std::shared_ptr<const LexemeMask> any_text_[2];  // kAny, kUsual
};

// How a special id is spelled for the automaton: bytes that no valid UTF-8 text contains.
std::string SpecialSpelling(uint32_t id);

}  // namespace deepinfer::grammar
