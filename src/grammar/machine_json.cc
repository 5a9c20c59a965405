// SPDX-License-Identifier: Apache-2.0
// Objects and arrays, byte by byte. A key, an element or a comma is entered only if the object or array can still be
// finished after it (Goals::CanFinish), which is what rules out dead ends.
#include <algorithm>

#include "core/json.h"
#include "grammar/machine.h"

namespace deepinfer::grammar {
namespace {

constexpr size_t kUniqueMax = 1000;

uint64_t Pair(uint32_t a, uint32_t b) { return uint64_t{a} << 32 | b; }

bool Seen(const ObjectState& state, uint32_t name) {
  return name / 64 < state.seen.size() && (state.seen[name / 64] >> (name % 64) & 1) != 0;
}

// The JSON value that ends the text. REQUIRES: the text ends with one.
std::string_view LastValue(std::string_view text) {
  size_t i = text.size();
  const auto skip_string = [&] {  // i is behind a closing quote; moves to its opening one
    for (--i; i > 0;) {
      --i;
      if (text[i] != '"') continue;
      size_t slashes = 0;
      while (slashes < i && text[i - 1 - slashes] == '\\') ++slashes;
      if (slashes % 2 == 0) return;
    }
  };
  if (i == 0) return text;
  const char last = text[i - 1];
  if (last == '"') {
    skip_string();
  } else if (last == '}' || last == ']') {
    int depth = 0;
    while (i > 0) {
      const char c = text[i - 1];
      if (c == '"') {
        skip_string();
        continue;
      }
      --i;
      if (c == '}' || c == ']') ++depth;
      if ((c == '{' || c == '[') && --depth == 0) break;
    }
  } else {
    while (i > 0) {
      const char c = text[i - 1];
      const bool part = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '+' || c == '-' || c == '.' || c == 'E';
      if (!part) break;
      --i;
    }
  }
  return text.substr(i);
}

}  // namespace

uint32_t Machine::InternObject(const ObjectState& state) {
  std::vector<uint32_t> key{state.position, static_cast<uint32_t>(state.count), static_cast<uint32_t>(state.count >> 32),
                            state.met, state.pending ? 1u : 0u, static_cast<uint32_t>(state.seen.size())};
  for (uint64_t word : state.seen) {
    key.push_back(static_cast<uint32_t>(word));
    key.push_back(static_cast<uint32_t>(word >> 32));
  }
  key.insert(key.end(), state.extra.begin(), state.extra.end());
  const uint32_t id = object_index_.Intern(key);
  if (id == object_states_.size()) object_states_.push_back(state);
  return id;
}

uint32_t Machine::InternArray(const ArrayState& state) {
  std::vector<uint32_t> key{static_cast<uint32_t>(state.index), static_cast<uint32_t>(state.index >> 32),
                            state.pending ? 1u : 0u, static_cast<uint32_t>(state.counts.size())};
  for (uint64_t count : state.counts) {
    key.push_back(static_cast<uint32_t>(count));
    key.push_back(static_cast<uint32_t>(count >> 32));
  }
  key.insert(key.end(), state.values.begin(), state.values.end());
  const uint32_t id = array_index_.Intern(key);
  if (id == array_states_.size()) array_states_.push_back(state);
  return id;
}

ObjectState Machine::AfterKey(const ObjectShape& shape, const ObjectState& state, uint32_t tag) {
  ObjectState next = state;
  const bool is_name = tag < shape.names.size();
  if (!shape.simple) next.count = shape.max == kNoMax ? std::min(state.count + 1, shape.min) : state.count + 1;
  if (!is_name) {
    next.pending = true;
    return next;
  }
  if (!options_.free_order) next.position = tag + 1;
  if (options_.free_order || !shape.simple) {
    next.seen.resize((shape.names.size() + 63) / 64, 0);
    next.seen[tag / 64] |= uint64_t{1} << (tag % 64);
  }
  return next;
}

std::vector<std::pair<GoalId, ObjectState>> Machine::MemberOptions(const ObjectShape& shape, const ObjectState& after,
                                                                   uint32_t tag) {
  const bool is_name = tag < shape.names.size();
  const GoalId goal = is_name ? shape.names[tag].goal : shape.others[tag - shape.names.size()].goal;
  const uint32_t open = (is_name ? shape.names[tag].obligations : shape.others[tag - shape.names.size()].obligations) & ~after.met;
  std::vector<std::pair<GoalId, ObjectState>> options;
  for (uint32_t chosen = open;; chosen = (chosen - 1) & open) {
    GoalId joined = goal;
    for (size_t i = 0; i < shape.obligations.size(); ++i) {
      if ((chosen >> i & 1) != 0) joined = goals_->Join(joined, shape.obligations[i].goal);
    }
    ObjectState next = after;
    next.met |= chosen;
    const ObjectOther* pending = next.pending && !is_name ? &shape.others[tag - shape.names.size()] : nullptr;
    if (!goals_->IsEmpty(joined) && (shape.simple || goals_->CanFinish(shape, next, pending))) options.emplace_back(joined, next);
    if (chosen == 0) return options;
  }
}

void Machine::AddNameKeys(const ObjectShape& shape, const ObjectState& state, Lexer::Alternatives* keys) {
  for (uint32_t i = state.position; i < shape.names.size(); ++i) {
    if (Seen(state, i)) continue;
    const ObjectName& name = shape.names[i];
    if (!MemberOptions(shape, AfterKey(shape, state, i), i).empty()) keys->emplace_back(name.literal, i);
    if (options_.free_order) continue;
    // Keys in order: a key that must come may not be skipped.
    bool needed = name.required;
    if (!needed && !shape.simple) {
      for (uint32_t j = 0; j < shape.names.size() && !needed; ++j) {
        if (!Seen(state, j)) continue;
        const auto& implies = shape.names[j].implies;
        needed = std::find(implies.begin(), implies.end(), i) != implies.end();
      }
    }
    if (needed) break;
  }
}

void Machine::AddOtherKeys(const ObjectShape& shape, const ObjectState& state, Lexer::Alternatives* keys) {
  if (state.extra.size() >= kExtraKeysMax) return;
  ExprId taken = ExprPool::kEmpty;
  if (!state.extra.empty()) {
    std::vector<ExprId> literals;
    for (NameId name : state.extra) literals.push_back(pool_->Literal(goals_->Name(name)));
    taken = pool_->Or(std::move(literals));
  }
  for (uint32_t i = 0; i < shape.others.size(); ++i) {
    const uint32_t tag = static_cast<uint32_t>(shape.names.size()) + i;
    if (MemberOptions(shape, AfterKey(shape, state, tag), tag).empty()) continue;
    const ExprId expr = shape.others[i].keys;
    keys->emplace_back(taken == ExprPool::kEmpty ? expr : pool_->And(expr, pool_->Not(taken)), tag);
  }
}

LexId Machine::Keys(uint32_t shape_id, uint32_t state_id) {
  const uint64_t key = Pair(shape_id, state_id);
  if (const uint32_t* known = keys_.Find(key)) return *known;
  const ObjectShape& shape = goals_->Object(shape_id);
  const ObjectState state = object_states_[state_id];
  Lexer::Alternatives keys;
  AddNameKeys(shape, state, &keys);
  AddOtherKeys(shape, state, &keys);
  const LexId lex = keys.empty() ? kNoLex : lexer_->JsonString(std::move(keys));
  if (budget_->ok()) keys_.Insert(key, lex);
  return lex;
}

bool Machine::CanClose(uint32_t shape_id, uint32_t state_id) {
  const uint64_t key = Pair(shape_id, state_id);
  if (const uint32_t* known = closable_.Find(key)) return *known != 0;
  const ObjectShape& shape = goals_->Object(shape_id);
  const ObjectState& state = object_states_[state_id];
  bool can = state.count >= shape.min;
  for (uint32_t i = 0; can && i < shape.names.size(); ++i) {
    if (Seen(state, i)) {
      for (uint32_t other : shape.names[i].implies) can = can && Seen(state, other);
    } else if (shape.names[i].required && i >= state.position) {
      can = false;
    }
  }
  const uint32_t all = shape.obligations.empty() ? 0 : (1u << shape.obligations.size()) - 1;
  can = can && (state.met & all) == all;
  closable_.Insert(key, can ? 1 : 0);
  return can;
}

void Machine::StepObject(const Item& item, uint32_t below, uint8_t byte, Builder* out) {
  if (Blank(item, below, byte, out)) return;
  switch (item.kind) {
    case kObjectFirst:
    case kObjectNext:
      if (byte == '"') {
        const LexId keys = Keys(item.a, item.b);
        if (keys == kNoLex) return;
        const uint32_t frame = InternNode(Item{kObjectKey, 0, item.a, item.b, 0}, below);
        Add(Item{kLexeme, 0, keys, 0, 0}, ListOf(frame), out);
      } else if (byte == '}' && item.kind == kObjectFirst && CanClose(item.a, item.b)) {
        Return(below, 0, out);
      }
      break;
    case kObjectColon: {
      if (byte != ':') return;
      const ObjectShape& shape = goals_->Object(item.a);
      for (auto& [goal, next] : MemberOptions(shape, object_states_[item.b], item.c)) {
        const uint32_t frame = InternNode(Item{kObjectValue, 0, item.a, InternObject(next), 0}, below);
        Add(Item{kValue, 0, goal, 0, 0}, ListOf(frame), out);
      }
      break;
    }
    default:  // kObjectAfter
      if (byte == '}' && CanClose(item.a, item.b)) {
        Return(below, 0, out);
      } else if (byte == ',' && !(item.blanks > 0 && options_.spelling == Spelling::kUsual)) {
        if (Keys(item.a, item.b) != kNoLex) Add(Item{kObjectNext, 0, item.a, item.b, 0}, below, out);
      }
      break;
  }
}

std::vector<std::pair<GoalId, uint32_t>>& Machine::ElementOptions(uint32_t shape_id, uint32_t state_id) {
  const uint64_t key = Pair(shape_id, state_id);
  const auto [it, is_new] = element_options_.try_emplace(key);
  if (!is_new) return it->second;
  const ArrayShape& shape = goals_->Array(shape_id);
  ArrayState state = array_states_[state_id];
  std::vector<std::pair<GoalId, uint32_t>> options;
  if (state.index >= shape.max || state.values.size() >= kUniqueMax) return it->second;
  state.counts.resize(shape.obligations.size(), 0);
  uint32_t open = 0;
  for (size_t i = 0; i < shape.obligations.size(); ++i) {
    const Obligation& obligation = shape.obligations[i];
    const bool matters = state.counts[i] < obligation.lo || obligation.hi != kNoMax;
    if (matters && state.index >= obligation.from) open |= 1u << i;
  }
  for (uint32_t chosen = open;; chosen = (chosen - 1) & open) {
    GoalId goal = goals_->ElementGoal(shape, state);
    ArrayState next = state;
    // The index matters up to the last place where anything changes.
    uint64_t last = std::max<uint64_t>(shape.prefix.size(), shape.min);
    for (const Obligation& obligation : shape.obligations) last = std::max(last, obligation.from);
    next.index = shape.max == kNoMax ? std::min(state.index + 1, last) : state.index + 1;
    next.pending = shape.unique && shape.max > 1;
    bool fits = true;
    for (size_t i = 0; i < shape.obligations.size(); ++i) {
      const Obligation& obligation = shape.obligations[i];
      if ((chosen >> i & 1) != 0) {
        goal = goals_->Join(goal, obligation.goal);
        fits = fits && ++next.counts[i] <= obligation.hi;
        if (obligation.hi == kNoMax) next.counts[i] = std::min(next.counts[i], obligation.lo);
      } else if ((open >> i & 1) != 0 && obligation.hi != kNoMax) {
        goal = goals_->Join(goal, obligation.denied);
      }
    }
    if (fits && !goals_->IsEmpty(goal) && goals_->CanFinish(shape, next)) options.emplace_back(goal, InternArray(next));
    if (chosen == 0) break;
  }
  return element_options_[key] = std::move(options);
}

bool Machine::ArrayCanClose(uint32_t shape_id, uint32_t state_id) {
  const ArrayShape& shape = goals_->Array(shape_id);
  const ArrayState& state = array_states_[state_id];
  if (state.index < shape.min) return false;
  for (size_t i = 0; i < shape.obligations.size(); ++i) {
    if ((i < state.counts.size() ? state.counts[i] : 0) < shape.obligations[i].lo) return false;
  }
  return true;
}

void Machine::BeginElement(uint32_t shape, uint32_t state, uint32_t below, uint8_t byte, Builder* out) {
  const std::vector<std::pair<GoalId, uint32_t>> options = ElementOptions(shape, state);
  for (const auto& [goal, next] : options) {
    const uint32_t frame = InternNode(Item{kArrayValue, 0, shape, next, 0}, below);
    StepValue(Item{kValue, options_.whitespace_max, goal, 0, 0}, ListOf(frame), byte, out);
  }
}

void Machine::StepArray(const Item& item, uint32_t below, uint8_t byte, Builder* out) {
  if (Blank(item, below, byte, out)) return;
  switch (item.kind) {
    case kArrayFirst:
      if (byte == ']') {
        if (ArrayCanClose(item.a, item.b)) Return(below, 0, out);
      } else {
        BeginElement(item.a, item.b, below, byte, out);
      }
      break;
    case kArrayNext:
      BeginElement(item.a, item.b, below, byte, out);
      break;
    default:  // kArrayAfter
      if (byte == ']' && ArrayCanClose(item.a, item.b)) {
        Return(below, 0, out);
      } else if (byte == ',' && !(item.blanks > 0 && options_.spelling == Spelling::kUsual) && !ElementOptions(item.a, item.b).empty()) {
        Add(Item{kArrayNext, 0, item.a, item.b, 0}, below, out);
      }
      break;
  }
}

Machine::Item Machine::RememberItem(const Item& item, std::string_view bytes) {
  Item result = item;
  if (item.kind == kObjectColon && object_states_[item.b].pending) {
    ObjectState state = object_states_[item.b];
    state.pending = false;
    auto key = ParseJson(LastValue(bytes));
    if (key.ok() && key->IsString()) state.extra.push_back(goals_->InternName(key->AsString()));
    std::sort(state.extra.begin(), state.extra.end());
    result.b = InternObject(state);
  }
  if (item.kind == kArrayAfter && array_states_[item.b].pending) {
    ArrayState state = array_states_[item.b];
    state.pending = false;
    auto value = ParseJson(LastValue(bytes));
    if (value.ok()) state.values.push_back(goals_->graph()->ConstNode(*value));
    std::sort(state.values.begin(), state.values.end());
    result.b = InternArray(state);
  }
  return result;
}

}  // namespace deepinfer::grammar
