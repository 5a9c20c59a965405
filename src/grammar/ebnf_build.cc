// SPDX-License-Identifier: Apache-2.0
// Rules to a program: checks names, drops what can never end, rewrites direct left recursion, and turns every part that
// does not recurse into one expression.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "grammar/ebnf.h"

namespace deepinfer::grammar {
namespace {

constexpr uint64_t kCopiesMax = 2000;    // of a recursive part under a counted repeat
constexpr size_t kStatesMax = 500'000;

class RuleBuilder {
 public:
  RuleBuilder(Engine* engine, GrammarRules rules, Program* program)
      : engine_(engine), pool_(engine->pool()), rules_(std::move(rules)), program_(program) {}

  Status Build() {
    for (size_t i = 0; i < rules_.rules.size(); ++i) {
      const auto& rule = rules_.rules[i];
      if (!index_.try_emplace(rule.name, i).second) {
        return Error(Code::kInvalidArgument, "grammar: line {}: rule \"{}\" is defined twice", rule.line, rule.name);
      }
    }
    if (index_.count(rules_.root) == 0) return Error(Code::kInvalidArgument, "grammar: there is no rule \"{}\"", rules_.root);
    for (const auto& rule : rules_.rules) DI_RETURN_IF_ERROR(CheckNames(rule.body));
    FindProductive();
    FindNullable();
    const size_t root = index_[rules_.root];
    if (!productive_[root]) return Error(Code::kInvalidArgument, "grammar: unsatisfiable: rule \"{}\" never ends", rules_.root);
    for (size_t i = 0; i < rules_.rules.size(); ++i) RewriteLeftRecursion(&rules_.rules[i]);
    DI_RETURN_IF_ERROR(CheckLeftRecursion());
    FindRegular();
    starts_.assign(rules_.rules.size(), UINT32_MAX);
    DI_ASSIGN_OR_RETURN(program_->start, StartOf(root));
    while (!todo_.empty()) {
      const size_t rule = todo_.back();
      todo_.pop_back();
      const uint32_t end = program_->AddState();
      program_->states[end].returns = true;
      DI_RETURN_IF_ERROR(Emit(rules_.rules[rule].body, starts_[rule], end));
    }
    return Status();
  }

 private:
  Status CheckNames(const GrammarNode& node) {
    if (node.kind == GrammarNode::kRule && index_.count(node.name) == 0) {
      return Error(Code::kInvalidArgument, "grammar: line {}: rule \"{}\" is not defined", node.line, node.name);
    }
    for (const GrammarNode& child : node.children) DI_RETURN_IF_ERROR(CheckNames(child));
    return Status();
  }

  template <typename RuleFact>
  static bool Any(const GrammarNode& node, RuleFact fact) {
    return std::any_of(node.children.begin(), node.children.end(), fact);
  }

  bool Productive(const GrammarNode& node) {
    const auto productive = [&](const GrammarNode& child) { return Productive(child); };
    switch (node.kind) {
      case GrammarNode::kExpr: return !pool_->IsEmpty(node.expr);
      case GrammarNode::kJson: return !engine_->goals()->IsEmpty(node.goal);
      case GrammarNode::kRule: return productive_[index_[node.name]];
      case GrammarNode::kSequence: return std::all_of(node.children.begin(), node.children.end(), productive);
      case GrammarNode::kAlternatives: return Any(node, productive);
      case GrammarNode::kRepeat: return node.min == 0 || Productive(node.children[0]);
    }
    return false;
  }
  bool Nullable(const GrammarNode& node) {
    const auto nullable = [&](const GrammarNode& child) { return Nullable(child); };
    switch (node.kind) {
      case GrammarNode::kExpr: return pool_->Nullable(node.expr);
      case GrammarNode::kJson: return false;
      case GrammarNode::kRule: return nullable_[index_[node.name]];
      case GrammarNode::kSequence: return std::all_of(node.children.begin(), node.children.end(), nullable);
      case GrammarNode::kAlternatives: return Any(node, nullable);
      case GrammarNode::kRepeat: return node.min == 0 || Nullable(node.children[0]);
    }
    return false;
  }
  template <typename Fact>
  void Fixpoint(std::vector<bool>* facts, Fact fact) {
    facts->assign(rules_.rules.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < rules_.rules.size(); ++i) {
        if ((*facts)[i] || !engine_->budget()->Spend() || !fact(rules_.rules[i].body)) continue;
        (*facts)[i] = true;
        changed = true;
      }
    }
  }
  void FindProductive() {
    Fixpoint(&productive_, [&](const GrammarNode& node) { return Productive(node); });
  }
  void FindNullable() {
    Fixpoint(&nullable_, [&](const GrammarNode& node) { return Nullable(node); });
  }

  // a ::= a x | y  becomes  a ::= y x*.
  void RewriteLeftRecursion(GrammarRules::Rule* rule) {
    if (rule->body.kind != GrammarNode::kAlternatives) return;
    std::vector<GrammarNode> heads, tails;
    for (GrammarNode& branch : rule->body.children) {
      const bool recursive = branch.kind == GrammarNode::kSequence && !branch.children.empty() &&
                             branch.children[0].kind == GrammarNode::kRule && branch.children[0].name == rule->name;
      if (!recursive) {
        heads.push_back(branch);
        continue;
      }
      GrammarNode tail = branch;
      tail.children.erase(tail.children.begin());
      if (!tail.children.empty()) tails.push_back(std::move(tail));
    }
    if (heads.size() == rule->body.children.size()) return;
    GrammarNode head, tail, loop, sequence;
    head.kind = tail.kind = GrammarNode::kAlternatives;
    head.children = std::move(heads);
    tail.children = std::move(tails);
    loop.kind = GrammarNode::kRepeat;
    loop.max = kNoMax;
    loop.children.push_back(std::move(tail));
    sequence.children.push_back(std::move(head));
    sequence.children.push_back(std::move(loop));
    rule->body = std::move(sequence);
  }

  // Rules that can stand at the very beginning of a node.
  void FirstRules(const GrammarNode& node, std::set<size_t>* out) {
    switch (node.kind) {
      case GrammarNode::kRule:
        out->insert(index_[node.name]);
        break;
      case GrammarNode::kSequence:
        for (const GrammarNode& child : node.children) {
          FirstRules(child, out);
          if (!Nullable(child)) break;
        }
        break;
      default:
        for (const GrammarNode& child : node.children) FirstRules(child, out);
        break;
    }
  }

  Status CheckLeftRecursion() {
    std::vector<std::set<size_t>> first(rules_.rules.size());
    std::vector<size_t> incoming(rules_.rules.size(), 0);
    for (size_t i = 0; i < first.size(); ++i) {
      FirstRules(rules_.rules[i].body, &first[i]);
      for (size_t other : first[i]) ++incoming[other];
    }
    // Rules left over when those that nothing left begins with are taken away one by one lie on or behind a cycle.
    std::vector<size_t> free;
    for (size_t i = 0; i < first.size(); ++i) {
      if (incoming[i] == 0) free.push_back(i);
    }
    while (!free.empty()) {
      const size_t rule = free.back();
      free.pop_back();
      for (size_t other : first[rule]) {
        if (--incoming[other] == 0) free.push_back(other);
      }
    }
    for (size_t i = 0; i < first.size(); ++i) {
      if (incoming[i] == 0) continue;
      return Error(Code::kUnimplemented, "grammar: line {}: rule \"{}\" is left-recursive through other rules; write it with a repeat",
                   rules_.rules[i].line, rules_.rules[i].name);
    }
    return Status();
  }

  // Which rules are one expression: those that reach neither themselves nor a JSON value.
  void FindRegular() {
    regular_.assign(rules_.rules.size(), std::nullopt);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < rules_.rules.size(); ++i) {
        if (regular_[i] || !engine_->budget()->Spend()) continue;
        if (const auto expr = Regular(rules_.rules[i].body)) {
          regular_[i] = expr;
          changed = true;
        }
      }
    }
  }
  std::optional<ExprId> Regular(const GrammarNode& node) {
    switch (node.kind) {
      case GrammarNode::kExpr: return node.expr;
      case GrammarNode::kJson: return std::nullopt;
      case GrammarNode::kRule: return regular_[index_[node.name]];
      case GrammarNode::kRepeat: {
        const auto inner = Regular(node.children[0]);
        if (!inner) return std::nullopt;
        return pool_->Repeat(*inner, node.min, node.max);
      }
      default: break;
    }
    std::vector<ExprId> parts;
    for (const GrammarNode& child : node.children) {
      const auto part = Regular(child);
      if (!part) return std::nullopt;
      parts.push_back(*part);
    }
    if (node.kind == GrammarNode::kAlternatives) return pool_->Or(std::move(parts));
    ExprId all = ExprPool::kEpsilon;
    for (size_t i = parts.size(); i-- > 0;) all = pool_->Concat(parts[i], all);
    return all;
  }

  Result<uint32_t> StartOf(size_t rule) {
    if (starts_[rule] == UINT32_MAX) {
      starts_[rule] = program_->AddState();
      todo_.push_back(rule);
    }
    return starts_[rule];
  }

  Status Emit(const GrammarNode& node, uint32_t from, uint32_t to) {
    if (!engine_->budget()->Spend() || program_->states.size() > kStatesMax) {
      return Error(Code::kResourceExhausted, "grammar: line {}: too large", node.line);
    }
    if (!Productive(node)) return Status();
    if (const auto expr = Regular(node)) {
      program_->AddEdge(from, ProgramEdge::kLexeme, *expr, to);
      return Status();
    }
    switch (node.kind) {
      case GrammarNode::kRule: {
        DI_ASSIGN_OR_RETURN(const uint32_t start, StartOf(index_[node.name]));
        program_->AddEdge(from, ProgramEdge::kCall, start, to);
        return Status();
      }
      case GrammarNode::kJson:
        program_->AddEdge(from, ProgramEdge::kValue, node.goal, to);
        return Status();
      case GrammarNode::kAlternatives:
        for (const GrammarNode& child : node.children) DI_RETURN_IF_ERROR(Emit(child, from, to));
        return Status();
      case GrammarNode::kRepeat:
        return EmitRepeat(node, from, to);
      default:
        return EmitSequence(node, from, to);
    }
  }

  Status EmitSequence(const GrammarNode& node, uint32_t from, uint32_t to) {
    for (size_t i = 0; i < node.children.size(); ++i) {
      const uint32_t next = i + 1 == node.children.size() ? to : program_->AddState();
      DI_RETURN_IF_ERROR(Emit(node.children[i], from, next));
      from = next;
    }
    return Status();
  }

  Status EmitRepeat(const GrammarNode& node, uint32_t from, uint32_t to) {
    const uint64_t copies = node.max == kNoMax ? node.min : node.max;
    if (copies > kCopiesMax) {
      return Error(Code::kResourceExhausted, "grammar: line {}: more than {} repeats of a recursive part", node.line, kCopiesMax);
    }
    for (uint64_t i = 0; i < copies; ++i) {
      if (i >= node.min) program_->AddEdge(from, ProgramEdge::kNothing, 0, to);
      const uint32_t next = program_->AddState();
      DI_RETURN_IF_ERROR(Emit(node.children[0], from, next));
      from = next;
    }
    if (node.max != kNoMax) {
      program_->AddEdge(from, ProgramEdge::kNothing, 0, to);
      return Status();
    }
    // A state of its own: alternatives of the repeat may begin at `from` too, and must not follow it.
    const uint32_t loop = program_->AddState();
    program_->AddEdge(from, ProgramEdge::kNothing, 0, loop);
    program_->AddEdge(loop, ProgramEdge::kNothing, 0, to);
    return Emit(node.children[0], loop, loop);
  }

  Engine* engine_;
  ExprPool* pool_;
  GrammarRules rules_;
  Program* program_;
  std::map<std::string, size_t> index_;
  std::vector<bool> productive_, nullable_;
  std::vector<std::optional<ExprId>> regular_;
  std::vector<uint32_t> starts_;
  std::vector<size_t> todo_;
};

}  // namespace

Status BuildRules(Engine* engine, GrammarRules rules, Program* program) {
  return RuleBuilder(engine, std::move(rules), program).Build();
}

}  // namespace deepinfer::grammar
