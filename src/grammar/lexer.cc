// SPDX-License-Identifier: Apache-2.0
#include "grammar/lexer.h"

#include <algorithm>
#include <set>
#include <string>

#include "core/utf8.h"
#include "grammar/regex.h"
#include "grammar/text_class.h"
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

// Whether an unfinished escape can become this character.
bool CanBecome(uint32_t escape, uint32_t c, Spelling spelling) {
  const uint32_t stage = StageOf(escape);
  if (spelling == Spelling::kUsual && c < 0x80 && std::isalnum(static_cast<int>(c))) return false;
  if (stage <= kHex0) return true;
  const bool second = stage >= kPair;
  if (second && (c < 0x10000 || (c - 0x10000) >> 10 != HighOf(escape))) return false;
  const uint32_t unit = second ? 0xDC00 + ((c - 0x10000) & 0x3FF) : c < 0x10000 ? c : 0xD800 + ((c - 0x10000) >> 10);
  const uint32_t digits = second ? (stage >= kPair0 ? stage - kPair0 : 0) : stage - kHex0;
  return unit >> (16 - 4 * digits) == ValueOf(escape) || digits == 0;
}

// Whether there is any character that it can become: not where the digits so far make half of a surrogate pair alone.
bool CanBecomeAny(uint32_t escape) {
  const uint32_t stage = StageOf(escape);
  if (stage <= kHex0 || (stage >= kPair && stage <= kPair0)) return true;
  const uint32_t free_bits = 16 - 4 * (stage - (stage > kPair0 ? kPair0 : kHex0));
  const uint32_t first = ValueOf(escape) << free_bits, last = first | ((1u << free_bits) - 1);
  return stage > kPair0 ? last >= 0xDC00 && first <= 0xDFFF : first < 0xDC00 || last > 0xDFFF;
}

CodePointSet AsciiAlphanumeric() { return CodePointSet().Add('0', '9').Add('A', 'Z').Add('a', 'z'); }

}  // namespace

Lexer::Lexer(ExprPool* pool, Budget* budget, Spelling spelling)
    : pool_(pool),
      budget_(budget),
      any_char_(AnyChar(pool)),
      text_(AnyText(pool)),
      more_(pool->And(ExprPool::kAll, pool->Not(ExprPool::kEpsilon))),
      spelling_(spelling),
      escapable_first_(pool->Concat(
          spelling == Spelling::kAny ? any_char_ : Utf8Class(pool, AsciiAlphanumeric().Complement()), ExprPool::kAll)),
      plain_star_(pool->Star(Utf8Class(pool, PlainCharacters()))) {
  states_.emplace_back().kind = Kind::kClosed;
  rows_.emplace_back().closed = true;
  ByteSet control;
  for (size_t i = 0; i < 0x20; ++i) control.set(i);
  string_special_ = {pool->Byte('"'), pool->Byte('\\'), pool->Bytes(control)};
  for (char c : std::string_view("0123456789abcdefABCDEF\"\\/nrtu")) escape_special_.push_back(pool->Byte(static_cast<uint8_t>(c)));
  escape_partition_ = &pool->PartitionOf(escape_special_);
  for (const TextClassInfo& info : TextClasses()) {
    const ExprId character = Utf8Class(pool, info.characters);
    class_runs_.push_back({pool->Star(character), pool->FirstBytes(character)});
  }
}

Lexer::Alternatives Lexer::Of(LexId state) const {
  Alternatives out;
  const auto list = lists_[states_[state].list];
  for (size_t i = 0; i < list.size(); i += 2) out.emplace_back(list[i], list[i + 1]);
  return out;
}

bool Lexer::IsAnyTextUpTo(LexId state, uint64_t* chars) const {
  *chars = kNoMax;
  if (IsAnyText(state)) return true;
  const auto list = lists_[states_[state].list];
  if (!IsOpenString(state) || list.size() != 2) return false;
  ExprId inner = 0;
  uint64_t min = 0;
  return pool_->IsRepeat(list[0], &inner, &min, chars) && inner == any_char_ && min == 0;
}

bool Lexer::IsMostlyAnyText(LexId state, uint32_t* tag) const {
  if (!IsOpenString(state)) return false;
  const auto list = lists_[states_[state].list];
  size_t open = 0;
  for (size_t i = 0; i < list.size(); i += 2) {
    if (pool_->IsFinite(list[i])) continue;
    if (++open > 1 || !pool_->IsButForFinitely(list[i], text_)) return false;
    *tag = list[i + 1];
  }
  return open == 1;
}

bool Lexer::IsEndless(LexId state) {
  if (!IsOpenString(state)) return false;
  const auto list = lists_[states_[state].list];
  for (size_t i = 0; i < list.size(); i += 2) {
    if (pool_->IsEndless(list[i], text_, any_char_)) return true;
  }
  return false;
}

LexId Lexer::Make(Kind kind, Alternatives alternatives, uint32_t escape) {
  std::vector<uint32_t>& list = made_;
  list.clear();
  for (const auto& [expr, tag] : alternatives) {
    if (expr == ExprPool::kEmpty) continue;
    if (kind != Kind::kClosed && (escape != 0 ? !CanRead(expr, escape) : pool_->IsEmpty(expr))) continue;
    list.push_back(expr);
    list.push_back(tag);
  }
  if (list.empty()) return kNoLex;
  const uint32_t list_id = lists_.Intern(list);
  const uint64_t key = uint64_t{list_id} << 32 | escape << 2 | static_cast<uint32_t>(kind);
  if (const uint32_t* known = index_.Find(key)) return *known;
  std::vector<uint32_t> complete;
  for (size_t i = 0; i < list.size() && kind != Kind::kString; i += 2) {
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
  const LexId id = static_cast<LexId>(states_.size());
  Row& row = rows_.emplace_back();
  row.closed = kind == Kind::kClosed;
  for (size_t i = 0; i < list.size() && escape == 0; i += 2) row.lives_on_text |= list[i] == text_ || list[i] == ExprPool::kAll;
  index_.Insert(key, id);
  states_.push_back(state);
  return id;
}

ByteSet Lexer::NextBytes(LexId state) {
  ByteSet result;
  // Of strings the classes of bytes are few, and found on the way.
  if (states_[state].kind == Kind::kString) return result.set();
  const uint32_t list = states_[state].list;
  for (size_t i = 0; i < lists_[list].size(); i += 2) result |= pool_->FirstBytes(lists_[list][i]);
  return result;
}

void Lexer::AddPartitionExpressions(LexId id, std::vector<ExprId>* out) const {
  const State& state = states_[id];
  if (state.kind == Kind::kClosed) return;
  if (state.escape != 0) {
    out->insert(out->end(), escape_special_.begin(), escape_special_.end());
    return;
  }
  if (state.kind == Kind::kString) out->insert(out->end(), string_special_.begin(), string_special_.end());
  const auto list = lists_[state.list];
  for (size_t i = 0; i < list.size(); i += 2) out->push_back(list[i]);
}

void Lexer::Prepare(LexId id) {
  State& state = states_[id];
  if (state.escape != 0) {
    state.partition = escape_partition_;
  } else {
    prepared_.clear();
    AddPartitionExpressions(id, &prepared_);
    state.partition = &pool_->PartitionOf(prepared_);
  }
  rows_[id].class_of = state.partition->class_of.data();
  rows_[id].next = static_cast<uint32_t>(next_.size());
  next_.insert(next_.end(), state.partition->representatives.size(), kUnknown);
}

LexId Lexer::ComputeNext(LexId state, uint8_t byte) {
  const ExprPool::Partition* partition = PartitionOf(state);
  if (partition == nullptr) return kNoLex;
  const size_t index = rows_[state].next + partition->class_of[byte];
  if (next_[index] != kUnknown) return next_[index];
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
  if (budget_->ok()) next_[index] = next;
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
  if (spelling_ == Spelling::kUsual && value < 0x80 && std::isalnum(static_cast<int>(value))) return kNoLex;
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
  if (!CanBecomeAny(escape)) return false;
  // Two cases are common: nearly any text, where some text begins with each character, and a literal.
  if (pool_->IsButForFinitely(expr, text_)) return true;
  if (uint32_t c = 0; pool_->FirstCharacter(expr, &c)) return CanBecome(escape, c, spelling_);
  // Any character that may be escaped; none while one is being read byte by byte.
  if (stage == kBackslash || stage == kHex0) return !pool_->IsEmpty(pool_->And(expr, escapable_first_));
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
  ExprId first_char = Utf8Class(pool_, set);
  if (spelling_ == Spelling::kUsual) first_char = pool_->And(first_char, Utf8Class(pool_, AsciiAlphanumeric().Complement()));
  return pool_->Concat(first_char, ExprPool::kAll);
}

// Up to how many characters texts of a class, given as the expression of all of them, keep the expression alive, at most
// `chars_max`; UINT32_MAX: however many. Walks both in step, shorter texts first.
uint32_t Lexer::Covers(ExprId expr, ExprId run, uint32_t chars_max) {
  constexpr size_t kPairsMax = 400;
  std::set<std::pair<ExprId, ExprId>> seen{{expr, run}};
  std::vector<std::pair<ExprId, ExprId>> level, next_level{{expr, run}};
  for (uint32_t chars = 0; chars < chars_max && !next_level.empty(); ++chars) {
    level.clear();
    level.swap(next_level);
    while (!level.empty()) {
      const auto [state, position] = level.back();
      level.pop_back();
      const ExprId both[] = {state, position};
      for (uint8_t byte : pool_->PartitionOf(both).representatives) {
        const ExprId next_position = pool_->Derivative(position, byte);
        if (next_position == ExprPool::kEmpty) continue;
        const ExprId next = pool_->Derivative(state, byte);
        if (pool_->IsEmpty(next)) return chars;
        if (next == ExprPool::kAll || (next == text_ && next_position == run)) continue;
        if (!seen.emplace(next, next_position).second) continue;
        (next_position == run ? next_level : level).emplace_back(next, next_position);
      }
      if (seen.size() > kPairsMax || !budget_->ok()) return chars;
    }
  }
  return next_level.empty() ? UINT32_MAX : chars_max;
}

Lexer::Coverage Lexer::CoverageOf(ExprId expr) {
  if (expr == text_ || expr == ExprPool::kAll) return {.chars = kNoMax};
  if (const uint32_t* known = coverage_index_.Find(expr)) return coverages_[*known];
  // What is alive after every text of a class has infinitely many continuations there; taking away finitely many words
  // leaves some. That does not hold for what is alive for a while only.
  const ExprId without = pool_->WithoutFiniteExclusions(expr);
  const auto covers = [&](ExprId run, uint32_t chars_max) {
    const uint32_t chars = Covers(without, run, chars_max);
    if (chars == UINT32_MAX) return chars_max;
    return without == expr || chars == 0 ? chars : std::min(Covers(expr, run, chars), chars);
  };
  Coverage coverage;
  const ByteSet first = pool_->FirstBytes(without);
  const auto may_begin = [&](const ByteSet& bytes) { return (bytes & ~first).none(); };
  if (may_begin(pool_->FirstBytes(plain_star_)) && covers(plain_star_, VocabularyImpl::kPlainCharsMax) == VocabularyImpl::kPlainCharsMax) {
    coverage.chars = VocabularyImpl::kPlainCharsMax;
  }
  for (size_t k = class_runs_.size(); k-- > 0 && coverage.chars == 0;) {
    const TextClassInfo& info = TextClasses()[k];
    if ((coverage.classes & info.bit) != 0 || !may_begin(class_runs_[k].first)) continue;
    const uint32_t chars = covers(class_runs_[k].run, kRunCharsMax);
    if (chars == kRunCharsMax) {
      coverage.classes |= info.bit | info.contains;
    } else if (chars > coverage.short_chars) {
      coverage.short_chars = static_cast<uint8_t>(chars);
      coverage.short_classes = info.bit | info.contains;
    }
  }
  if (budget_->ok()) {
    coverage_index_.Insert(expr, static_cast<uint32_t>(coverages_.size()));
    coverages_.push_back(coverage);
  }
  return coverage;
}

Lexer::Coverage Lexer::PlainCoverage(LexId id) {
  if (states_[id].coverage_known) return states_[id].coverage;
  Coverage coverage;
  if (states_[id].kind != Kind::kClosed && states_[id].escape == 0) {
    const Alternatives alternatives = Of(id);
    ExprId inner = 0;
    uint64_t min = 0, max = 0;
    if (alternatives.size() == 1 && pool_->IsRepeat(alternatives[0].first, &inner, &min, &max) && max != kNoMax &&
        inner == any_char_) {
      coverage = {.chars = max, .exact = true};
    } else {
      for (const auto& [expr, tag] : alternatives) {
        coverage.Add(CoverageOf(expr));
        if (coverage.chars != 0) break;
      }
    }
  }
  states_[id].coverage = coverage;
  states_[id].coverage_known = true;
  return coverage;
}

}  // namespace deepinfer::grammar
