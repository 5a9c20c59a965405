// SPDX-License-Identifier: Apache-2.0
// Derivatives, after Brzozowski (1964) with the similarity rules of Owens, Reppy and Turon (2009): or and and are
// flattened, sorted and free of duplicates, so that an expression has finitely many derivatives and equal states
// usually have equal ids. Emptiness of and, not and multiple is found by walking derivatives; of all else by shape.
#include "grammar/expr.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/utf8.h"

namespace deepinfer::grammar {
namespace {

constexpr uint32_t kSearchLimit = 100'000;  // states visited by one emptiness search

uint64_t PowerOfTen(uint32_t n) {
  uint64_t power = 1;
  while (n-- > 0) power *= 10;
  return power;
}

}  // namespace

ExprPool::ExprPool(Budget* budget) : budget_(budget) {
  nodes_.push_back({.kind = Kind::kEmpty, .dead = 1, .finite = true});
  nodes_.push_back({.kind = Kind::kEpsilon, .nullable = true, .plain = true, .dead = 2, .finite = true});
  nodes_.push_back({.kind = Kind::kNot, .nullable = true, .dead = 2, .a = kEmpty});
  set_nodes_.assign(1, kEmpty);
  key_to_node_.assign(1, 0);  // list 0 is the empty list and no node's key
}

ExprId ExprPool::Make(const Node& node) {
  const uint32_t key[] = {static_cast<uint32_t>(node.kind),
                          node.a,
                          node.b,
                          static_cast<uint32_t>(node.min),
                          static_cast<uint32_t>(node.min >> 32),
                          static_cast<uint32_t>(node.max),
                          static_cast<uint32_t>(node.max >> 32)};
  const uint32_t id = node_keys_.Intern(key);
  if (id < key_to_node_.size()) return key_to_node_[id];
  budget_->Spend();
  key_to_node_.push_back(static_cast<uint32_t>(nodes_.size()));
  nodes_.push_back(node);
  nodes_.back().finite = FiniteByShape(node);
  return key_to_node_[id];
}

size_t ExprPool::bytes() const {
  return nodes_.capacity() * sizeof(Node) + sets_.capacity() * sizeof(ByteSet) + lists_.bytes() + node_keys_.bytes() +
         key_to_node_.capacity() * 4 + derivatives_.bytes() + partition_index_.bytes() +
         partitions_.size() * (sizeof(Partition) + 16);
}

ExprId ExprPool::Bytes(const ByteSet& set) {
  if (set.none()) return kEmpty;
  uint32_t words[8];
  static_assert(sizeof(words) == sizeof(set));
  std::memcpy(words, &set, sizeof(words));
  const uint32_t id = set_index_.Intern(words);
  if (id < set_nodes_.size()) return set_nodes_[id];
  sets_.push_back(set);
  set_nodes_.push_back(Make({.kind = Kind::kBytes, .plain = true, .dead = 2, .a = static_cast<uint32_t>(sets_.size() - 1)}));
  return set_nodes_[id];
}

ExprId ExprPool::Byte(uint8_t byte) {
  ByteSet set;
  set.set(byte);
  return Bytes(set);
}

ExprId ExprPool::Literal(std::string_view text) {
  ExprId result = kEpsilon;
  for (size_t i = text.size(); i-- > 0;) result = Concat(Byte(static_cast<uint8_t>(text[i])), result);
  return result;
}

ExprId ExprPool::Concat(std::initializer_list<ExprId> list) {
  ExprId result = kEpsilon;
  for (auto it = std::rbegin(list); it != std::rend(list); ++it) result = Concat(*it, result);
  return result;
}

ExprId ExprPool::Concat(ExprId a, ExprId b) {
  if (a == kEmpty || b == kEmpty) return kEmpty;
  if (a == kEpsilon) return b;
  if (b == kEpsilon) return a;
  std::vector<ExprId> heads;
  while (nodes_[a].kind == Kind::kConcat) {
    heads.push_back(nodes_[a].a);
    a = nodes_[a].b;
  }
  heads.push_back(a);
  for (size_t i = heads.size(); i-- > 0;) {
    const Node &x = nodes_[heads[i]], &y = nodes_[b];
    b = Make({.kind = Kind::kConcat, .nullable = x.nullable && y.nullable, .plain = x.plain && y.plain,
              .dead = static_cast<uint8_t>(x.plain && y.plain ? 2 : 0), .a = heads[i], .b = b});
  }
  return b;
}

void ExprPool::Flatten(ExprId a, Kind kind, std::vector<ExprId>* out) const {
  if (nodes_[a].kind == kind) {
    const auto list = lists_[nodes_[a].a];
    out->insert(out->end(), list.begin(), list.end());
  } else {
    out->push_back(a);
  }
}

ExprId ExprPool::Or(std::vector<ExprId> list) {
  std::vector<ExprId> flat;
  for (ExprId a : list) Flatten(a, Kind::kOr, &flat);
  std::vector<ExprId> parts;
  ByteSet bytes;
  for (ExprId a : flat) {
    if (a == kEmpty) continue;
    if (a == kAll) return kAll;
    if (nodes_[a].kind == Kind::kBytes) {
      bytes |= sets_[nodes_[a].a];
    } else {
      parts.push_back(a);
    }
  }
  if (bytes.any()) parts.push_back(Bytes(bytes));
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (parts.size() > 1 && parts[0] == kEpsilon) {
    for (size_t i = 1; i < parts.size(); ++i) {
      if (!nodes_[parts[i]].nullable) continue;
      parts.erase(parts.begin());
      break;
    }
  }
  if (parts.size() > 1) MergeCounts(&parts);
  if (parts.empty()) return kEmpty;
  if (parts.size() == 1) return parts[0];
  budget_->Spend(parts.size() / 8);
  bool nullable = false, plain = true;
  for (ExprId a : parts) {
    nullable |= nodes_[a].nullable;
    plain &= nodes_[a].plain;
  }
  return Make({.kind = Kind::kOr, .nullable = nullable, .plain = plain, .dead = static_cast<uint8_t>(plain || nullable ? 2 : 0),
               .a = lists_.Intern(parts)});
}

bool ExprPool::FindCount(ExprId part, Counted* out) const {
  *out = {.part = part};
  for (size_t depth = 0; depth <= out->heads.size(); ++depth) {
    const bool more = nodes_[part].kind == Kind::kConcat;
    const ExprId head = more ? nodes_[part].a : part;
    const Node& node = nodes_[head];
    if (node.kind == Kind::kRepeat && (node.min != 0 || node.max != kNoMax)) {
      out->inner = node.a;
      out->rest = more ? nodes_[part].b : kEpsilon;
      out->min = node.min;
      out->max = node.max;
      return true;
    }
    if (!more || depth == out->heads.size()) return false;
    out->heads[depth] = head;
    part = nodes_[part].b;
  }
  return false;
}

// `x a{0,8} y | x a{0,9} y` is `x a{0,9} y`. Without it a count of which it is open where each turn ends, as in
// (\w+\W*){1,99}, would keep every number of turns that there can have been.
void ExprPool::MergeCounts(std::vector<ExprId>* parts) {
  counted_.clear();
  Counted found;
  for (const ExprId part : *parts) {
    if (FindCount(part, &found)) counted_.push_back(found);
  }
  if (counted_.size() < 2) return;
  budget_->Spend(counted_.size() / 8);
  std::sort(counted_.begin(), counted_.end());
  std::vector<ExprId> merged;
  for (size_t i = 0; i < counted_.size();) {
    const Counted& first = counted_[i];
    uint64_t max = first.max;
    size_t end = i + 1;
    for (; end < counted_.size() && counted_[end].SameBut(first) && (max == kNoMax || counted_[end].min <= max + 1); ++end) {
      max = std::max(max, counted_[end].max);
    }
    if (end > i + 1) {
      for (size_t k = i; k < end; ++k) std::erase(*parts, counted_[k].part);
      ExprId whole = Concat(Repeat(first.inner, first.min, max), first.rest);
      for (size_t k = first.heads.size(); k-- > 0;) whole = Concat(first.heads[k], whole);
      merged.push_back(whole);
    }
    i = end;
  }
  parts->insert(parts->end(), merged.begin(), merged.end());
  std::sort(parts->begin(), parts->end());
  parts->erase(std::unique(parts->begin(), parts->end()), parts->end());
}

ExprId ExprPool::And(std::vector<ExprId> list) {
  std::vector<ExprId> flat;
  for (ExprId a : list) Flatten(a, Kind::kAnd, &flat);
  std::vector<ExprId> parts;
  ByteSet bytes;
  bytes.set();
  bool has_bytes = false, all_nullable = true, has_epsilon = false;
  for (ExprId a : flat) {
    if (a == kEmpty) return kEmpty;
    if (a == kAll) continue;
    all_nullable &= nodes_[a].nullable;
    has_epsilon |= a == kEpsilon;
    if (nodes_[a].kind == Kind::kBytes) {
      bytes &= sets_[nodes_[a].a];
      has_bytes = true;
    } else {
      parts.push_back(a);
    }
  }
  if (has_epsilon) return all_nullable ? kEpsilon : kEmpty;
  if (has_bytes) {
    if (bytes.none()) return kEmpty;
    parts.push_back(Bytes(bytes));
  }
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (parts.empty()) return kAll;
  if (parts.size() == 1) return parts[0];
  for (ExprId a : parts) {
    if (nodes_[a].kind == Kind::kNot && std::binary_search(parts.begin(), parts.end(), nodes_[a].a)) return kEmpty;
  }
  return Make({.kind = Kind::kAnd, .nullable = all_nullable, .dead = static_cast<uint8_t>(all_nullable ? 2 : 0),
               .a = lists_.Intern(parts)});
}

ExprId ExprPool::Not(ExprId a) {
  if (a == kEmpty) return kAll;
  const Node& node = nodes_[a];
  if (node.kind == Kind::kNot) return node.a;
  return Make({.kind = Kind::kNot, .nullable = !node.nullable, .dead = static_cast<uint8_t>(node.nullable ? 0 : 2), .a = a});
}

ExprId ExprPool::Repeat(ExprId a, uint64_t min, uint64_t max) {
  if (max < min) return kEmpty;
  if (max == 0 || a == kEpsilon) return kEpsilon;
  if (a == kEmpty) return min == 0 ? kEpsilon : kEmpty;
  if (min == 1 && max == 1) return a;
  const Node node = nodes_[a];
  if (node.nullable) min = 0;
  if (node.kind == Kind::kRepeat && node.min == 0 && node.max == kNoMax) return a;
  const bool alive = node.plain || min == 0;
  return Make({.kind = Kind::kRepeat, .nullable = min == 0, .plain = node.plain, .dead = static_cast<uint8_t>(alive ? 2 : 0), .a = a,
               .min = min, .max = max});
}

bool ExprPool::IsRepeat(ExprId a, ExprId* inner, uint64_t* min, uint64_t* max) const {
  const Node& node = nodes_[a];
  if (node.kind != Kind::kRepeat) return false;
  *inner = node.a;
  *min = node.min;
  *max = node.max;
  return true;
}

ExprId ExprPool::Mod(uint64_t modulus, uint32_t scale, uint64_t remainder, uint32_t phase) {
  const bool in_fraction = phase >= kModPoint;
  const uint32_t digits = in_fraction ? phase - kModPoint : 0;
  uint64_t at_end = remainder;
  if (phase != kModStart && !(in_fraction && digits == 0)) {
    for (uint32_t i = digits; i < scale; ++i) {
      at_end = static_cast<uint64_t>(static_cast<unsigned __int128>(at_end) * 10 % modulus);
    }
  }
  const bool nullable = phase != kModStart && phase != kModPoint && at_end == 0;
  uint8_t dead = nullable || !in_fraction ? 2 : 0;
  if (in_fraction && !nullable) {
    // Reachable iff some d < 10^left makes remainder * 10^left + d a multiple of the modulus.
    const uint32_t left = digits < scale ? scale - digits : 0;
    const uint64_t power = PowerOfTen(left);
    const uint64_t shifted = static_cast<uint64_t>(static_cast<unsigned __int128>(remainder) * power % modulus);
    const uint64_t need = (modulus - shifted) % modulus;
    dead = need < power ? 2 : 1;
    if (dead == 1) return kEmpty;
  }
  const uint64_t packed = (uint64_t{scale} << 32) | phase;
  return Make({.kind = Kind::kMod, .nullable = nullable, .dead = dead, .a = static_cast<uint32_t>(remainder),
               .b = static_cast<uint32_t>(remainder >> 32), .min = modulus, .max = packed});
}

ExprId ExprPool::ModDerivative(const Node& node, uint8_t byte) {
  const uint64_t remainder = node.a | (uint64_t{node.b} << 32);
  const uint64_t modulus = node.min;
  const uint32_t scale = static_cast<uint32_t>(node.max >> 32);
  const uint32_t phase = static_cast<uint32_t>(node.max);
  if (byte == '.') {
    return phase == kModInteger ? Mod(modulus, scale, remainder, kModPoint) : kEmpty;
  }
  if (byte < '0' || byte > '9') return kEmpty;
  const uint32_t digit = byte - '0';
  if (phase >= kModPoint && phase - kModPoint >= scale) {
    // Digits beyond the scale must be zeros, and what stands before must fit already.
    if (digit != 0 || remainder != 0) return kEmpty;
    return Mod(modulus, scale, 0, kModPoint + scale + 1);
  }
  const uint64_t next = static_cast<uint64_t>((static_cast<unsigned __int128>(remainder) * 10 + digit) % modulus);
  return Mod(modulus, scale, next, phase == kModStart ? kModInteger : phase >= kModPoint ? phase + 1 : phase);
}

ExprId ExprPool::Derivative(ExprId a, uint8_t byte) {
  const Node& node = nodes_[a];
  switch (node.kind) {
    case Kind::kEmpty:
    case Kind::kEpsilon:
      return kEmpty;
    case Kind::kBytes:
      return sets_[node.a][byte] ? kEpsilon : kEmpty;
    case Kind::kConcat:
      // The common case of a literal, without a look-up.
      if (nodes_[node.a].kind == Kind::kBytes) return sets_[nodes_[node.a].a][byte] ? node.b : kEmpty;
      break;
    default:
      break;
  }
  if (a == kAll) return kAll;
  const uint64_t key = (uint64_t{a} << 8) | byte;
  if (const uint32_t* known = derivatives_.Find(key)) return *known;
  const ExprId result = ComputeDerivative(a, byte);
  derivatives_.Insert(key, result);
  return result;
}

ExprId ExprPool::ManyDerivative(const Node& node, uint8_t byte) {
  const auto span = lists_[node.a];
  const std::vector<ExprId> list(span.begin(), span.end());
  std::vector<ExprId> parts;
  budget_->Spend(list.size() / 8);
  for (ExprId child : list) {
    const ExprId next = Derivative(child, byte);
    if (next == kEmpty) {
      if (node.kind == Kind::kAnd) return kEmpty;
      continue;
    }
    parts.push_back(next);
  }
  return node.kind == Kind::kAnd ? And(std::move(parts)) : Or(std::move(parts));
}

ExprId ExprPool::ComputeDerivative(ExprId a, uint8_t byte) {
  if (!budget_->Spend()) return kEmpty;
  const Node node = nodes_[a];
  switch (node.kind) {
    case Kind::kConcat: {
      const ExprId first = Concat(Derivative(node.a, byte), node.b);
      return nodes_[node.a].nullable ? Or(first, Derivative(node.b, byte)) : first;
    }
    case Kind::kOr:
    case Kind::kAnd:
      return ManyDerivative(node, byte);
    case Kind::kNot:
      return Not(Derivative(node.a, byte));
    case Kind::kRepeat: {
      const ExprId first = Derivative(node.a, byte);
      if (first == kEmpty) return kEmpty;
      const uint64_t max = node.max == kNoMax ? kNoMax : node.max - 1;
      return Concat(first, Repeat(node.a, node.min == 0 ? 0 : node.min - 1, max));
    }
    case Kind::kMod:
      return ModDerivative(node, byte);
    default:
      return kEmpty;
  }
}

void ExprPool::CollectSets(ExprId a, std::vector<uint32_t>* sets, bool* digits, int depth) {
  const Node node = nodes_[a];
  if (depth > 200) {  // deeper than any sane expression: every byte is its own class
    for (int i = 0; i < 256; ++i) sets->push_back(nodes_[Byte(static_cast<uint8_t>(i))].a);
    return;
  }
  switch (node.kind) {
    case Kind::kBytes:
      sets->push_back(node.a);
      break;
    case Kind::kConcat:
      CollectSets(node.a, sets, digits, depth + 1);
      if (nodes_[node.a].nullable) CollectSets(node.b, sets, digits, depth + 1);
      break;
    case Kind::kOr:
    case Kind::kAnd: {
      const auto list = lists_[node.a];
      budget_->Spend(list.size() / 8);
      for (size_t i = 0; i < list.size(); ++i) CollectSets(lists_[node.a][i], sets, digits, depth + 1);
      break;
    }
    case Kind::kNot:
    case Kind::kRepeat:
      CollectSets(node.a, sets, digits, depth + 1);
      break;
    case Kind::kMod:
      *digits = true;
      break;
    default:
      break;
  }
}

const ExprPool::Partition& ExprPool::PartitionOf(std::span<const ExprId> expressions) {
  std::vector<uint32_t> sets;
  bool digits = false;
  for (ExprId a : expressions) CollectSets(a, &sets, &digits, 0);
  std::sort(sets.begin(), sets.end());
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  sets.push_back(digits ? 1 : 0);
  const uint32_t list = partition_index_.Intern(sets);
  if (list < partitions_.size()) return partitions_[list];
  sets.pop_back();
  std::vector<ByteSet> classes(1);
  classes[0].set();
  const auto split = [&](const ByteSet& set) {
    for (size_t i = classes.size(); i-- > 0;) {
      const ByteSet inside = classes[i] & set;
      if (inside.none() || inside == classes[i]) continue;
      classes[i] &= ~inside;
      classes.push_back(inside);
    }
  };
  for (uint32_t set : sets) split(sets_[set]);
  for (char c : std::string_view(digits ? "0123456789." : "")) split(ByteSet().set(static_cast<uint8_t>(c)));
  budget_->Spend(classes.size() / 8);
  partitions_.resize(list + 1);
  Partition& result = partitions_[list];
  // Numbered by their first bytes.
  std::vector<std::pair<size_t, size_t>> order;
  for (size_t i = 0; i < classes.size(); ++i) order.emplace_back(classes[i]._Find_first(), i);
  std::sort(order.begin(), order.end());
  for (const auto& [first, index] : order) {
    const uint8_t number = static_cast<uint8_t>(result.representatives.size());
    for (size_t byte = first; byte < 256; byte = classes[index]._Find_next(byte)) result.class_of[byte] = number;
    result.representatives.push_back(static_cast<uint8_t>(first));
  }
  return result;
}

const ByteSet& ExprPool::FirstBytes(ExprId a) {
  if (nodes_[a].kind == Kind::kBytes) return sets_[nodes_[a].a];
  if (const uint32_t* known = first_index_.Find(a)) return first_sets_[*known];
  const Node node = nodes_[a];
  ByteSet result;
  switch (node.kind) {
    case Kind::kConcat:
      result = FirstBytes(node.a);
      if (nodes_[node.a].nullable) result |= FirstBytes(node.b);
      break;
    case Kind::kOr:
      for (size_t i = 0; i < lists_[node.a].size(); ++i) result |= FirstBytes(lists_[node.a][i]);
      break;
    case Kind::kAnd:
      result.set();
      for (size_t i = 0; i < lists_[node.a].size(); ++i) result &= FirstBytes(lists_[node.a][i]);
      break;
    case Kind::kRepeat:
      result = FirstBytes(node.a);
      break;
    case Kind::kMod:
      for (char c : std::string_view("0123456789.")) result.set(static_cast<uint8_t>(c));
      break;
    case Kind::kNot:
      result.set();
      break;
    default:
      break;
  }
  first_index_.Insert(a, static_cast<uint32_t>(first_sets_.size()));
  return first_sets_.emplace_back(result);
}

bool ExprPool::FiniteByShape(const Node& node) const {
  switch (node.kind) {
    case Kind::kEmpty:
    case Kind::kEpsilon:
    case Kind::kBytes:
      return true;
    case Kind::kConcat:
      return nodes_[node.a].finite && nodes_[node.b].finite;
    case Kind::kOr: {
      const auto list = lists_[node.a];
      return std::all_of(list.begin(), list.end(), [&](ExprId child) { return nodes_[child].finite; });
    }
    case Kind::kRepeat:
      return node.max != kNoMax && nodes_[node.a].finite;
    default:
      return false;
  }
}

bool ExprPool::FirstCharacter(ExprId a, uint32_t* code_point) const {
  std::string bytes;
  while (bytes.size() < 4) {
    const bool last = nodes_[a].kind == Kind::kBytes;
    if (!last && nodes_[a].kind != Kind::kConcat) break;
    const Node& head = last ? nodes_[a] : nodes_[nodes_[a].a];
    if (head.kind != Kind::kBytes || sets_[head.a].count() != 1) break;
    bytes.push_back(static_cast<char>(sets_[head.a]._Find_first()));
    if (last) break;
    a = nodes_[a].b;
  }
  if (bytes.empty()) return false;
  const Utf8Char c = DecodeUtf8(bytes);
  *code_point = c.code_point;
  return c.valid;
}

bool ExprPool::IsButForFinitely(ExprId a, ExprId whole) const {
  if (a == whole) return true;
  if (nodes_[a].kind != Kind::kAnd) return false;
  const auto list = lists_[nodes_[a].a];
  return std::all_of(list.begin(), list.end(), [&](ExprId child) {
    return child == whole || (nodes_[child].kind == Kind::kNot && IsFinite(nodes_[child].a));
  }) && std::find(list.begin(), list.end(), whole) != list.end();
}

bool ExprPool::IsEndless(ExprId a, ExprId text, ExprId character) {
  const Node node = nodes_[a];
  if (a == text || a == kAll) return true;
  if (node.kind == Kind::kRepeat) return node.a == character && node.max == kNoMax;
  if (node.kind == Kind::kConcat) return (node.a == text || node.a == kAll) && !IsEmpty(a);
  if (node.kind != Kind::kOr && node.kind != Kind::kAnd) return false;
  const auto span = lists_[node.a];
  const std::vector<ExprId> list(span.begin(), span.end());
  if (node.kind == Kind::kOr) return std::any_of(list.begin(), list.end(), [&](ExprId child) { return IsEndless(child, text, character); });
  // What finitely many words are taken from goes on without end.
  size_t others = 0;
  for (ExprId child : list) {
    if (nodes_[child].kind == Kind::kNot && nodes_[nodes_[child].a].finite) continue;
    if (++others > 1 || !IsEndless(child, text, character)) return false;
  }
  return true;
}

ExprId ExprPool::WithoutFiniteExclusions(ExprId a) {
  if (nodes_[a].kind == Kind::kNot && IsFinite(nodes_[a].a)) return kAll;
  if (nodes_[a].kind != Kind::kAnd) return a;
  const auto span = lists_[nodes_[a].a];
  std::vector<ExprId> kept(span.begin(), span.end());
  std::erase_if(kept, [&](ExprId child) { return nodes_[child].kind == Kind::kNot && IsFinite(nodes_[child].a); });
  return And(std::move(kept));
}

bool ExprPool::IsEmpty(ExprId a) {
  const Node node = nodes_[a];
  if (node.dead != 0) return node.dead == 1;
  bool empty;
  if (node.nullable) {
    empty = false;
  } else if (node.kind == Kind::kConcat) {
    empty = IsEmpty(node.a) || IsEmpty(node.b);
  } else if (node.kind == Kind::kRepeat) {
    empty = IsEmpty(node.a);  // min > 0, else it would be nullable
  } else if (node.kind == Kind::kOr) {
    empty = true;
    for (size_t i = 0; empty && i < lists_[node.a].size(); ++i) empty = IsEmpty(lists_[node.a][i]);
  } else {
    empty = SearchEmpty(a);
  }
  if (budget_->ok()) nodes_[a].dead = empty ? 1 : 2;
  return empty;
}

bool ExprPool::SearchEmpty(ExprId a) {
  // Depth first: long counted repeats end far away, and a stack goes straight there.
  std::vector<ExprId> stack{a};
  std::unordered_map<ExprId, ExprId> from{{a, a}};
  while (!stack.empty()) {
    if (!budget_->Spend()) return true;
    const ExprId state = stack.back();
    stack.pop_back();
    for (uint8_t byte : Representatives(state)) {
      const ExprId next = Derivative(state, byte);
      if (next == kEmpty || nodes_[next].dead == 1 || from.count(next) != 0) continue;
      from[next] = state;
      if (nodes_[next].nullable || nodes_[next].dead == 2) {
        for (ExprId s = next; s != a; s = from[s]) nodes_[s].dead = 2;
        return false;
      }
      stack.push_back(next);
    }
    if (from.size() > kSearchLimit) {
      budget_->Fail(Error(Code::kResourceExhausted, "grammar: too complex (a pattern's automaton is over {} states)",
                          kSearchLimit));
      return true;
    }
  }
  if (budget_->ok()) {
    for (const auto& [state, parent] : from) nodes_[state].dead = 1;
  }
  return true;
}

bool ExprPool::Matches(ExprId a, std::string_view text) {
  for (char c : text) {
    a = Derivative(a, static_cast<uint8_t>(c));
    if (a == kEmpty) return false;
  }
  return nodes_[a].nullable;
}

uint64_t ExprPool::Count(ExprId a, uint64_t cap) {
  std::unordered_map<ExprId, uint64_t> known;
  return CountFrom(a, cap, 0, &known);
}

uint64_t ExprPool::CountFrom(ExprId a, uint64_t cap, int depth, std::unordered_map<ExprId, uint64_t>* known) {
  constexpr uint64_t kRunning = UINT64_MAX;
  constexpr int kDepthMax = 2000;
  if (IsEmpty(a)) return 0;
  const auto [it, is_new] = known->try_emplace(a, kRunning);
  // A living state that leads to itself has words without end.
  if (!is_new) return it->second == kRunning ? cap : it->second;
  uint64_t count = nodes_[a].nullable ? 1 : 0;
  if (!budget_->Spend() || depth > kDepthMax || known->size() > kSearchLimit) {
    count = std::min<uint64_t>(cap, 1);
  } else {
    const Partition& partition = PartitionOf({&a, 1});
    std::array<uint64_t, 256> sizes{};
    for (uint8_t number : partition.class_of) ++sizes[number];
    for (size_t i = 0; i < partition.representatives.size() && count < cap; ++i) {
      const uint64_t below = CountFrom(Derivative(a, partition.representatives[i]), cap, depth + 1, known);
      count += std::min(cap, below * sizes[i]);
    }
  }
  count = std::min(count, cap);
  (*known)[a] = count;
  return count;
}

}  // namespace deepinfer::grammar
