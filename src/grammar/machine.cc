// SPDX-License-Identifier: Apache-2.0
#include "grammar/machine.h"

#include <algorithm>
#include <bit>

namespace deepinfer::grammar {
namespace {

bool IsBlank(uint8_t byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }

constexpr int kFollowDepthMax = 3000, kMergeDepthMax = 3000;

uint64_t Pair(uint32_t a, uint32_t b) { return uint64_t{a} << 32 | b; }

ByteSet SetOf(std::string_view bytes) {
  ByteSet set;
  for (char c : bytes) set.set(static_cast<uint8_t>(c));
  return set;
}

}  // namespace

Machine::Machine(ExprPool* pool, Lexer* lexer, Goals* goals, Budget* budget, const MachineOptions& options)
    : pool_(pool), lexer_(lexer), goals_(goals), budget_(budget), options_(options) {
  states_.emplace_back().finished = true;
  transitions_.emplace_back();
  for (char c : std::string_view("\"{}[],:-0123456789tfn")) structural_.push_back(pool->Byte(static_cast<uint8_t>(c)));
  if (options.spelling == Spelling::kAny) {
    structural_.push_back(pool->Bytes(SetOf(" \n\t\r")));
  } else {
    for (char c : std::string_view(" \n\t\r")) structural_.push_back(pool->Byte(static_cast<uint8_t>(c)));
  }
  structural_partition_ = &pool->PartitionOf(structural_);
  item_index_.Intern({});
  items_.emplace_back();
  object_states_.emplace_back();
  array_states_.emplace_back();
}

size_t Machine::bytes() const {
  return item_index_.bytes() + items_.capacity() * sizeof(Item) + nodes_.capacity() * sizeof(Node) + lists_.bytes() +
         states_.capacity() * (sizeof(State) + sizeof(Transitions)) + tables_.size() * kTableBlock * sizeof(StateId) +
         object_states_.size() * 128 + array_states_.size() * 128 + node_index_.bytes() + state_index_.bytes() + merged_lists_.bytes();
}

uint32_t Machine::InternItem(const Item& item) {
  const uint32_t key[] = {item.kind, item.blanks, item.a, item.b, item.c};
  const uint32_t id = item_index_.Intern(key);
  if (id == items_.size()) items_.push_back(item);
  return id;
}

uint32_t Machine::InternNode(uint32_t item, uint32_t below) {
  const uint64_t key = Pair(item, below);
  if (const uint32_t* known = node_index_.Find(key)) return *known;
  const uint32_t id = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({item, below});
  node_index_.Insert(key, id);
  return id;
}

StateId Machine::Start(const Program* program) {
  program_ = program;
  const uint32_t bottom = ListOf(InternNode(Item{}, 0));
  Builder builder;
  Follow(program->start, bottom, &builder);
  return Finish(&builder);
}

// Nodes with the same item become one, with all that lies below either; below them likewise. So equal sets of stacks are
// the same list however they came about, which keeps ambiguous grammars small.
uint32_t Machine::ListOfAll(std::vector<uint32_t>* nodes, int depth) {
  std::sort(nodes->begin(), nodes->end());
  nodes->erase(std::unique(nodes->begin(), nodes->end()), nodes->end());
  if (nodes->size() <= 1) return lists_.Intern(*nodes);
  const uint32_t plain = lists_.Intern(*nodes);
  if (const uint32_t* known = merged_lists_.Find(plain)) return *known;
  if (!budget_->Spend(nodes->size())) return plain;
  if (depth > kMergeDepthMax) {
    budget_->Fail(Error(Code::kResourceExhausted, "grammar: too ambiguous ({} nested parts to be merged)", kMergeDepthMax));
    return plain;
  }
  std::sort(nodes->begin(), nodes->end(), [&](uint32_t a, uint32_t b) { return nodes_[a].item < nodes_[b].item; });
  std::vector<uint32_t> merged;
  for (size_t i = 0; i < nodes->size();) {
    const uint32_t item = nodes_[(*nodes)[i]].item;
    size_t end = i + 1;
    while (end < nodes->size() && nodes_[(*nodes)[end]].item == item) ++end;
    if (end == i + 1) {
      merged.push_back((*nodes)[i]);
    } else {
      std::vector<uint32_t> below;
      for (size_t j = i; j < end; ++j) {
        const auto list = lists_[nodes_[(*nodes)[j]].below];
        below.insert(below.end(), list.begin(), list.end());
      }
      merged.push_back(InternNode(item, ListOfAll(&below, depth + 1)));
    }
    i = end;
  }
  std::sort(merged.begin(), merged.end());
  const uint32_t list = lists_.Intern(merged);
  merged_lists_.Insert(plain, list);
  return list;
}

StateId Machine::Finish(Builder* builder) {
  std::vector<uint32_t>& nodes = builder->nodes;
  if (nodes.empty()) return kDeadState;
  const uint32_t list = ListOfAll(&nodes, 0);
  if (const uint32_t* known = state_index_.Find(list)) return *known;
  const StateId id = static_cast<StateId>(states_.size());
  State& state = states_.emplace_back();
  transitions_.emplace_back();
  state.nodes = list;
  state.finished = true;
  state.blank = options_.spelling == Spelling::kAny;
  for (uint32_t node : lists_[list]) {
    const Item& item = items_[nodes_[node].item];
    state.blank &= item.kind != kLexeme && item.kind != kEnd;
    state.blanks_left = std::max(state.blanks_left, BlanksLeft(item));
    state.lives_on_text |= item.kind == kLexeme && lexer_->LivesOnText(item.a);
    state.complete |= item.kind == kEnd;
    state.finished &= item.kind == kEnd;
    state.pending |= (item.kind == kObjectColon && object_states_[item.b].pending) ||
                     (item.kind == kArrayAfter && array_states_[item.b].pending);
    state.unsure_comma |= (item.kind == kObjectAfter && object_states_[item.b].pending) ||
                          (item.kind == kArrayAfter && array_states_[item.b].pending);
  }
  for (uint32_t node : lists_[list]) {
    if (items_[nodes_[node].item].kind == kLexeme) state.blanks_left = 0;  // it may read them otherwise
  }
  state_index_.Insert(list, id);
  return id;
}

// As Blank() and UsualBlank() have it.
uint32_t Machine::BlanksLeft(const Item& item) const {
  if (item.kind == kLexeme || item.kind == kEnd) return 0;
  const uint32_t most = options_.whitespace_max;
  if (options_.spelling == Spelling::kAny) return most - std::min(most, item.blanks);
  return item.kind == kValue || item.blanks < 2 || item.blanks > most ? 0 : most + 1 - item.blanks;
}

// A superset of the bytes that an item can read: most states can read few, and a walk asks for all.
ByteSet Machine::NextBytes(const Item& item) {
  static const ByteSet value = SetOf(" \n\t\r\"{[-0123456789tfn"), first = value | SetOf("]"), key = SetOf(" \n\t\r\"}"),
                       colon = SetOf(" \n\t\r:"), after = SetOf(" \n\t\r,}]");
  switch (item.kind) {
    case kLexeme: return lexer_->NextBytes(item.a);
    case kValue:
    case kArrayNext: return value;
    case kArrayFirst: return first;
    case kObjectFirst:
    case kObjectNext: return key;
    case kObjectColon: return colon;
    case kObjectAfter:
    case kArrayAfter: return after;
    default: return ByteSet();
  }
}

void Machine::MakeTable(StateId id) {
  const auto span = lists_[states_[id].nodes];
  const std::vector<uint32_t> nodes(span.begin(), span.end());
  ByteSet readable;
  std::vector<ExprId> told_apart;
  bool structural = false, lexemes = false;
  const ExprPool::Partition* partition = structural_partition_;
  for (uint32_t node : nodes) {
    const Item& item = items_[nodes_[node].item];
    readable |= NextBytes(item);
    if (item.kind == kLexeme) {
      lexemes = true;
      partition = lexer_->PartitionOf(item.a);
      lexer_->AddPartitionExpressions(item.a, &told_apart);
    } else if (!structural) {
      structural = true;
      told_apart.insert(told_apart.end(), structural_.begin(), structural_.end());
    }
  }
  if (nodes.size() > 1 && lexemes) partition = &pool_->PartitionOf(told_apart);
  const size_t size = partition->representatives.size();
  if (table_left_ < size) {
    tables_.push_back(std::make_unique_for_overwrite<StateId[]>(kTableBlock));
    table_left_ = kTableBlock;
  }
  StateId* table = tables_.back().get() + kTableBlock - table_left_;
  table_left_ -= size;
  for (size_t i = 0; i < size; ++i) table[i] = readable[partition->representatives[i]] ? kUnknown : kDeadState;
  transitions_[id] = {partition->class_of.data(), table};
}

StateId Machine::ComputeNext(StateId state, uint8_t byte) {
  if (transitions_[state].next == nullptr) {
    MakeTable(state);
    return Next(state, byte);
  }
  if (!budget_->Spend()) return kDeadState;
  const size_t number = transitions_[state].class_of[byte];
  if (const StateId base = states_[state].unblanked; base != kDeadState && !IsBlank(byte)) {
    const StateId next = Next(base, byte);
    if (budget_->ok()) transitions_[state].next[number] = next;
    return next;
  }
  // Reused: a step makes no other steps.
  Builder& builder = step_builder_;
  builder.nodes.clear();
  builder.visited.clear();
  builder.depth = 0;
  const auto span = lists_[states_[state].nodes];
  step_nodes_.assign(span.begin(), span.end());
  const std::vector<uint32_t>& nodes = step_nodes_;
  for (uint32_t node : nodes) {
    const Item item = items_[nodes_[node].item];
    Step(item, nodes_[node].below, byte, &builder);
  }
  const StateId next = Finish(&builder);
  if (!budget_->ok()) return kDeadState;
  const bool all_go_on = lists_[states_[next].nodes].size() == nodes.size();
  if (states_[state].blank && IsBlank(byte) && all_go_on && states_[next].unblanked == kDeadState) {
    const StateId base = states_[state].unblanked;
    states_[next].unblanked = base != kDeadState ? base : state;
  }
  transitions_[state].next[number] = next;
  return next;
}

bool Machine::LivesOn(StateId id, uint8_t tail) {
  if ((tail & kPlainTail) != 0 && states_[id].lives_on_text) return true;
  if ((tail & kDigitTail) == 0) return false;
  if (states_[id].loops_on_digits == Answer::kUnknown) {
    bool loops = true;
    for (uint8_t digit = '0'; digit <= '9' && loops; ++digit) loops = Next(id, digit) == id;
    if (!budget_->ok()) return false;
    states_[id].loops_on_digits = loops ? Answer::kYes : Answer::kNo;
  }
  return states_[id].loops_on_digits == Answer::kYes;
}

void Machine::Step(const Item& item, uint32_t below, uint8_t byte, Builder* out) {
  switch (item.kind) {
    case kLexeme:
      if (const LexId next = lexer_->Next(item.a, byte); next != kNoLex) AddLexeme(next, below, out);
      break;
    case kValue:
      StepValue(item, below, byte, out);
      break;
    case kObjectFirst:
    case kObjectNext:
    case kObjectColon:
    case kObjectAfter:
      StepObject(item, below, byte, out);
      break;
    case kArrayFirst:
    case kArrayNext:
    case kArrayAfter:
      StepArray(item, below, byte, out);
      break;
    default:
      break;
  }
}

bool Machine::Blank(Item item, uint32_t below, uint8_t byte, Builder* out) {
  if (!IsBlank(byte)) return false;
  if (options_.spelling == Spelling::kUsual) {
    if (UsualBlank(&item, byte)) Add(item, below, out);
  } else if (item.blanks < options_.whitespace_max) {
    ++item.blanks;
    Add(item, below, out);
  }
  return true;
}

// item->blanks: 0 nothing, 1 a space, 1 + n a line feed and n - 1 more; of a value, whitespace_max: no blanks here.
bool Machine::UsualBlank(Item* item, uint8_t byte) {
  const uint32_t most = options_.whitespace_max;
  const bool start = item->blanks == 0 && most > 0;
  switch (item->kind) {
    case kObjectColon:
      return false;
    case kValue:  // behind a colon
      if (!start || byte != ' ') return false;
      item->blanks = most;
      return true;
    case kObjectAfter:
      if (!CanClose(item->a, item->b)) return false;  // before the closing brace alone
      break;
    case kArrayAfter:
      if (!ArrayCanClose(item->a, item->b)) return false;
      break;
    default:
      break;
  }
  if (start && (byte == ' ' || byte == '\n')) {
    item->blanks = byte == ' ' ? 1 : 2;
    return true;
  }
  if (item->blanks < 2 || item->blanks > most || (byte != ' ' && byte != '\t')) return false;
  ++item->blanks;
  return true;
}

void Machine::AddLexeme(LexId lex, uint32_t below, Builder* out) {
  if (!lexer_->IsClosed(lex)) Add(Item{kLexeme, 0, lex, 0, 0}, below, out);
  const auto span = lexer_->Complete(lex);
  if (span.size() == 1) return Return(below, span[0], out);
  const std::vector<uint32_t> tags(span.begin(), span.end());
  for (uint32_t tag : tags) Return(below, tag, out);
}

void Machine::Follow(uint32_t program_state, uint32_t below, Builder* out) {
  if (!budget_->Spend()) return;
  if (out->depth > kFollowDepthMax) {
    budget_->Fail(Error(Code::kResourceExhausted, "grammar: more than {} rules begin at one place", kFollowDepthMax));
    return;
  }
  const auto key = std::make_pair(program_state, below);
  if (std::find(out->visited.begin(), out->visited.end(), key) != out->visited.end()) return;
  out->visited.push_back(key);
  ++out->depth;
  const ProgramState& state = program_->states[program_state];
  for (const ProgramEdge& edge : state.edges) {
    const auto after = [&] { return ListOf(InternNode(Item{kReturn, 0, edge.target, 0, 0}, below)); };
    switch (edge.kind) {
      case ProgramEdge::kNothing:
        Follow(edge.target, below, out);
        break;
      case ProgramEdge::kLexeme:
        if (pool_->Nullable(edge.label)) Follow(edge.target, below, out);
        if (const LexId lex = lexer_->Raw(edge.label); lex != kNoLex) Add(Item{kLexeme, 0, lex, 0, 0}, after(), out);
        break;
      case ProgramEdge::kValue:
        if (!goals_->IsEmpty(edge.label)) {
          Add(Item{kValue, options_.whitespace_max, edge.label, 0, 0}, after(), out);
        }
        break;
      case ProgramEdge::kCall:
        Follow(edge.label, after(), out);
        break;
    }
  }
  if (state.returns) Return(below, 0, out);
  --out->depth;
}

void Machine::Return(uint32_t below, uint32_t tag, Builder* out) {
  // By index: the list's storage may move while nodes are made.
  for (size_t i = 0; i < lists_[below].size(); ++i) {
    const uint32_t parent = lists_[below][i];
    const Item item = items_[nodes_[parent].item];
    const uint32_t under = nodes_[parent].below;
    switch (item.kind) {
      case kEnd:
        out->nodes.push_back(parent);
        break;
      case kReturn:
        Follow(item.a, under, out);
        break;
      case kObjectKey: {
        const ObjectState next = AfterKey(goals_->Object(item.a), object_states_[item.b], tag);
        Add(Item{kObjectColon, 0, item.a, InternObject(next), tag}, under, out);
        break;
      }
      case kObjectValue:
        Add(Item{kObjectAfter, 0, item.a, item.b, 0}, under, out);
        break;
      case kArrayValue:
        Add(Item{kArrayAfter, 0, item.a, item.b, 0}, under, out);
        break;
      default:
        break;
    }
  }
}

void Machine::StepValue(const Item& item, uint32_t below, uint8_t byte, Builder* out) {
  if (Blank(item, below, byte, out)) return;
  const GoalId goal = item.a;
  if (byte == '"') {
    const uint32_t* known = string_values_.Find(goal);
    const LexId lex = known != nullptr ? *known : lexer_->JsonString({{goals_->Strings(goal), 0}});
    if (known == nullptr) string_values_.Insert(goal, lex);
    if (lex != kNoLex) Add(Item{kLexeme, 0, lex, 0, 0}, below, out);
  } else if (byte == '{') {
    for (uint32_t shape : goals_->Objects(goal)) {
      if (goals_->ObjectUsable(shape)) Add(Item{kObjectFirst, 0, shape, InternObject(ObjectState{}), 0}, below, out);
    }
  } else if (byte == '[') {
    for (uint32_t shape : goals_->Arrays(goal)) {
      if (goals_->ArrayUsable(shape)) Add(Item{kArrayFirst, 0, shape, InternArray(ArrayState{}), 0}, below, out);
    }
  } else {
    const uint32_t* known = raw_values_.Find(goal);
    LexId lex = known != nullptr ? *known : kNoLex;
    if (known == nullptr) {
      const uint8_t literals = goals_->Literals(goal);
      std::vector<ExprId> options{options_.spelling == Spelling::kUsual ? goals_->UsualNumbers(goal) : goals_->Numbers(goal)};
      if ((literals & 1) != 0) options.push_back(pool_->Literal("null"));
      if ((literals & 2) != 0) options.push_back(pool_->Literal("false"));
      if ((literals & 4) != 0) options.push_back(pool_->Literal("true"));
      lex = lexer_->Raw(pool_->Or(std::move(options)));
      raw_values_.Insert(goal, lex);
    }
    if (lex == kNoLex) return;
    if (const LexId next = lexer_->Next(lex, byte); next != kNoLex) AddLexeme(next, below, out);
  }
}

Lexer::Coverage Machine::PlainCoverage(StateId id) {
  if (states_[id].coverage_known) return states_[id].coverage;
  Lexer::Coverage coverage;
  const auto span = lists_[states_[id].nodes];
  const std::vector<uint32_t> nodes(span.begin(), span.end());
  for (uint32_t node : nodes) {
    const Item& item = items_[nodes_[node].item];
    if (item.kind != kLexeme) continue;
    coverage.Add(lexer_->PlainCoverage(item.a));
  }
  if (nodes.size() > 1) coverage.exact = false;  // others may allow longer texts
  states_[id].coverage = coverage;
  states_[id].coverage_known = true;
  return coverage;
}

bool Machine::IsInString(StateId state, LexId* lexeme, uint32_t* below) const {
  const auto list = lists_[states_[state].nodes];
  if (list.size() != 1) return false;
  const Item& item = items_[nodes_[list[0]].item];
  *lexeme = item.a;
  *below = nodes_[list[0]].below;
  return item.kind == kLexeme && lexer_->IsOpenString(item.a);
}

StateId Machine::AfterString(uint32_t below, std::span<const uint32_t> tags) {
  const uint64_t key = Pair(below, lists_.Intern(tags));
  if (const uint32_t* known = after_strings_.Find(key)) return *known;
  Builder builder;
  for (uint32_t tag : tags) Return(below, tag, &builder);
  const StateId state = Finish(&builder);
  if (budget_->ok()) after_strings_.Insert(key, state);
  return state;
}

StateId Machine::Remember(StateId state, std::string_view bytes) {
  if (!states_[state].pending) return state;
  Builder builder;
  const auto span = lists_[states_[state].nodes];
  const std::vector<uint32_t> nodes(span.begin(), span.end());
  for (uint32_t node : nodes) {
    builder.nodes.push_back(InternNode(RememberItem(items_[nodes_[node].item], bytes), nodes_[node].below));
  }
  return Finish(&builder);
}

}  // namespace deepinfer::grammar
