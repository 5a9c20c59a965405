// SPDX-License-Identifier: Apache-2.0
// How a mask is made, from the cheapest way that fits to the dearest:
// * inside a string of any text, the vocabulary's own view of that (AnyTextMask) and a short walk behind its closing quote;
// * inside a string of any text but for some (the keys of an object with named members), the same, put right along the
//   few paths where the text is one of those;
// * inside another string, a walk of its lexeme alone, and of the whole machine behind its closing quote; where any text may
//   go on, of the tokens with a closing quote alone;
// * else a walk of the whole machine.
// Walks leave out the tokens of the classes of text that may follow in any case, and what lies below a node from which any
// such text may follow.
#include <algorithm>

#include "grammar/any_text_mask.h"
#include "grammar/engine.h"

namespace deepinfer::grammar {
namespace {

constexpr uint64_t kVisitsOfStep = 32;

}  // namespace

bool Engine::Verify(uint32_t token, const Target& target) {
  const size_t size = target.text->size();
  budget_.Spend();
  const bool fits = Run(target.state, vocabulary_->TokenBytes(token), target.text) != kDeadState;
  target.text->resize(size);
  return fits;
}

// Walks what lies below `from`; `at` is the state there.
void Engine::Walk(const Trie& trie, const Trie::Node& from, const Lexer::Coverage& covered, StateId at, const Target& target) {
  struct Place {
    StateId state;
    bool unsure;  // the text so far has to be looked at
  };
  uint64_t visits = 0;
  trie.Walk(from, Place{at, false}, [&](const Trie::Node& node, const Place& place, Place* next) {
    if (covered.Covers(node)) return false;
    ++visits;
    next->state = machine_.Next(place.state, node.byte);
    if (next->state == kDeadState) return false;
    next->unsure = place.unsure || (node.byte == ',' && machine_.UnsureComma(place.state));
    by_text_ |= next->unsure;
    const bool known_below = node.tail != 0 && node.children > 0 && !next->unsure;
    const bool all_below = known_below && machine_.LivesOn(next->state, node.tail);
    for (uint32_t i = node.first; i < (all_below ? node.end : node.below); ++i) {
      if (!next->unsure || Verify(trie.tokens[i], target)) SetBit(trie.tokens[i], target.mask);
    }
    const uint32_t blanks = known_below && !all_below ? machine_.BlanksLeft(next->state, node.tail) : 0;
    for (uint32_t i = node.below; blanks > 0 && i < node.end; ++i) {
      if (trie.lengths[i] - node.depth <= static_cast<int>(blanks)) SetBit(trie.tokens[i], target.mask);
    }
    return !all_below && blanks == 0;
  });
  budget_.Spend(visits / kVisitsOfStep);
}

// The mask of a string that any text may end, `chars` characters at most.
void Engine::FillAnyText(LexId lexeme, uint32_t below, uint64_t chars, const Target& target) {
  const AnyTextMask& view = vocabulary_->AnyText(options_.spelling);
  const bool is_short = chars <= AnyTextMask::kCharsMax;
  const std::vector<uint32_t>& inside = is_short ? view.up_to[chars] : view.inside;
  std::copy(inside.begin(), inside.end(), target.mask);
  const uint32_t tag = lexer_.TagOf(lexeme);
  Walk(view.beyond, view.beyond.nodes[0], {}, machine_.AfterString(below, {&tag, 1}), target);
  for (const auto& [before, token] : view.closing_chars) {
    if (before <= chars) break;
    ClearBit(token, target.mask);
  }
  if (is_short) return;
  for (uint32_t token : vocabulary_->long_tokens()) {
    if (vocabulary_->TokenBytes(token).size() <= chars) break;
    if (!Verify(token, target)) ClearBit(token, target.mask);
  }
}

// The mask of a string that is any text but for some: first as if it were any text, then put right where the lexer is
// left with anything else than the rest of any text.
void Engine::FillMostlyAnyText(LexId lexeme, uint32_t below, uint32_t tag, const Target& target) {
  const AnyTextMask& view = vocabulary_->AnyText(options_.spelling);
  std::copy(view.inside.begin(), view.inside.end(), target.mask);
  Walk(view.beyond, view.beyond.nodes[0], {}, machine_.AfterString(below, {&tag, 1}), target);
  const Trie& trie = view.closing;  // no other token is lost
  struct Place {
    LexId lexeme;
    ExprId rest;  // of any text
  };
  trie.Walk(trie.nodes[0], Place{lexeme, lexer_.text()}, [&](const Trie::Node& node, const Place& place, Place* next) {
    next->lexeme = lexer_.Next(place.lexeme, node.byte);
    const bool closed = next->lexeme != kNoLex && lexer_.IsClosed(next->lexeme);
    if (next->lexeme != kNoLex && !closed) {
      // Escapes stand between whole characters.
      const bool escaped = lexer_.InEscape(next->lexeme) || lexer_.InEscape(place.lexeme);
      next->rest = escaped ? lexer_.text() : pool_.Derivative(place.rest, node.byte);
      return !lexer_.IsOnly(next->lexeme, next->rest, tag);
    }
    const auto tags = lexer_.Complete(next->lexeme);
    if (closed && tags.size() == 1 && tags[0] == tag) return false;
    for (uint32_t i = closed ? node.below : node.first; i < node.end; ++i) ClearBit(trie.tokens[i], target.mask);
    if (closed) {
      const std::vector<uint32_t> kept(tags.begin(), tags.end());
      Walk(trie, node, {}, machine_.AfterString(below, kept), target);
    }
    return false;
  });
}

// Sets the tokens of the classes that are covered; the trie that has the others.
const Trie& Engine::FillCovered(const Lexer::Coverage& coverage, uint32_t* mask) const {
  const bool copy = coverage.chars >= VocabularyImpl::kPlainCharsMax || coverage.exact;
  if (copy) {
    const std::vector<uint32_t>& plain = vocabulary_->PlainMask(coverage.chars);
    std::copy(plain.begin(), plain.end(), mask);
  } else {
    std::fill_n(mask, vocabulary_->mask_words(), 0);
  }
  vocabulary_->AddRuns(coverage.classes, kRunCharsMax, mask);
  vocabulary_->AddRuns(coverage.short_classes, coverage.short_chars, mask);
  return copy ? vocabulary_->residual() : vocabulary_->all();
}

// The mask of any other string.
void Engine::FillString(LexId lexeme, uint32_t below, const Target& target) {
  const AnyTextMask& view = vocabulary_->AnyText(options_.spelling);
  const bool endless = lexer_.IsEndless(lexeme);
  const Lexer::Coverage coverage = endless ? Lexer::Coverage() : lexer_.PlainCoverage(lexeme);
  if (endless) std::copy(view.open.begin(), view.open.end(), target.mask);
  const Trie& trie = endless ? view.closing : FillCovered(coverage, target.mask);
  uint64_t visits = 0;
  trie.Walk(trie.nodes[0], lexeme, [&](const Trie::Node& node, LexId at, LexId* next) {
    if (coverage.Covers(node)) return false;
    ++visits;
    *next = lexer_.Next(at, node.byte);
    if (*next == kNoLex) return false;
    const bool closed = lexer_.IsClosed(*next);
    const bool all_below = !closed && (node.tail & kPlainTail) != 0 && lexer_.LivesOnText(*next);
    for (uint32_t i = node.first; i < (all_below ? node.end : node.below); ++i) SetBit(trie.tokens[i], target.mask);
    if (closed && node.children > 0) {
      const auto tags = lexer_.Complete(*next);
      Walk(trie, node, {}, machine_.AfterString(below, std::vector<uint32_t>(tags.begin(), tags.end())), target);
    }
    return !closed && !all_below;
  });
  budget_.Spend(visits / kVisitsOfStep);
}

void Engine::Fill(const Target& target) {
  LexId lexeme = kNoLex;
  uint32_t below = 0, tag = 0;
  if (machine_.IsInString(target.state, &lexeme, &below)) {
    if (uint64_t chars = 0; lexer_.IsAnyTextUpTo(lexeme, &chars)) return FillAnyText(lexeme, below, chars, target);
    if (lexer_.IsMostlyAnyText(lexeme, &tag)) return FillMostlyAnyText(lexeme, below, tag, target);
    return FillString(lexeme, below, target);
  }
  const Lexer::Coverage coverage = machine_.PlainCoverage(target.state);
  const Trie& trie = FillCovered(coverage, target.mask);
  Walk(trie, trie.nodes[0], coverage, target.state, target);
}

}  // namespace deepinfer::grammar
