// SPDX-License-Identifier: Apache-2.0
// The reference for regexes and grammars: plain productions over bytes and Earley's recogniser by the book - the sets
// are grown until nothing changes, nothing is remembered across steps. Slow and, one hopes, obviously right.
#pragma once

#include <bitset>
#include <cstdint>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

namespace deepinfer::grammar {

struct SlowSymbol {
  bool is_rule = false;
  size_t rule = 0;
  std::bitset<256> bytes;
};

struct SlowGrammar {
  using Production = std::vector<SlowSymbol>;
  std::vector<std::vector<Production>> rules;  // rule 0 is the start

  // Rules from which some finite text can be derived.
  std::vector<bool> Productive() const;
  // Drops the productions that can never be finished. False: nothing is left of the start.
  bool Prune();
};

class SlowMatcher {
 public:
  // REQUIRES: grammar->Prune() gave true. The grammar outlives the matcher.
  explicit SlowMatcher(const SlowGrammar* grammar);
  // Whether the bytes read so far begin some text of the language, with this one; if not, nothing is changed.
  bool Accept(uint8_t byte);
  bool AcceptAll(std::string_view bytes);  // all or none
  bool CanAccept(std::string_view bytes);
  bool IsComplete() const;
  void Pop(size_t bytes) { sets_.resize(sets_.size() - bytes); }
  size_t size() const { return sets_.size() - 1; }

 private:
  using Item = std::tuple<size_t, size_t, size_t, size_t>;  // rule, production, dot, where it began
  void Close(std::set<Item>* items, size_t position) const;
  const SlowSymbol* After(const Item& item) const;

  const SlowGrammar* grammar_;
  std::vector<std::set<Item>> sets_;
};

}  // namespace deepinfer::grammar
