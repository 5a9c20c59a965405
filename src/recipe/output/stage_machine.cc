// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/stage_machine.h"

#include <algorithm>
#include <deque>

#include "core/check.h"

namespace deepinfer::recipe {
namespace {

std::vector<Symbol> ToSymbols(const Pattern& pattern, bool ids) {
  std::vector<Symbol> symbols;
  const std::string_view text = pattern.text;
  for (size_t i = 0; i < text.size();) {
    if (ids && !pattern.literal && text.substr(i).starts_with(kThinkEndSpelling)) {
      symbols.push_back(kThinkEndSymbol);
      i += kThinkEndSpelling.size();
    } else if (ids && !pattern.literal && text.substr(i).starts_with(kDsmlSpelling)) {
      symbols.push_back(kDsmlSymbol);
      i += kDsmlSpelling.size();
    } else {
      symbols.push_back(static_cast<unsigned char>(text[i++]));
    }
  }
  return symbols;
}

}  // namespace

PatternSet::PatternSet(const std::vector<Pattern>& patterns, bool ids) : nodes_(1) {
  std::vector<std::vector<Symbol>> texts;
  // Of each node: a pattern that passes it, and its depth; together its string.
  std::vector<std::pair<size_t, size_t>> places = {{0, 0}};
  for (size_t i = 0; i < patterns.size(); ++i) {
    const std::vector<Symbol> symbols = ToSymbols(patterns[i], ids);
    DI_CHECK(!symbols.empty());
    const uint32_t end = Insert(symbols, patterns[i].newlines);
    if (nodes_[end].match < 0) nodes_[end].match = static_cast<int32_t>(i);
    while (places.size() < nodes_.size()) places.emplace_back(i, nodes_[places.size()].depth);
    patterns_.push_back({static_cast<uint32_t>(symbols.size()), patterns[i].action, patterns[i].newlines});
    texts.push_back(symbols);
  }
  Link(texts, places);
  for (const auto& child : nodes_[0].children) starts_[child.first] = true;
  if (nodes_[0].newlines) starts_['\n'] = true;
}

uint32_t PatternSet::Insert(const std::vector<Symbol>& symbols, bool newlines) {
  uint32_t node = 0;
  if (newlines) nodes_[0].newlines = true;
  for (const Symbol symbol : symbols) {
    uint32_t next = Child(node, symbol);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_[node].children.emplace_back(symbol, next);
      Node fresh;
      fresh.depth = nodes_[node].depth + 1;
      nodes_.push_back(std::move(fresh));
    }
    node = next;
    if (newlines) nodes_[node].newlines = true;
  }
  return node;
}

uint32_t PatternSet::Child(uint32_t node, Symbol symbol) const {
  for (const auto& [key, child] : nodes_[node].children) {
    if (key == symbol) return child;
  }
  return 0;
}

// Fallbacks in order of depth, and what follows from them.
void PatternSet::Link(const std::vector<std::vector<Symbol>>& texts,
                      const std::vector<std::pair<size_t, size_t>>& places) {
  const auto dropped = [&](uint32_t node, size_t kept) {
    const auto& [text, depth] = places[node];
    const size_t size = depth - kept;
    size_t newlines = 0;
    while (newlines < size && texts[text][size - newlines - 1] == '\n') ++newlines;
    return Dropped{static_cast<uint32_t>(newlines), newlines == size};
  };
  std::deque<uint32_t> queue = {0};
  while (!queue.empty()) {
    const uint32_t parent = queue.front();
    queue.pop_front();
    for (const auto& [symbol, child] : nodes_[parent].children) {
      queue.push_back(child);
      Node& node = nodes_[child];
      for (uint32_t at = parent; at != 0 && node.fallback == 0;) {
        at = nodes_[at].fallback;
        node.fallback = Child(at, symbol);
      }
      const Node& fallback = nodes_[node.fallback];
      node.dropped = dropped(child, fallback.depth);
      node.newlines = node.newlines || (node.dropped.all && fallback.newlines);
      if (fallback.match >= 0 && (node.match < 0 || fallback.match < node.match)) node.match = fallback.match;
      if (node.match >= 0) node.match_dropped = dropped(child, patterns_[static_cast<size_t>(node.match)].size);
    }
  }
}

void StageMachine::Enter(const Stage& stage) {
  stage_ = &stage;
  set_ = ids_ ? &stage.ids : &stage.text;
  node_ = 0;
  newlines_ = 0;
}

void StageMachine::SetInput(bool ids) {
  if (ids == ids_) return;
  ids_ = ids;
  Enter(*stage_);
  const std::vector<Symbol> held = std::move(held_);
  held_.clear();
  for (const Symbol symbol : held) {
    if (symbol > 0xFF) {
      FeedControl(symbol, {});
    } else {
      const char byte = static_cast<char>(symbol);
      Feed({&byte, 1});
    }
  }
}

// What is not yet given on is held_ and text[begin..i): only ends of stages and of the input are given on piecewise.
void StageMachine::Feed(std::string_view text) {
  size_t begin = 0;
  size_t i = 0;
  while (true) {
    if (leading_) {
      i = std::min(text.find_first_not_of('\n', i), text.size());
      begin = i;
      if (i < text.size()) leading_ = false;
    }
    if (node_ == 0 && newlines_ == 0) {
      const bool* starts = set_->starts_.data();
      while (i < text.size() && !starts[static_cast<unsigned char>(text[i])]) ++i;
    }
    if (i == text.size()) break;
    if (Step(static_cast<unsigned char>(text[i++]))) {
      Complete(text, i, &begin);
    } else if (newlines_ > kHeldMax) {
      node_ = 0;
      newlines_ = 0;
    }
  }
  Release(held_.size() + (text.size() - begin) - Hold(), text, &begin);
  for (; begin < text.size(); ++begin) held_.push_back(static_cast<unsigned char>(text[begin]));
}

void StageMachine::FeedControl(Symbol symbol, std::string_view spelling) {
  leading_ = false;
  size_t begin = 0;
  if (symbol == kOpaqueSymbol) {
    Flush();
    OnText(spelling);
    return;
  }
  held_.push_back(symbol);
  if (Step(symbol)) {
    Complete({}, 0, &begin);
  } else {
    Release(held_.size() - Hold(), {}, &begin);
  }
}

void StageMachine::Flush() {
  size_t begin = 0;
  node_ = 0;
  newlines_ = 0;
  Release(held_.size(), {}, &begin);
}

bool StageMachine::Step(Symbol symbol) {
  while (true) {
    if (const uint32_t child = set_->Child(node_, symbol); child != 0) {
      node_ = child;
      break;
    }
    const PatternSet::Node& node = set_->nodes_[node_];
    if (node_ == 0) {
      newlines_ = node.newlines && symbol == '\n' ? newlines_ + 1 : 0;
      break;
    }
    newlines_ = node.dropped.Before(newlines_);
    node_ = node.fallback;
  }
  return set_->nodes_[node_].match >= 0;
}

// Symbols that may still be the beginning of a match.
size_t StageMachine::Hold() const {
  const PatternSet::Node& node = set_->nodes_[node_];
  return node.depth + (node.newlines ? newlines_ : 0);
}

// The pattern that ends with text[end - 1], or with the last symbol held.
void StageMachine::Complete(std::string_view text, size_t end, size_t* begin) {
  const PatternSet::Node& node = set_->nodes_[node_];
  const PatternSet::Compiled& pattern = set_->patterns_[static_cast<size_t>(node.match)];
  const size_t length = pattern.size + (pattern.newlines ? node.match_dropped.Before(newlines_) : 0);
  Release(held_.size() + (end - *begin) - length, text.substr(0, end), begin);
  std::string_view matched = text.substr(*begin, end - *begin);
  std::string joined = std::move(scratch_);
  if (!held_.empty()) {
    joined.clear();
    for (const Symbol symbol : held_) AppendSpelling(symbol, &joined);
    joined += matched;
    matched = joined;
    held_.clear();
  }
  *begin = end;
  node_ = 0;
  newlines_ = 0;
  if (!OnMatch(pattern.action, matched)) OnText(matched);
  scratch_ = std::move(joined);
}

// Gives the first `count` symbols of held_ and text[*begin..] to the default action.
void StageMachine::Release(size_t count, std::string_view text, size_t* begin) {
  const size_t from_held = std::min(count, held_.size());
  if (from_held > 0) {
    std::string released = std::move(scratch_);
    released.clear();
    for (size_t i = 0; i < from_held; ++i) AppendSpelling(held_[i], &released);
    held_.erase(held_.begin(), held_.begin() + static_cast<ptrdiff_t>(from_held));
    OnText(released);
    scratch_ = std::move(released);
  }
  if (count > from_held) OnText(text.substr(*begin, count - from_held));
  *begin += count - from_held;
}

void StageMachine::AppendSpelling(Symbol symbol, std::string* out) {
  if (symbol == kThinkEndSymbol) {
    *out += kThinkEndSpelling;
  } else if (symbol == kDsmlSymbol) {
    *out += kDsmlSpelling;
  } else {
    *out += static_cast<char>(symbol);
  }
}

}  // namespace deepinfer::recipe
