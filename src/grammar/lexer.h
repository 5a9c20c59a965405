// SPDX-License-Identifier: Apache-2.0
// Lexemes as lazily built automata. A state is a set of alternatives, each an expression with a tag that tells which
// one it was. There are two kinds: raw (the bytes themselves are matched) and JSON strings, where the bytes after the
// opening quote are decoded - escapes of every spelling, surrogate pairs - and the decoded text is matched; the closing
// quote ends the lexeme. No state is dead: from each, some continuation is accepted. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "deepinfer/grammar.h"
#include "grammar/expr.h"
#include "grammar/intern.h"
#include "grammar/trie.h"

namespace deepinfer::grammar {

using LexId = uint32_t;
inline constexpr LexId kNoLex = 0;

class Lexer {
 public:
  using Alternatives = std::vector<std::pair<ExprId, uint32_t>>;

  Lexer(ExprPool* pool, Budget* budget, Spelling spelling = Spelling::kAny);

  // kNoLex where nothing can match.
  LexId Raw(ExprId expr) { return Make(Kind::kRaw, {{expr, 0}}, 0); }
  LexId JsonString(Alternatives alternatives) { return Make(Kind::kString, std::move(alternatives), 0); }

  LexId Next(LexId state, uint8_t byte) {
    const Row& row = rows_[state];
    const LexId known = row.class_of == nullptr ? kUnknown : next_[row.next + row.class_of[byte]];
    return known != kUnknown ? known : ComputeNext(state, byte);
  }
  // A superset of the bytes that can come next.
  ByteSet NextBytes(LexId state);
  // Tags of the alternatives that are complete here (raw), or were complete at the closing quote.
  std::span<const uint32_t> Complete(LexId state) const { return lists_[states_[state].complete]; }
  // Whether a finished lexeme can't go on: a closed string.
  bool IsClosed(LexId state) const { return rows_[state].closed; }

  // Inside a JSON string, not in the middle of an escape.
  bool IsOpenString(LexId state) const { return states_[state].kind == Kind::kString && states_[state].escape == 0; }
  // An open string that may go on with any text, under one tag.
  bool IsAnyText(LexId state) const {
    const auto list = lists_[states_[state].list];
    return IsOpenString(state) && list.size() == 2 && list[0] == text_;
  }
  // REQUIRES: one alternative.
  uint32_t TagOf(LexId state) const { return lists_[states_[state].list][1]; }
  // An open string with one alternative that any text of up to *chars characters may end; kNoMax: any text.
  bool IsAnyTextUpTo(LexId state, uint64_t* chars) const;
  // An open string that may go on with any text, under *tag, but for finitely many texts that are of other alternatives or
  // of none.
  bool IsMostlyAnyText(LexId state, uint32_t* tag) const;
  // Any plain text keeps it alive; there may be others of which that is true.
  bool LivesOnText(LexId state) const { return rows_[state].lives_on_text; }
  // An open string that any text may go on with, and then be finished.
  bool IsEndless(LexId state);
  // Where a walk of such a string, having read text whose rest is `rest`, is left with that very rest and tag.
  bool IsOnly(LexId state, ExprId rest, uint32_t tag) const {
    const auto list = lists_[states_[state].list];
    return states_[state].escape == 0 && list.size() == 2 && list[0] == rest && list[1] == tag;
  }
  bool InEscape(LexId state) const { return states_[state].escape != 0; }
  ExprId text() const { return text_; }
  LexId AnyTextString() { return JsonString({{text_, 0}}); }

  // Every text of up to `chars` plain characters keeps the lexeme alive; with exact, none longer. So does every run of
  // up to kRunCharsMax characters of one of the classes (grammar/text_class.h), and of up to short_chars characters of one
  // of short_classes.
  struct Coverage {
    uint64_t chars = 0;
    bool exact = false;
    uint8_t classes = 0, short_classes = 0, short_chars = 0;

    bool operator==(const Coverage&) const = default;
    void Add(const Coverage& other) {
      if (other.chars > chars) chars = other.chars, exact = other.exact;
      classes |= other.classes;
      if (other.short_chars > short_chars) short_classes = other.short_classes, short_chars = other.short_chars;
    }
    // Whether all tokens from the node on down are runs of the classes.
    bool Covers(const Trie::Node& node) const {
      return (node.classes & classes) != 0 || ((node.classes & short_classes) != 0 && node.longest <= short_chars);
    }
  };
  Coverage PlainCoverage(LexId state);
  // How bytes fall into classes that the state treats alike; nullptr where nothing can follow.
  const ExprPool::Partition* PartitionOf(LexId state) {
    if (states_[state].partition == nullptr && states_[state].kind != Kind::kClosed) Prepare(state);
    return states_[state].partition;
  }

  // Expressions whose first bytes tell apart what PartitionOf does.
  void AddPartitionExpressions(LexId state, std::vector<ExprId>* out) const;

  size_t size() const { return states_.size(); }
  size_t bytes() const {
    return states_.capacity() * (sizeof(State) + sizeof(Row)) + lists_.bytes() + index_.bytes() + next_.capacity() * sizeof(LexId);
  }

 private:
  enum class Kind : uint8_t { kRaw, kString, kClosed };
  struct State {
    Kind kind = Kind::kRaw;
    uint32_t list = 0;      // expr, tag, expr, tag, ...
    uint32_t escape = 0;    // strings: 0, or the escape being read
    uint32_t complete = 0;  // list of tags
    const ExprPool::Partition* partition = nullptr;
    bool coverage_known = false;
    Coverage coverage;
  };
  // What walks ask for most.
  struct Row {
    const uint8_t* class_of = nullptr;  // nullptr: not prepared yet, or nothing can follow
    uint32_t next = 0;                  // where its transitions begin in next_, one for each class of bytes
    bool closed = false, lives_on_text = false;
  };
  static constexpr LexId kUnknown = UINT32_MAX;

  LexId Make(Kind kind, Alternatives alternatives, uint32_t escape);
  Alternatives Of(LexId state) const;
  LexId ComputeNext(LexId state, uint8_t byte);
  LexId NextString(LexId state, uint8_t byte);
  LexId NextPlain(LexId state, uint8_t byte);
  LexId NextEscape(LexId state, uint8_t byte);
  LexId ReadChar(const Alternatives& from, uint32_t code_point);
  LexId ReadBytes(Alternatives from, std::string_view bytes);
  bool CanRead(ExprId expr, uint32_t escape);
  ExprId EscapeClass(uint32_t escape);
  void Prepare(LexId state);
  uint32_t Covers(ExprId expr, ExprId run, uint32_t chars_max);
  Coverage CoverageOf(ExprId expr);

  ExprPool* pool_;
  Budget* budget_;
  ExprId any_char_, text_;
  ExprId more_;  // all but the empty word
  Spelling spelling_;
  ExprId escapable_first_;  // texts that begin with a whole character which may be escaped
  ExprId plain_star_;
  std::vector<State> states_;
  std::vector<Row> rows_;  // of each state
  ListPool lists_;
  FlatMap index_;  // by list, kind and escape
  std::vector<LexId> next_;
  std::vector<ExprId> string_special_;  // bytes with a meaning of their own
  std::vector<ExprId> escape_special_;
  const ExprPool::Partition* escape_partition_ = nullptr;
  std::vector<ExprId> prepared_;        // scratch
  std::vector<uint32_t> made_;          // scratch
  struct ClassRuns {
    ExprId run;        // any text of the class
    ByteSet first;     // its first bytes
  };
  std::vector<ClassRuns> class_runs_;  // in the order of TextClasses()
  std::vector<Coverage> coverages_;
  FlatMap coverage_index_, escape_classes_;
};

}  // namespace deepinfer::grammar
