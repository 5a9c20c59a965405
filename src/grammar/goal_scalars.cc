// SPDX-License-Identifier: Apache-2.0
// The scalar part of goals: which strings, numbers and literals satisfy a schema, as expressions. Numbers without any
// constraint may have exponents; all others live among plain spellings (grammar/number.h), so complements are taken
// there and the whole universe is recognised by its id.
#include <algorithm>

#include "grammar/goal.h"

namespace deepinfer::grammar {

ExprId Goals::AndIn(ExprId universe, ExprId a, ExprId b) {
  if (a == universe) return b;
  if (b == universe) return a;
  return pool_->And(a, b);
}

ExprId Goals::OrIn(ExprId universe, ExprId a, ExprId b) {
  if (a == universe || b == universe) return universe;
  return pool_->Or(a, b);
}

ExprId Goals::NotIn(ExprId universe, ExprId a) {
  if (a == universe) return ExprPool::kEmpty;
  if (a == ExprPool::kEmpty) return universe;
  return pool_->And(universe, pool_->Not(a));
}

Goals::Scalars Goals::AndScalars(const Scalars& a, const Scalars& b) {
  return {AndIn(text_, a.strings, b.strings), AndIn(plain_number_, a.numbers, b.numbers),
          static_cast<uint8_t>(a.literals & b.literals), a.whole || b.whole};
}

Goals::Scalars Goals::OrScalars(const Scalars& a, const Scalars& b) {
  return {OrIn(text_, a.strings, b.strings), OrIn(plain_number_, a.numbers, b.numbers),
          static_cast<uint8_t>(a.literals | b.literals), IsWhole(a) && IsWhole(b)};
}

bool Goals::IsWhole(const Scalars& scalars) { return scalars.whole || scalars.numbers == ExprPool::kEmpty; }

Goals::Scalars Goals::NotScalars(const Scalars& a) {
  return {NotIn(text_, a.strings), NotIn(plain_number_, a.numbers), static_cast<uint8_t>(7 & ~a.literals)};
}

Goals::Scalars Goals::ConstScalars(const Json& value) {
  Scalars none;
  if (value.IsNull()) none.literals = 1;
  if (value.IsBool()) none.literals = value.AsBool() ? 4 : 2;
  if (value.IsString()) none.strings = pool_->Literal(value.AsString());
  if (value.IsNumber()) {
    auto decimal = ParseDecimal(value.Literal());
    if (decimal.ok()) {
      none.numbers = NumberEquals(pool_, *decimal);
      none.whole = value.Literal().find_first_of(".eE") == std::string::npos;
    } else if (error_.ok() && !running_) {
      error_ = decimal.status();
    }
  }
  return none;
}

Goals::Scalars Goals::ExactlyOne(const std::vector<NodeId>& list) {
  Scalars one, any;
  one.whole = true;
  for (NodeId node : list) {
    const Scalars next = NodeScalars(node);
    one.whole = one.whole && IsWhole(next);
    // Branches that do not overlap need no complements, which keeps the expressions small.
    const auto step = [&](ExprId universe, ExprId x, ExprId* one_part, ExprId* any_part) {
      if (x == ExprPool::kEmpty) return;
      const ExprId both = AndIn(universe, *any_part, x);
      if (both == ExprPool::kEmpty || pool_->IsEmpty(both)) {
        *one_part = OrIn(universe, *one_part, x);
      } else {
        *one_part = OrIn(universe, AndIn(universe, *one_part, NotIn(universe, x)), AndIn(universe, x, NotIn(universe, *any_part)));
      }
      *any_part = OrIn(universe, *any_part, x);
    };
    step(text_, next.strings, &one.strings, &any.strings);
    step(plain_number_, next.numbers, &one.numbers, &any.numbers);
    one.literals = static_cast<uint8_t>((one.literals & ~next.literals) | (next.literals & ~any.literals));
    any.literals |= next.literals;
  }
  return one;
}

Goals::Scalars Goals::KeywordScalars(const SchemaNode& node) {
  Scalars result{(node.types & kString) != 0 ? text_ : ExprPool::kEmpty,
                 (node.types & kNumber) != 0 ? plain_number_ : ExprPool::kEmpty,
                 static_cast<uint8_t>(((node.types & kNull) != 0 ? 1 : 0) | ((node.types & kBoolean) != 0 ? 6 : 0))};
  if (node.has_enum) {
    Scalars any;
    std::vector<ExprId> strings, numbers;
    any.whole = true;
    for (NodeId value : node.enumeration) {
      const Scalars one = NodeScalars(value);
      any.whole = any.whole && IsWhole(one);
      strings.push_back(one.strings);
      numbers.push_back(one.numbers);
      any.literals |= one.literals;
    }
    any.strings = pool_->Or(std::move(strings));
    any.numbers = pool_->Or(std::move(numbers));
    result = AndScalars(result, any);
  }
  if (result.strings != ExprPool::kEmpty) {
    for (ExprId expr : node.strings) result.strings = AndIn(text_, result.strings, expr);
  }
  if (result.numbers != ExprPool::kEmpty) {
    if (node.integer_only) {
      result.whole = true;
      result.numbers = AndIn(plain_number_, result.numbers, graph_->integers_are_spelled_so() ? spelled_integers_ : integers_);
    }
    for (const NumberBound& bound : node.bounds) {
      const ExprId range = bound.lower ? NumberAtLeast(pool_, bound.value, bound.strict)
                                       : NumberAtMost(pool_, bound.value, bound.strict);
      result.numbers = AndIn(plain_number_, result.numbers, range);
    }
    for (const Decimal& divisor : node.multiple_of) {
      result.numbers = AndIn(plain_number_, result.numbers, *NumberMultipleOf(pool_, divisor));
    }
  }
  const auto both = [&](const Scalars& other) { result = AndScalars(result, other); };
  if (node.ref != kNoNode) both(NodeScalars(node.ref));
  for (NodeId child : node.all_of) both(NodeScalars(child));
  if (node.has_any_of) {
    Scalars any;
    for (NodeId child : node.any_of) any = OrScalars(any, NodeScalars(child));
    both(any);
  }
  if (node.has_one_of) both(ExactlyOne(node.one_of));
  if (node.negated != kNoNode) both(NotScalars(NodeScalars(node.negated)));
  if (node.condition != kNoNode && (node.then_node != kNoNode || node.else_node != kNoNode)) {
    const Scalars condition = NodeScalars(node.condition);
    const Scalars all = NodeScalars(kTrueNode);
    const Scalars then_part = node.then_node == kNoNode ? all : NodeScalars(node.then_node);
    const Scalars else_part = node.else_node == kNoNode ? all : NodeScalars(node.else_node);
    both(OrScalars(AndScalars(condition, then_part), AndScalars(NotScalars(condition), else_part)));
  }
  return result;
}

Goals::Scalars Goals::NodeScalars(NodeId id) {
  const auto known = node_scalars_.find(id);
  if (known != node_scalars_.end()) return known->second;
  const SchemaNode& node = (*graph_)[id];
  if (!budget_->Spend()) return Scalars{};
  if (scalars_running_[id]) {
    Fail(node, "$ref", "it refers to itself without consuming anything");
    return Scalars{};
  }
  scalars_running_[id] = true;
  Scalars result;
  switch (node.form) {
    case SchemaNode::Form::kTrue:
      result = {text_, plain_number_, 7};
      break;
    case SchemaNode::Form::kFalse:
      break;
    case SchemaNode::Form::kConst:
      result = ConstScalars(*node.value);
      break;
    case SchemaNode::Form::kAnyOf:
      for (NodeId child : node.any_of) result = OrScalars(result, NodeScalars(child));
      break;
    case SchemaNode::Form::kKeywords:
      result = KeywordScalars(node);
      break;
  }
  scalars_running_[id] = false;
  node_scalars_[id] = result;
  return result;
}

const Goals::Scalars& Goals::ScalarsOf(GoalId goal) {
  if (goals_[goal].scalars_known) return goals_[goal].scalars;
  Scalars result{text_, plain_number_, 7};
  for (uint32_t literal : goals_[goal].literals) {
    const Scalars one = NodeScalars(literal >> 1);
    result = AndScalars(result, (literal & 1) != 0 ? NotScalars(one) : one);
  }
  if (result.numbers == plain_number_) result.numbers = any_number_;
  if (result.numbers != ExprPool::kEmpty && result.numbers != any_number_ && pool_->IsEmpty(result.numbers)) {
    result.numbers = ExprPool::kEmpty;
  }
  if (result.strings != ExprPool::kEmpty && result.strings != text_ && pool_->IsEmpty(result.strings)) {
    result.strings = ExprPool::kEmpty;
  }
  goals_[goal].scalars = result;
  goals_[goal].scalars_known = true;
  return goals_[goal].scalars;
}

}  // namespace deepinfer::grammar
