// SPDX-License-Identifier: Apache-2.0
#include "grammar/trie.h"

#include <algorithm>

#include "core/utf8.h"
#include "grammar/text_class.h"

namespace deepinfer::grammar {
namespace {

constexpr uint8_t kAllTails = kPlainTail | kDigitTail | kBlankTail | kIndentTail;

struct Builder {
  std::vector<Trie::Entry> entries;  // sorted
  std::vector<std::vector<uint8_t>> tails;
  std::span<const uint8_t> classes;
  Trie* trie;

  void Fill(uint32_t id, size_t depth);
};

// tails[i]: what text[i..] is, as TailKind.
std::vector<uint8_t> TailsOf(std::string_view text) {
  std::vector<uint8_t> tails(text.size() + 1, kAllTails);
  for (size_t i = text.size(); i-- > 0;) {
    const Utf8Char c = DecodeUtf8(text.substr(i));
    uint8_t kind = 0;
    if (c.valid && TextClassesOf(c.code_point) != 0) kind |= tails[i + c.size] & kPlainTail;
    if (text[i] >= '0' && text[i] <= '9') kind |= tails[i + 1] & kDigitTail;
    if (text[i] == ' ' || text[i] == '\t') kind |= tails[i + 1] & (kIndentTail | kBlankTail);
    if (text[i] == '\n' || text[i] == '\r') kind |= tails[i + 1] & kBlankTail;
    tails[i] = kind;
  }
  return tails;
}

// The node's range of tokens is set, and it is that of `entries`; its bytes are `depth` long.
void Builder::Fill(uint32_t id, size_t depth) {
  const uint32_t first = trie->nodes[id].first, end = trie->nodes[id].end;
  Trie::Node node = trie->nodes[id];
  node.classes = kAllTextClasses;
  node.tail = kAllTails;
  node.depth = static_cast<uint8_t>(depth);
  for (uint32_t i = first; i < end; ++i) {
    const auto& [bytes, token] = entries[i];
    node.classes &= token < classes.size() ? classes[token] : 0;
    node.tail &= tails[i][depth];
    const auto chars = std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xC0) != 0x80; });
    node.longest = std::max(node.longest, static_cast<uint8_t>(chars));
  }
  uint32_t i = first;
  while (i < end && entries[i].first.size() == depth) ++i;
  node.below = i;
  node.child = static_cast<uint32_t>(trie->nodes.size());
  while (i < end) {
    Trie::Node child;
    child.byte = static_cast<uint8_t>(entries[i].first[depth]);
    child.first = i;
    while (i < end && static_cast<uint8_t>(entries[i].first[depth]) == child.byte) ++i;
    child.end = i;
    trie->nodes.push_back(child);
    ++node.children;
  }
  trie->nodes[id] = node;
  for (uint32_t k = 0; k < node.children; ++k) Fill(node.child + k, depth + 1);
}

}  // namespace

Trie Trie::Build(std::vector<Entry> entries, std::span<const uint8_t> classes) {
  std::erase_if(entries, [](const Entry& entry) { return entry.first.empty(); });
  std::sort(entries.begin(), entries.end());
  Trie trie;
  Builder builder{std::move(entries), {}, classes, &trie};
  for (const auto& [bytes, token] : builder.entries) {
    trie.tokens.push_back(token);
    trie.lengths.push_back(static_cast<uint8_t>(bytes.size()));
    builder.tails.push_back(TailsOf(bytes));
  }
  trie.nodes.emplace_back().end = static_cast<uint32_t>(trie.tokens.size());
  builder.Fill(0, 0);
  return trie;
}

}  // namespace deepinfer::grammar
