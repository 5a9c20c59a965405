// SPDX-License-Identifier: Apache-2.0
// The vocabulary as tries, and the tokens of plain text split off by length and by class, so that inside free text most of
// the mask is a copy. Immutable, safe to share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "deepinfer/grammar.h"
#include "grammar/text_class.h"
#include "grammar/trie.h"

namespace deepinfer::grammar {

struct AnyTextMask;

class VocabularyImpl : public Vocabulary {
 public:
  static constexpr size_t kPlainCharsMax = 32;

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
  // Sets the bits of the tokens that are runs of up to `chars` characters of one of the classes.
  // REQUIRES: chars <= kRunCharsMax.
  void AddRuns(uint8_t classes, uint32_t chars, uint32_t* mask) const;
  // The view from inside a string of any text (grammar/any_text_mask.h); the same for all grammars.
  const AnyTextMask& AnyText(Spelling spelling) const { return *any_text_[spelling == Spelling::kUsual]; }
  // Tokens of more than AnyTextMask::kCharsMax bytes, longest first.
  const std::vector<uint32_t>& long_tokens() const { return long_tokens_; }
 private:
  Trie Build(const std::vector<uint32_t>& ids, const std::vector<uint8_t>& classes) const;

  std::vector<std::string> tokens_;
  std::vector<bool> is_stop_;
  std::vector<uint32_t> stop_ids_;
  std::vector<uint32_t> long_tokens_;
  Trie all_, residual_;
  std::vector<std::vector<uint32_t>> plain_;
  std::array<std::array<std::vector<uint32_t>, kRunCharsMax + 1>, 8> runs_;  // by class, in the order of TextClasses(), and length
  std::shared_ptr<const AnyTextMask> any_text_[2];  // kAny, kUsual
};

// How a special id is spelled for the automaton: bytes that no valid UTF-8 text contains.
std::string SpecialSpelling(uint32_t id);

}  // namespace deepinfer::grammar
