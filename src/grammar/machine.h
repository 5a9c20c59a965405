// SPDX-License-Identifier: Apache-2.0
// The automaton that is run: a pushdown machine over bytes, determinised lazily.
//
// A *node* is one thread's top of stack: an item (where in a lexeme, object, array or rule it is) and the set of nodes
// below it, so stacks share their tails. A *state* is the set of nodes that are possible after the bytes so far. Items,
// nodes and states are interned: equal situations have equal ids, and transitions are remembered per state.
// No node is without a continuation: what cannot be completed is not entered. State 0 is "nothing fits".
// Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/goal.h"
#include "grammar/lexer.h"
#include "grammar/program.h"

namespace deepinfer::grammar {

using StateId = uint32_t;
inline constexpr StateId kDeadState = 0;

struct MachineOptions {
  bool free_order = false;
  Spelling spelling = Spelling::kAny;
  uint32_t whitespace_max = 32;
};

class Machine {
 public:
  Machine(ExprPool* pool, Lexer* lexer, Goals* goals, Budget* budget, const MachineOptions& options);

  StateId Start(const Program* program);
  StateId Next(StateId state, uint8_t byte) {
    const Transitions& row = transitions_[state];
    const StateId known = row.next == nullptr ? kUnknown : row.next[row.class_of[byte]];
    return known != kUnknown ? known : ComputeNext(state, byte);
  }
  bool IsComplete(StateId state) const { return states_[state].complete; }
  // No byte can follow.
  bool IsFinished(StateId state) const { return states_[state].finished; }
  // After a byte that ended a key or an element which must not come again: the state to go on from, given all bytes so
  // far. The same state where nothing has to be remembered.
  StateId Remember(StateId state, std::string_view bytes);

  // A comma here is only known to be right once Remember has seen what came before: walks that don't call it must check
  // what they find beyond.
  bool UnsureComma(StateId state) const { return states_[state].unsure_comma; }

  // A state that is inside one JSON string and nothing else: its lexer state and the stack below. False for all others.
  bool IsInString(StateId state, LexId* lexeme, uint32_t* below) const;
  // The state in which such a string has just been closed, complete for the alternatives `tags`.
  StateId AfterString(uint32_t below, std::span<const uint32_t> tags);

  // Whether any text of one of the kinds (TailKind) can follow.
  bool LivesOn(StateId state, uint8_t tail);
  // How many bytes of such a text can follow where that is blanks and there is a limit; 0 where that is not known.
  uint32_t BlanksLeft(StateId state, uint8_t tail) const {
    const bool all = options_.spelling == Spelling::kAny;
    return (tail & (all ? kBlankTail : kIndentTail)) != 0 ? states_[state].blanks_left : 0;
  }
  // See Lexer::PlainCoverage: of the whole state.
  Lexer::Coverage PlainCoverage(StateId state);

  size_t states() const { return states_.size(); }
  size_t bytes() const;

 private:
  static constexpr StateId kUnknown = UINT32_MAX;
  enum Kind : uint32_t {
    kEnd, kLexeme, kReturn, kValue,
    kObjectFirst, kObjectNext, kObjectKey, kObjectColon, kObjectValue, kObjectAfter,
    kArrayFirst, kArrayNext, kArrayValue, kArrayAfter,
  };
  struct Item {
    uint32_t kind = kEnd;
    uint32_t blanks = 0;  // whitespace read at this place; in the usual spelling: see Blank()
    uint32_t a = 0, b = 0, c = 0;
    // kLexeme: a lexer state. kReturn: a program state. kValue: a goal.
    // kObject*: a shape, b object state; kObjectColon: c tag of the key.
    // kArray*: a shape, b array state.
  };
  struct Node {
    uint32_t item = 0;
    uint32_t below = 0;  // list of node ids
  };
  static constexpr size_t kTableBlock = 8192;
  enum class Answer : uint8_t { kUnknown, kNo, kYes };
  struct State {
    uint32_t nodes = 0;  // list of node ids
    bool complete = false, finished = false, pending = false, unsure_comma = false, coverage_known = false;
    bool lives_on_text = false;
    uint32_t blanks_left = 0;  // see BlanksLeft()
    bool blank = false;      // only structural items, all of which read blanks alike
    Answer loops_on_digits = Answer::kUnknown;
    StateId unblanked = kDeadState;  // the state of which this is what follows after blanks, if there is one
    Lexer::Coverage coverage;
  };
  // Bytes that a state treats alike are one class.
  struct Transitions {
    const uint8_t* class_of = nullptr;
    StateId* next = nullptr;  // by class, in tables_; nullptr: nothing is known yet
  };
  // Nodes of the state being built.
  struct Builder {
    std::vector<uint32_t> nodes;
    std::vector<std::pair<uint32_t, uint32_t>> visited;  // (program state, below) already followed
    int depth = 0;
  };

  uint32_t InternItem(const Item& item);
  uint32_t InternNode(uint32_t item, uint32_t below);
  uint32_t InternNode(const Item& item, uint32_t below) { return InternNode(InternItem(item), below); }
  uint32_t ListOf(uint32_t node) { return lists_.Intern({&node, 1}); }
  uint32_t InternObject(const ObjectState& state);
  uint32_t InternArray(const ArrayState& state);
  uint32_t ListOfAll(std::vector<uint32_t>* nodes, int depth);
  StateId Finish(Builder* builder);
  uint32_t BlanksLeft(const Item& item) const;
  ByteSet NextBytes(const Item& item);
  StateId ComputeNext(StateId state, uint8_t byte);
  void MakeTable(StateId state);

  void Add(const Item& item, uint32_t below, Builder* out) { out->nodes.push_back(InternNode(item, below)); }
  void AddLexeme(LexId lex, uint32_t below, Builder* out);
  void Follow(uint32_t program_state, uint32_t below, Builder* out);
  // The lexeme, value or rule on top of `below` is complete.
  void Return(uint32_t below, uint32_t tag, Builder* out);
  void Step(const Item& item, uint32_t below, uint8_t byte, Builder* out);
  bool Blank(Item item, uint32_t below, uint8_t byte, Builder* out);
  bool UsualBlank(Item* item, uint8_t byte);
  void StepValue(const Item& item, uint32_t below, uint8_t byte, Builder* out);

  // machine_json.cc
  void StepObject(const Item& item, uint32_t below, uint8_t byte, Builder* out);
  void StepArray(const Item& item, uint32_t below, uint8_t byte, Builder* out);
  void BeginElement(uint32_t shape, uint32_t state, uint32_t below, uint8_t byte, Builder* out);
  LexId Keys(uint32_t shape, uint32_t state);
  void AddNameKeys(const ObjectShape& shape, const ObjectState& state, Lexer::Alternatives* keys);
  void AddOtherKeys(const ObjectShape& shape, const ObjectState& state, Lexer::Alternatives* keys);
  bool CanClose(uint32_t shape, uint32_t state);
  ObjectState AfterKey(const ObjectShape& shape, const ObjectState& state, uint32_t tag);
  // Goals that the value of a key may take up, with the object state that follows.
  std::vector<std::pair<GoalId, ObjectState>> MemberOptions(const ObjectShape& shape, const ObjectState& state, uint32_t tag);
  std::vector<std::pair<GoalId, uint32_t>>& ElementOptions(uint32_t shape, uint32_t state);
  bool ArrayCanClose(uint32_t shape, uint32_t state);
  Item RememberItem(const Item& item, std::string_view bytes);

  ExprPool* pool_;
  Lexer* lexer_;
  Goals* goals_;
  Budget* budget_;
  MachineOptions options_;
  const Program* program_ = nullptr;

  Builder step_builder_;
  std::vector<uint32_t> step_nodes_;
  ListPool item_index_;
  std::vector<Item> items_;
  FlatMap node_index_;
  std::vector<Node> nodes_;
  ListPool lists_;
  std::vector<State> states_;
  std::vector<Transitions> transitions_;  // of each state
  std::vector<std::unique_ptr<StateId[]>> tables_;  // blocks of kTableBlock
  size_t table_left_ = 0;                           // of the last block
  std::vector<ExprId> structural_;                  // bytes that items other than lexemes tell apart
  const ExprPool::Partition* structural_partition_ = nullptr;
  std::vector<StateId> list_to_state_;
  FlatMap state_index_, merged_lists_;
  ListPool object_index_, array_index_;
  std::deque<ObjectState> object_states_;
  std::deque<ArrayState> array_states_;
  FlatMap after_strings_;
  FlatMap keys_, closable_, array_closable_, raw_values_, string_values_;
  std::unordered_map<uint64_t, std::vector<std::pair<GoalId, uint32_t>>> element_options_;
};

}  // namespace deepinfer::grammar
