// SPDX-License-Identifier: Apache-2.0
// Context-free grammars as text: GBNF (llama.cpp's spelling) and a Lark-like spelling, to a Program. Rules that do not
// recurse become single expressions. Left recursion of the form `a ::= a x | y` is rewritten; other left recursion is
// refused. Errors name the rule and the line.
//
// Besides the usual syntax both know <[id]>: the special token of that id. Lark also knows %json {schema}.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/engine.h"
#include "grammar/program.h"

namespace deepinfer::grammar {

// A right-hand side. Plain data.
struct GrammarNode {
  enum Kind { kExpr, kRule, kSequence, kAlternatives, kRepeat, kJson } kind = kSequence;
  ExprId expr = 0;     // kExpr
  GoalId goal = 0;     // kJson
  std::string name;    // kRule
  size_t line = 0;
  uint64_t min = 0, max = 0;
  std::vector<GrammarNode> children;
};

struct GrammarRules {
  struct Rule {
    std::string name;
    size_t line = 0;
    GrammarNode body;
  };
  std::vector<Rule> rules;
  std::string root;
};

Result<GrammarRules> ParseGbnf(Engine* engine, std::string_view text);
Result<GrammarRules> ParseLark(Engine* engine, std::string_view text, std::vector<GoalId>* roots);
Status BuildRules(Engine* engine, GrammarRules rules, Program* program);

Status BuildStructuralTag(Engine* engine, const std::string& json, Program* program, std::vector<GoalId>* roots);
Status BuildDsml(Engine* engine, const Constraint& constraint, Program* program, std::vector<GoalId>* roots);

}  // namespace deepinfer::grammar
