// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace deepinfer {
namespace {

std::vector<const AddedToken*> Select(std::span<const AddedToken> tokens, bool normalized) {
  std::vector<const AddedToken*> chosen;
  for (const AddedToken& token : tokens) {
    if (token.normalized == normalized) chosen.push_back(&token);
  }
  return chosen;
}

// Calls `plain` and `token` for the parts of `text`.
template <typename Plain, typename Token>
Status ScanOne(const TokenTrie& trie, std::string_view text, Plain plain, Token token) {
  size_t position = 0;
  while (position < text.size()) {
    const TokenTrie::Match match = trie.Find(text, position);
    const bool found = match.begin != match.end;
    const size_t end = found ? match.begin : text.size();
    if (end > position) DI_RETURN_IF_ERROR(plain(text.substr(position, end - position)));
    if (found) token(match.id);
    position = found ? match.end : text.size();
  }
  return Status();
}

}  // namespace

TokenTrie::TokenTrie(std::vector<const AddedToken*> tokens) {
  std::ranges::sort(tokens, {}, &AddedToken::content);
  for (const AddedToken* token : tokens) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(token->content[i]); };
    first_bytes_[byte(0)] = 1;
    for (size_t i = 1; i < token->content.size(); ++i) inside_.set(byte(i - 1) << 8 | byte(i));
  }
  nodes_.emplace_back();
  Build(0, tokens, 0);
}

// `tokens`: sorted, all with the same first `depth` bytes, which lead to `node`.
void TokenTrie::Build(uint32_t node, std::span<const AddedToken* const> tokens, size_t depth) {
  // A common tail is walked here and not by recursion: depth of recursion is the number of branchings.
  while (!tokens.empty()) {
    if (tokens.front()->content.size() == depth) {
      nodes_[node].id = tokens.front()->id;
      tokens = tokens.subspan(1);
    }
    struct Child {
      uint8_t byte;
      std::span<const AddedToken* const> tokens;
    };
    std::vector<Child> children;
    while (!tokens.empty()) {
      const auto byte = static_cast<uint8_t>(tokens.front()->content[depth]);
      const size_t count = std::ranges::find_if(tokens, [&](const AddedToken* token) {
                             return static_cast<uint8_t>(token->content[depth]) != byte;
                           }) - tokens.begin();
      children.push_back({byte, tokens.first(count)});
      tokens = tokens.subspan(count);
    }
    nodes_[node].first_edge = static_cast<uint32_t>(edges_.size());
    nodes_[node].num_edges = static_cast<uint32_t>(children.size());
    for (const Child& child : children) {
      edges_.push_back({child.byte, static_cast<uint32_t>(nodes_.size())});
      nodes_.emplace_back();
    }
    if (children.size() == 1) {
      node = edges_.back().node;
      tokens = children[0].tokens;
      ++depth;
      continue;
    }
    const uint32_t first = nodes_[node].first_edge;
    for (size_t i = 0; i < children.size(); ++i) Build(edges_[first + i].node, children[i].tokens, depth + 1);
  }
}

TokenTrie::Match TokenTrie::LongestAt(std::string_view text, size_t begin) const {
  Match best{begin, begin, -1};
  uint32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const Edge* edge = edges_.data() + nodes_[node].first_edge;
    const Edge* const end = edge + nodes_[node].num_edges;
    const auto byte = static_cast<uint8_t>(text[i]);
    while (edge != end && edge->byte != byte) ++edge;
    if (edge == end) break;
    node = edge->node;
    if (nodes_[node].id >= 0) best = {begin, i + 1, nodes_[node].id};
  }
  return best;
}

TokenTrie::Match TokenTrie::Find(std::string_view text, size_t from) const {
  const auto may_begin = [&](size_t i) { return first_bytes_[static_cast<uint8_t>(text[i])]; };
  for (size_t i = from; i < text.size(); ++i) {
    // Most text has no such byte for long: eight at a time, without branches between them.
    while (i + 8 < text.size() && (may_begin(i) | may_begin(i + 1) | may_begin(i + 2) | may_begin(i + 3) |
                                    may_begin(i + 4) | may_begin(i + 5) | may_begin(i + 6) | may_begin(i + 7)) == 0) {
      i += 8;
    }
    if (may_begin(i) == 0) continue;
    const Match match = LongestAt(text, i);
    if (match.begin != match.end) return match;
  }
  return {};
}

AddedTokenMatcher::AddedTokenMatcher(std::span<const AddedToken> tokens)
    : raw_(Select(tokens, false)), normalized_(Select(tokens, true)) {}

Status AddedTokenMatcher::Scan(std::string_view text, const std::function<Status(std::string_view)>& plain,
                               const std::function<void(TokenId)>& token) const {
  return ScanOne(
      raw_, text, [&](std::string_view piece) { return ScanOne(normalized_, piece, plain, token); }, token);
}

}  // namespace deepinfer
