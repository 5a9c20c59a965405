// SPDX-License-Identifier: Apache-2.0
// How a mask is made, from the cheapest way that fits to the dearest:
// * inside a string of any text, the vocabulary's own view of that (LexemeMask) and a short walk behind its closing quote;
// * inside a string of any text but for some (the keys of an object with named members), the same, put right along the
//   few paths where the text is one of those;
// * inside other strings that are met again, a view of their own;
// * else a walk of the vocabulary without the tokens of the classes of text that may follow in any case.
#include <algorithm>
#include <array>

#include "grammar/engine.h"

namespace deepinfer::grammar {
namespace {

constexpr size_t kLexemeMasksMax = 256;

template <typename Visit>
void EachToken(const VocabularyImpl& vocabulary, int32_t token, Visit visit) {
  for (; token >= 0; token = vocabulary.NextSame(token)) visit(static_cast<uint32_t>(token));
}

}  // namespace

bool Engine::Verify(StateId state, int32_t token, const std::string& text) {
  std::string copy = text;
  return Run(state, vocabulary_->TokenBytes(static_cast<uint32_t>(token)), &copy) != kDeadState;
}

// Nodes [begin, end) lie below one node, or are the whole trie; `at` is the state before them, `start` that before the token.
void Engine::Walk(const Trie& trie, uint32_t begin, uint32_t end, uint8_t covered, StateId at, StateId start,
                  const std::string& text, uint32_t* mask) {
  if (begin == end) return;
  std::array<StateId, 256> states;
  std::array<bool, 256> unsure;
  const Trie::Node* nodes = trie.nodes.data();
  states[nodes[begin].depth] = at;
  unsure[nodes[begin].depth] = false;
  for (uint32_t i = begin; i < end;) {
    const Trie::Node& node = nodes[i];
    if ((node.classes & covered) != 0) {
      i = node.skip;
      continue;
    }
    const StateId from = states[node.depth];
    const StateId next = machine_.Next(from, node.byte);
    if (next == kDeadState) {
      i = node.skip;
      continue;
    }
    states[node.depth + 1u] = next;
    unsure[node.depth + 1u] = unsure[node.depth] || (node.byte == ',' && machine_.UnsureComma(from));
    by_text_ |= unsure[node.depth + 1u];
    if (node.token >= 0 && (!unsure[node.depth + 1u] || Verify(start, node.token, text))) {
      EachToken(*vocabulary_, node.token, [&](uint32_t token) { mask[token / 32] |= 1u << (token % 32); });
    }
    ++i;
  }
}

void Engine::WalkSuffixes(const LexemeMask::Suffixes& suffixes, StateId start, StateId after, const std::string& text,
                          uint32_t* mask) {
  std::array<StateId, 256> states;
  std::array<bool, 256> unsure;
  states[0] = after;
  unsure[0] = false;
  for (uint32_t i = 0; i < suffixes.trie.nodes.size();) {
    const Trie::Node& node = suffixes.trie.nodes[i];
    const StateId from = states[node.depth];
    const StateId next = machine_.Next(from, node.byte);
    if (next == kDeadState) {
      i = node.skip;
      continue;
    }
    states[node.depth + 1u] = next;
    const bool check = unsure[node.depth] || (node.byte == ',' && machine_.UnsureComma(from));
    unsure[node.depth + 1u] = check;
    by_text_ |= check;
    if (node.token >= 0) {
      const auto [begin, end] = suffixes.groups[static_cast<size_t>(node.token)];
      for (uint32_t j = begin; j < end; ++j) {
        const uint32_t token = suffixes.tokens[j];
        if (!check || Verify(start, static_cast<int32_t>(token), text)) mask[token / 32] |= 1u << (token % 32);
      }
    }
    ++i;
  }
}

// The mask of a string that any text may end, `chars` characters at most.
void Engine::FillAnyText(StateId state, LexId lexeme, uint32_t below, uint64_t chars, const std::string& text, uint32_t* mask) {
  const LexemeMask& view = vocabulary_->AnyText(options_.spelling);
  std::copy(view.inside.begin(), view.inside.end(), mask);
  const uint32_t tag = lexer_.TagOf(lexeme);
  const StateId after = machine_.AfterString(below, {&tag, 1});
  for (const LexemeMask::Suffixes& suffixes : view.beyond) WalkSuffixes(suffixes, state, after, text, mask);
  for (uint32_t token : vocabulary_->long_tokens()) {
    if (vocabulary_->TokenBytes(token).size() <= chars) break;
    if (!Verify(state, static_cast<int32_t>(token), text)) mask[token / 32] &= ~(1u << (token % 32));
  }
}

// The mask of a string that is any text but for some: first as if it were any text, then put right where the lexer is
// left with anything else than the rest of any text.
void Engine::FillMostlyAnyText(StateId state, LexId lexeme, uint32_t below, uint32_t tag, const std::string& text, uint32_t* mask) {
  const LexemeMask& view = vocabulary_->AnyText(options_.spelling);
  std::copy(view.inside.begin(), view.inside.end(), mask);
  const StateId after = machine_.AfterString(below, {&tag, 1});
  for (const LexemeMask::Suffixes& suffixes : view.beyond) WalkSuffixes(suffixes, state, after, text, mask);
  const Trie& trie = vocabulary_->all();
  std::array<LexId, 256> lexemes;
  std::array<ExprId, 256> rests;
  lexemes[0] = lexeme;
  rests[0] = lexer_.text();
  for (uint32_t i = 0; i < trie.nodes.size();) {
    const Trie::Node& node = trie.nodes[i];
    const LexId next = lexer_.Next(lexemes[node.depth], node.byte);
    const bool closed = next != kNoLex && lexer_.IsClosed(next);
    if (next != kNoLex && !closed) {
      // Escapes stand between whole characters.
      ExprId rest = lexer_.text();
      if (!lexer_.InEscape(next) && !lexer_.InEscape(lexemes[node.depth])) rest = pool_.Derivative(rests[node.depth], node.byte);
      if (lexer_.IsOnly(next, rest, tag)) {
        i = node.skip;
        continue;
      }
      lexemes[node.depth + 1u] = next;
      rests[node.depth + 1u] = rest;
      ++i;
      continue;
    }
    const auto tags = lexer_.Complete(next);
    if (closed && tags.size() == 1 && tags[0] == tag) {
      i = node.skip;
      continue;
    }
    for (uint32_t j = closed ? i + 1 : i; j < node.skip; ++j) {
      EachToken(*vocabulary_, trie.nodes[j].token, [&](uint32_t token) { mask[token / 32] &= ~(1u << (token % 32)); });
    }
    if (closed) {
      const std::vector<uint32_t> tags_kept(tags.begin(), tags.end());
      Walk(trie, i + 1, node.skip, 0, machine_.AfterString(below, tags_kept), state, text, mask);
    }
    i = node.skip;
  }
}

// Kept where a lexeme is met again, as building it costs more than one walk. nullptr: walk.
const LexemeMask* Engine::MaskOf(LexId lexeme) {
  if (lexer_.IsAnyText(lexeme)) return &vocabulary_->AnyText(options_.spelling);
  const auto known = lexeme_masks_.find(lexeme);
  if (known != lexeme_masks_.end()) return &known->second;
  if (++lexeme_uses_[lexeme] < 2 || lexeme_masks_.size() >= kLexemeMasksMax) return nullptr;
  return &lexeme_masks_.emplace(lexeme, BuildLexemeMask(&lexer_, lexeme, *vocabulary_)).first->second;
}

bool Engine::FillInStrings(StateId state, const std::string& text, uint32_t* mask) {
  std::vector<std::pair<LexId, uint32_t>> strings;
  if (!machine_.OpenStrings(state, &strings)) return false;
  if (strings.size() == 1) {
    const auto [lexeme, below] = strings[0];
    uint32_t tag = 0;
    const uint64_t chars = lexer_.AnyTextUpTo(lexeme);
    if (chars >= VocabularyImpl::kShortBytesMax) return FillAnyText(state, lexeme, below, chars, text, mask), true;
    if (lexer_.IsMostlyAnyText(lexeme, &tag)) return FillMostlyAnyText(state, lexeme, below, tag, text, mask), true;
  }
  std::vector<const LexemeMask*> views;
  for (const auto& [lexeme, below] : strings) {
    views.push_back(MaskOf(lexeme));
    if (views.back() == nullptr) return false;
  }
  const size_t words = vocabulary_->mask_words();
  for (size_t i = 0; i < strings.size(); ++i) {
    if (i == 0) {
      std::copy(views[i]->inside.begin(), views[i]->inside.end(), mask);
    } else {
      for (size_t word = 0; word < words; ++word) mask[word] |= views[i]->inside[word];
    }
  }
  for (size_t i = 0; i < strings.size(); ++i) {
    const bool any_text = lexer_.IsAnyText(strings[i].first);
    for (const LexemeMask::Suffixes& suffixes : views[i]->beyond) {
      const uint32_t tag = any_text ? lexer_.TagOf(strings[i].first) : 0;
      const StateId after = machine_.AfterString(strings[i].second, any_text ? std::span<const uint32_t>(&tag, 1) : suffixes.tags);
      WalkSuffixes(suffixes, state, after, text, mask);
    }
  }
  return true;
}

void Engine::FillByWalk(StateId state, const std::string& text, std::span<uint32_t> mask) {
  const Lexer::Coverage coverage = machine_.PlainCoverage(state);
  const bool copy = coverage.chars >= VocabularyImpl::kPlainCharsMax || coverage.exact;
  if (copy) {
    const std::vector<uint32_t>& plain = vocabulary_->PlainMask(coverage.chars);
    std::copy(plain.begin(), plain.end(), mask.begin());
  } else {
    std::fill(mask.begin(), mask.end(), 0);
  }
  vocabulary_->AddRuns(coverage.classes, mask.data());
  const Trie& trie = copy ? vocabulary_->residual() : vocabulary_->all();
  Walk(trie, 0, static_cast<uint32_t>(trie.nodes.size()), coverage.classes, state, state, text, mask.data());
}

}  // namespace deepinfer::grammar
