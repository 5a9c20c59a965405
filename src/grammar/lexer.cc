// SPDX-License-Identifier: Apache-2.0
#include "grammar/lexer.h"

#include <algorithm>
#include <set>
#include <string>

#include "core/utf8.h"
#include "grammar/regex.h"
#include "grammar/unicode.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {
namespace {

// An escape being read, packed: stage in the low byte, hex digits read so far above it, and for the second half of a
// surrogate pair the high half's low ten bits on top.
enum Stage : uint32_t { kNone, kBackslash, kHex0, kHex1, kHex2, kHex3, kPair, kPairU, kPair0, kPair1, kPair2, kPair3 };
uint32_t Pack(uint32_t stage, uint32_t value, uint32_t high = 0) { return stage | value << 4 | high << 20; }
uint32_t StageOf(uint32_t escape) { return escape & 15; }
uint32_t ValueOf(uint32_t escape) { return escape >> 4 & 0xFFFF; }
uint32_t HighOf(uint32_t escape) { return escape >> 20; }

int HexDigit(uint8_t byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  const uint8_t lower = byte | 32;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

int SimpleEscape(uint8_t byte) {
  switch (byte) {
    case '"': case '\\': case '/': return byte;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return -1;
  }
}

}  // namespace

Lexer::Lexer(ExprPool* pool, Budget* budget)
    : pool_(pool),
      budget_(budget),
      any_char_(AnyChar(pool)),
      text_(AnyText(pool)),
      more_(pool->And(ExprPool::kAll, pool->Not(ExprPool::kEpsilon))),
      any_first_(pool->Concat(any_char_, ExprPool::kAll)),
      plain_star_(pool->Star(Utf8Class(pool, PlainCharacters()))) {
  states_.emplace_back();
  index_to_state_.push_back(kNoLex);
}

Lexer::Alternatives Lexer::Of(LexId state) const {
  Alternatives out;
  const auto list = lists_[states_[state].list];
  for (size_t i = 0; i < list.size(); i += 2) out.emplace_back(list[i], list[i + 1]);
  return out;
}

LexId Lexer::Make(Kind kind, Alternatives alternatives, uint32_t escape) {
  std::vector<uint32_t> list;
  for (const auto& [expr, tag] : alternatives) {
    if (expr == ExprPool::kEmpty) continue;
    if (kind != Kind::kClosed && (escape != 0 ? !CanRead(expr, escape) : pool_->IsEmpty(expr))) continue;
    list.push_back(expr);
    list.push_back(tag);
  }
  if (list.empty()) return kNoLex;
  const uint32_t list_id = lists_.Intern(list);
  const uint32_t key[] = {static_cast<uint32_t>(kind), list_id, escape};
  const uint32_t id = index_.Intern(key);
  if (id < index_to_state_.size()) return index_to_state_[id];
  std::vector<uint32_t> complete;
  for (size_t i = 0; i < list.size(); i += 2) {
    if (kind == Kind::kClosed || (kind == Kind::kRaw && pool_->Nullable(list[i]))) complete.push_back(list[i + 1]);
  }
  if (kind == Kind::kRaw && !complete.empty()) {
    // A text that nothing can follow is closed, so that the end of an output is known as such.
    bool open = false;
    for (size_t i = 0; i < list.size() && !open; i += 2) {
      open = list[i] != ExprPool::kEpsilon && !pool_->IsEmpty(pool_->And(list[i], more_));
    }
    if (!open) kind = Kind::kClosed;
  }
  State state;
  state.kind = kind;
  state.list = list_id;
  state.escape = escape;
  state.complete = lists_.Intern(complete);
  index_to_state_.push_back(static_cast<LexId>(states_.size()));
  states_.push_back(state);
  return index_to_state_[id];
}

ByteSet Lexer::NextBytes(LexId state) {
  ByteSet result;
  if (states_[state].escape != 0) return result.set();
  const uint32_t list = states_[state].list;
  bool nullable = false;
  for (size_t i = 0; i < lists_[list].size(); i += 2) {
    const ExprId expr = lists_[list][i];
    result |= pool_->FirstBytes(expr);
    nullable |= pool_->Nullable(expr);
  }
  if (states_[state].kind == Kind::kString) {
    result.set('"', nullable);
    result.set('\\');
  }
  return result;
}

LexId Lexer::Next(LexId state, uint8_t byte) {
  const uint64_t key = (uint64_t{state} << 8) | byte;
  if (const uint32_t* known = next_.Find(key)) return *known;
  if (!budget_->Spend()) return kNoLex;
  LexId next = kNoLex;
  if (states_[state].kind == Kind::kString && states_[state].escape == 0 && byte >= 0x20 && byte != '"' && byte != '\\') {
    next = NextPlain(state, byte);
  } else if (states_[state].kind == Kind::kRaw) {
    Alternatives alternatives = Of(state);
    for (auto& [expr, tag] : alternatives) expr = pool_->Derivative(expr, byte);
    next = Make(Kind::kRaw, std::move(alternatives), 0);
  } else if (states_[state].kind == Kind::kString) {
    next = states_[state].escape == 0 ? NextString(state, byte) : NextEscape(state, byte);
  }
  if (budget_->ok()) next_.Insert(key, next);
  return next;
}

// The common case, without copying alternatives that die.
LexId Lexer::NextPlain(LexId state, uint8_t byte) {
  const uint32_t list = states_[state].list;
  Alternatives alternatives;
  for (size_t i = 0; i < lists_[list].size(); i += 2) {
    const ExprId next = pool_->Derivative(lists_[list][i], byte);
    if (next != ExprPool::kEmpty) alternatives.emplace_back(next, lists_[list][i + 1]);
  }
  return alternatives.empty() ? kNoLex : Make(Kind::kString, std::move(alternatives), 0);
}

LexId Lexer::NextString(LexId state, uint8_t byte) {
  Alternatives alternatives = Of(state);
  if (byte < 0x20) return kNoLex;
  if (byte == '\\') return Make(Kind::kString, std::move(alternatives), Pack(kBackslash, 0));
  if (byte == '"') {
    Alternatives complete;
    // The tags are all that is left of a closed string.
    for (const auto& [expr, tag] : alternatives) {
      if (pool_->Nullable(expr)) complete.emplace_back(ExprPool::kEpsilon, tag);
    }
    return Make(Kind::kClosed, std::move(complete), 0);
  }
  return kNoLex;
}

LexId Lexer::NextEscape(LexId state, uint8_t byte) {
  Alternatives alternatives = Of(state);
  const uint32_t escape = states_[state].escape;
  const uint32_t stage = StageOf(escape);
  if (stage == kBackslash) {
    if (byte == 'u') return Make(Kind::kString, std::move(alternatives), Pack(kHex0, 0));
    const int decoded = SimpleEscape(byte);
    return decoded < 0 ? kNoLex : ReadChar(alternatives, static_cast<uint32_t>(decoded));
  }
  if (stage == kPair || stage == kPairU) {
    if (byte != (stage == kPair ? '\\' : 'u')) return kNoLex;
    return Make(Kind::kString, std::move(alternatives), Pack(stage + 1, 0, HighOf(escape)));
  }
  const int digit = HexDigit(byte);
  if (digit < 0) return kNoLex;
  const uint32_t value = ValueOf(escape) << 4 | static_cast<uint32_t>(digit);
  if (stage != kHex3 && stage != kPair3) {
    return Make(Kind::kString, std::move(alternatives), Pack(stage + 1, value, HighOf(escape)));
  }
  if (stage == kPair3) {
    if (value < 0xDC00 || value > 0xDFFF) return kNoLex;
    return ReadChar(alternatives, 0x10000 + (HighOf(escape) << 10) + (value - 0xDC00));
  }
  if (value >= 0xD800 && value <= 0xDBFF) return Make(Kind::kString, std::move(alternatives), Pack(kPair, 0, value - 0xD800));
  if (value >= 0xDC00 && value <= 0xDFFF) return kNoLex;
  return ReadChar(alternatives, value);
}

LexId Lexer::ReadChar(const Alternatives& from, uint32_t code_point) {
  std::string bytes;
  AppendUtf8(code_point, &bytes);
  return ReadBytes(from, bytes);
}

LexId Lexer::ReadBytes(Alternatives from, std::string_view bytes) {
  for (char c : bytes) {
    for (auto& [expr, tag] : from) expr = pool_->Derivative(expr, static_cast<uint8_t>(c));
  }
  return Make(Kind::kString, std::move(from), 0);
}

// Whether some character that this unfinished escape can become leaves a live expression.
bool Lexer::CanRead(ExprId expr, uint32_t escape) {
  const uint32_t stage = StageOf(escape);
  // Any character at all; none while one is being read byte by byte.
  if (stage == kBackslash || stage == kHex0) return !pool_->IsEmpty(pool_->And(expr, any_first_));
  const uint32_t* known = escape_classes_.Find(escape);
  const ExprId first_char = known != nullptr ? *known : EscapeClass(escape);
  if (known == nullptr) escape_classes_.Insert(escape, first_char);
  return first_char != ExprPool::kEmpty && !pool_->IsEmpty(pool_->And(expr, first_char));
}

// Texts that begin with a character which this unfinished escape can become.
ExprId Lexer::EscapeClass(uint32_t escape) {
  const uint32_t stage = StageOf(escape), value = ValueOf(escape), high = HighOf(escape);
  CodePointSet set;
  const auto range = [](uint32_t prefix, uint32_t digits_left) {
    return std::make_pair(prefix << (4 * digits_left), ((prefix + 1) << (4 * digits_left)) - 1);
  };
  if (stage < kPair) {
    const auto [first, last] = range(value, 4 - (stage - kHex0));
    set.Add(first, last);
    const uint32_t low = std::max(first, 0xD800u), top = std::min(last, 0xDBFFu);
    if (low <= top) set.Add(0x10000 + ((low - 0xD800) << 10), 0x10000 + ((top - 0xD800) << 10) + 0x3FF);
  } else {
    const uint32_t read = stage >= kPair0 ? stage - kPair0 : 0;
    auto [first, last] = range(stage >= kPair0 ? value : 0, 4 - read);
    first = std::max(first, 0xDC00u);
    last = std::min(last, 0xDFFFu);
    if (first > last) return ExprPool::kEmpty;
    set.Add(0x10000 + (high << 10) + (first - 0xDC00), 0x10000 + (high << 10) + (last - 0xDC00));
  }
  return pool_->Concat(Utf8Class(pool_, set), ExprPool::kAll);
}

// Whether no text of plain characters, however long, kills the expression: walks it in step with "any plain text".
bool Lexer::Covers(ExprId expr) {
  // What is alive after every plain text has infinitely many continuations there; taking away finitely many words
  // leaves some.
  expr = pool_->WithoutFiniteExclusions(expr);
  if (expr == text_ || expr == ExprPool::kAll) return true;
  if (const uint32_t* known = covers_.Find(expr)) return *known != 0;
  constexpr size_t kPairsMax = 600;
  std::set<std::pair<ExprId, ExprId>> seen{{expr, plain_star_}};
  std::vector<std::pair<ExprId, ExprId>> todo(seen.begin(), seen.end());
  bool covers = true;
  while (!todo.empty() && covers) {
    const auto [state, plain] = todo.back();
    todo.pop_back();
    // The union has a class of bytes for every way in which either can go on.
    for (uint8_t byte : pool_->Representatives(pool_->Or(state, pool_->Not(plain)))) {
      const ExprId plain_next = pool_->Derivative(plain, byte);
      if (plain_next == ExprPool::kEmpty) continue;
      const ExprId next = pool_->Derivative(state, byte);
      if (next == ExprPool::kEmpty || pool_->IsEmpty(next)) {
        covers = false;
        break;
      }
      if (seen.emplace(next, plain_next).second) todo.emplace_back(next, plain_next);
    }
    if (seen.size() > kPairsMax || !budget_->ok()) covers = false;
  }
  covers_.Insert(expr, covers ? 1 : 0);
  return covers;
}

Lexer::Coverage Lexer::PlainCoverage(LexId id) {
  if (states_[id].coverage_known) return states_[id].coverage;
  Coverage coverage;
  if (states_[id].kind != Kind::kClosed && states_[id].escape == 0) {
    const Alternatives alternatives = Of(id);
    ExprId inner = 0;
    uint64_t min = 0, max = 0;
    if (alternatives.size() == 1 && pool_->IsRepeat(alternatives[0].first, &inner, &min, &max) && max != kNoMax) {
      if (inner == any_char_) coverage = {max, true};
    } else {
      for (const auto& [expr, tag] : alternatives) {
        if (Covers(expr)) coverage = {kNoMax, false};
        if (coverage.chars != 0) break;
      }
    }
  }
  states_[id].coverage = coverage;
  states_[id].coverage_known = true;
  return coverage;
}

}  // namespace deepinfer::grammar
