// SPDX-License-Identifier: Apache-2.0
#include "grammar/lexeme_mask.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace deepinfer::grammar {
namespace {

using Entry = std::pair<std::string_view, uint32_t>;  // bytes after the quote, token

void BuildTrie(std::vector<Entry> entries, LexemeMask::Suffixes* out) {
  std::sort(entries.begin(), entries.end());
  std::vector<uint32_t> path;
  std::string_view last;
  for (const auto& [suffix, token] : entries) {
    if (suffix != last) {
      size_t common = 0;
      while (common < suffix.size() && common < last.size() && suffix[common] == last[common]) ++common;
      for (; path.size() > common; path.pop_back()) out->trie.nodes[path.back()].skip = static_cast<uint32_t>(out->trie.nodes.size());
      for (size_t i = common; i < suffix.size(); ++i) {
        path.push_back(static_cast<uint32_t>(out->trie.nodes.size()));
        Trie::Node node;
        node.byte = static_cast<uint8_t>(suffix[i]);
        node.depth = static_cast<uint8_t>(i);
        out->trie.nodes.push_back(node);
      }
      out->trie.nodes[path.back()].token = static_cast<int32_t>(out->groups.size());
      out->groups.emplace_back(out->tokens.size(), out->tokens.size());
      last = suffix;
    }
    out->tokens.push_back(token);
    out->groups.back().second = static_cast<uint32_t>(out->tokens.size());
  }
  for (; !path.empty(); path.pop_back()) out->trie.nodes[path.back()].skip = static_cast<uint32_t>(out->trie.nodes.size());
}

}  // namespace

LexemeMask BuildLexemeMask(Lexer* lexer, LexId lexeme, const VocabularyImpl& vocabulary) {
  LexemeMask result;
  const Lexer::Coverage coverage = lexer->PlainCoverage(lexeme);
  const bool copy = coverage.chars >= VocabularyImpl::kPlainCharsMax || coverage.exact;
  if (copy) {
    result.inside = vocabulary.PlainMask(coverage.chars);
  } else {
    result.inside.assign(vocabulary.mask_words(), 0);
  }
  vocabulary.AddRuns(coverage.classes, result.inside.data());
  std::map<std::vector<uint32_t>, std::vector<Entry>> beyond;
  std::array<LexId, 256> states;
  states[0] = lexeme;
  const Trie& trie = copy ? vocabulary.residual() : vocabulary.all();
  const auto each = [&](int32_t token, auto visit) {
    for (; token >= 0; token = vocabulary.NextSame(token)) visit(static_cast<uint32_t>(token));
  };
  for (uint32_t i = 0; i < trie.nodes.size();) {
    const Trie::Node& node = trie.nodes[i];
    if ((node.classes & coverage.classes) != 0) {
      i = node.skip;
      continue;
    }
    const LexId next = lexer->Next(states[node.depth], node.byte);
    if (next == kNoLex) {
      i = node.skip;
      continue;
    }
    each(node.token, [&](uint32_t token) { result.inside[token / 32] |= 1u << (token % 32); });
    if (!lexer->IsClosed(next)) {
      states[node.depth + 1u] = next;
      ++i;
      continue;
    }
    const auto tags = lexer->Complete(next);
    std::vector<Entry>* entries = node.skip > i + 1 ? &beyond[std::vector<uint32_t>(tags.begin(), tags.end())] : nullptr;
    for (uint32_t j = i + 1; j < node.skip; ++j) {
      each(trie.nodes[j].token, [&](uint32_t token) {
        entries->emplace_back(std::string_view(vocabulary.TokenBytes(token)).substr(node.depth + 1u), token);
      });
    }
    i = node.skip;
  }
  for (auto& [tags, entries] : beyond) {
    LexemeMask::Suffixes& suffixes = result.beyond.emplace_back();
    suffixes.tags = tags;
    BuildTrie(std::move(entries), &suffixes);
  }
  return result;
}

}  // namespace deepinfer::grammar
