// SPDX-License-Identifier: Apache-2.0
// A constraint above the level of lexemes: a small automaton per rule whose edges read a lexeme, read a JSON value of a
// goal, or call another rule. Front ends build it; the machine runs it. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/expr.h"
#include "grammar/goal.h"

namespace deepinfer::grammar {

struct ProgramEdge {
  enum Kind : uint8_t { kNothing, kLexeme, kValue, kCall } kind = kNothing;
  uint32_t label = 0;   // expression, goal, or first state of the rule
  uint32_t target = 0;  // state after it
};

struct ProgramState {
  std::vector<ProgramEdge> edges;
  bool returns = false;  // the rule may end here
};

class Program {
 public:
  uint32_t AddState() {
    states.emplace_back();
    return static_cast<uint32_t>(states.size() - 1);
  }
  void AddEdge(uint32_t from, ProgramEdge::Kind kind, uint32_t label, uint32_t to) {
    states[from].edges.push_back({kind, label, to});
  }

  std::vector<ProgramState> states;
  uint32_t start = 0;
};

}  // namespace deepinfer::grammar
