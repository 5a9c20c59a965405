// SPDX-License-Identifier: Apache-2.0
#include "slow_matcher.h"

#include <algorithm>

namespace deepinfer::grammar {

std::vector<bool> SlowGrammar::Productive() const {
  std::vector<bool> productive(rules.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t rule = 0; rule < rules.size(); ++rule) {
      for (const Production& production : rules[rule]) {
        const bool ends = std::all_of(production.begin(), production.end(), [&](const SlowSymbol& symbol) {
          return symbol.is_rule ? productive[symbol.rule] : symbol.bytes.any();
        });
        if (ends && !productive[rule]) productive[rule] = changed = true;
      }
    }
  }
  return productive;
}

bool SlowGrammar::Prune() {
  const std::vector<bool> productive = Productive();
  for (std::vector<Production>& productions : rules) {
    std::erase_if(productions, [&](const Production& production) {
      return std::any_of(production.begin(), production.end(), [&](const SlowSymbol& symbol) {
        return symbol.is_rule ? !productive[symbol.rule] : symbol.bytes.none();
      });
    });
  }
  return productive[0];
}

SlowMatcher::SlowMatcher(const SlowGrammar* grammar) : grammar_(grammar) {
  std::set<Item> first;
  for (size_t i = 0; i < grammar_->rules[0].size(); ++i) first.emplace(0, i, 0, 0);
  Close(&first, 0);
  sets_.push_back(std::move(first));
}

const SlowSymbol* SlowMatcher::After(const Item& item) const {
  const auto& production = grammar_->rules[std::get<0>(item)][std::get<1>(item)];
  return std::get<2>(item) < production.size() ? &production[std::get<2>(item)] : nullptr;
}

void SlowMatcher::Close(std::set<Item>* items, size_t position) const {
  for (size_t before = 0; before != items->size();) {
    before = items->size();
    const std::set<Item> now = *items;
    for (const Item& item : now) {
      const SlowSymbol* next = After(item);
      if (next != nullptr && next->is_rule) {
        for (size_t i = 0; i < grammar_->rules[next->rule].size(); ++i) items->emplace(next->rule, i, 0, position);
      }
      if (next != nullptr) continue;
      const size_t began = std::get<3>(item);
      for (const Item& waiting : began == position ? now : sets_[began]) {
        const SlowSymbol* wanted = After(waiting);
        if (wanted == nullptr || !wanted->is_rule || wanted->rule != std::get<0>(item)) continue;
        items->emplace(std::get<0>(waiting), std::get<1>(waiting), std::get<2>(waiting) + 1, std::get<3>(waiting));
      }
    }
  }
}

bool SlowMatcher::Accept(uint8_t byte) {
  std::set<Item> next;
  for (const Item& item : sets_.back()) {
    const SlowSymbol* symbol = After(item);
    if (symbol == nullptr || symbol->is_rule || !symbol->bytes[byte]) continue;
    next.emplace(std::get<0>(item), std::get<1>(item), std::get<2>(item) + 1, std::get<3>(item));
  }
  if (next.empty()) return false;
  Close(&next, sets_.size());
  sets_.push_back(std::move(next));
  return true;
}

bool SlowMatcher::AcceptAll(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (Accept(static_cast<uint8_t>(bytes[i]))) continue;
    Pop(i);
    return false;
  }
  return true;
}

bool SlowMatcher::CanAccept(std::string_view bytes) {
  if (!AcceptAll(bytes)) return false;
  Pop(bytes.size());
  return true;
}

bool SlowMatcher::IsComplete() const {
  return std::any_of(sets_.back().begin(), sets_.back().end(), [&](const Item& item) {
    return std::get<0>(item) == 0 && std::get<3>(item) == 0 && After(item) == nullptr;
  });
}

}  // namespace deepinfer::grammar
