// SPDX-License-Identifier: Apache-2.0
// Arrays: keywords to shapes, and whether a half-written array can still be finished.
#include <algorithm>

#include "grammar/goal.h"

namespace deepinfer::grammar {

Goals::ArrayPart Goals::OwnKeywords(const SchemaNode& node, bool evaluate, ArrayPart*) {
  ArrayPart part;
  for (NodeId child : node.prefix_items) part.shape.prefix.push_back(Of(child));
  if (node.items != kNoNode) part.shape.rest = Of(node.items);
  part.shape.min = node.min_items;
  part.shape.max = node.max_items;
  part.shape.unique = node.unique_items;
  if (node.contains != kNoNode && (node.min_contains > 0 || node.max_contains != kNoMax)) {
    Obligation obligation;
    obligation.goal = Of(node.contains);
    obligation.denied = Of(node.contains, true);
    obligation.lo = node.min_contains;
    obligation.hi = node.max_contains;
    part.shape.obligations.push_back(obligation);
  }
  if (evaluate) {
    part.evaluated.prefix = node.prefix_items.size();
    part.evaluated.all = node.items != kNoNode;
    if (node.contains != kNoNode && graph_->contains_evaluates()) part.evaluated.contains.push_back(node.contains);
  }
  return part;
}

std::vector<Goals::ArrayPart> Goals::DenyOwn(const SchemaNode& node, ArrayPart*) {
  std::vector<ArrayPart> out;
  const auto add = [&]() -> ArrayShape& { return out.emplace_back().shape; };
  const uint64_t prefix = node.prefix_items.size();
  for (size_t i = 0; i < prefix; ++i) {
    if (node.prefix_items[i] == kTrueNode) continue;
    ArrayShape& shape = add();
    shape.prefix.assign(i, kAnyGoal);
    shape.prefix.push_back(Of(node.prefix_items[i], true));
    shape.min = i + 1;
  }
  if (node.items == kFalseNode) {
    add().min = prefix + 1;
  } else if (node.items != kNoNode && node.items != kTrueNode) {
    Obligation obligation;
    obligation.goal = Of(node.items, true);
    obligation.from = prefix;
    add().obligations.push_back(obligation);
  }
  if (node.min_items > 0) add().max = node.min_items - 1;
  if (node.max_items != kNoMax) add().min = node.max_items + 1;
  if (node.unique_items) Fail(node, "uniqueItems", "it stands below a negation");
  if (node.contains != kNoNode) {
    Obligation obligation;
    obligation.goal = Of(node.contains);
    obligation.denied = Of(node.contains, true);
    if (node.min_contains > 0) {
      obligation.lo = 0;
      obligation.hi = node.min_contains - 1;
      add().obligations.push_back(obligation);
    }
    if (node.max_contains != kNoMax) {
      obligation.lo = node.max_contains + 1;
      obligation.hi = kNoMax;
      add().obligations.push_back(obligation);
    }
  }
  return out;
}

std::vector<Goals::ArrayPart> Goals::ConstPart(const Json& value, bool denied, ArrayPart*) {
  if (!value.IsArray()) return std::vector<ArrayPart>(denied ? 1 : 0);
  const uint64_t size = value.Items().size();
  std::vector<ArrayPart> out;
  ArrayPart same;
  same.shape.min = same.shape.max = size;
  for (const Json& item : value.Items()) {
    const NodeId node = graph_->ConstNode(item);
    ArrayShape& different = out.emplace_back().shape;
    different.prefix.assign(same.shape.prefix.size(), kAnyGoal);
    different.prefix.push_back(Of(node, true));
    different.min = different.max = size;
    same.shape.prefix.push_back(Of(node));
  }
  if (!denied) return {same};
  if (size > 0) out.emplace_back().shape.max = size - 1;
  out.emplace_back().shape.min = size + 1;
  return out;
}

std::vector<Goals::ArrayPart> Goals::DependentSchemas(const SchemaNode&, bool denied, bool, ArrayPart*) {
  return std::vector<ArrayPart>(denied ? 0 : 1);
}

void Goals::Unevaluated(const SchemaNode& node, ArrayPart* part) {
  if (!part->evaluated.all) {
    GoalId goal = Of(node.unevaluated_items);
    if (!part->evaluated.contains.empty()) {
      std::vector<NodeId> list = part->evaluated.contains;
      list.push_back(node.unevaluated_items);
      goal = Of(graph_->AnyOfNode(std::move(list)));
    }
    ArrayShape& shape = part->shape;
    while (shape.prefix.size() < part->evaluated.prefix) shape.prefix.push_back(shape.rest);
    for (size_t i = part->evaluated.prefix; i < shape.prefix.size(); ++i) shape.prefix[i] = Join(shape.prefix[i], goal);
    shape.rest = Join(shape.rest, goal);
  }
  part->evaluated.all = true;
}

bool Goals::Merge(const ArrayPart& a, const ArrayPart& b, ArrayPart* out) {
  const size_t prefix = std::max(a.shape.prefix.size(), b.shape.prefix.size());
  for (size_t i = 0; i < prefix; ++i) out->shape.prefix.push_back(Join(a.shape.At(i), b.shape.At(i)));
  out->shape.rest = Join(a.shape.rest, b.shape.rest);
  out->shape.min = std::max(a.shape.min, b.shape.min);
  out->shape.max = std::min(a.shape.max, b.shape.max);
  out->shape.unique = a.shape.unique || b.shape.unique;
  out->shape.obligations = a.shape.obligations;
  out->shape.obligations.insert(out->shape.obligations.end(), b.shape.obligations.begin(), b.shape.obligations.end());
  out->evaluated = a.evaluated;
  out->evaluated.all |= b.evaluated.all;
  out->evaluated.prefix = std::max(a.evaluated.prefix, b.evaluated.prefix);
  out->evaluated.contains.insert(out->evaluated.contains.end(), b.evaluated.contains.begin(), b.evaluated.contains.end());
  return out->shape.min <= out->shape.max;
}

GoalId Goals::ElementGoal(const ArrayShape& shape, const ArrayState& state) {
  const GoalId goal = shape.At(state.index);
  if (state.values.empty()) return goal;
  std::vector<uint32_t> literals = goals_[goal].literals;
  for (NodeId value : state.values) literals.push_back(value << 1 | 1);
  return Intern(std::move(literals));
}

// Goals with few values choose first; each has to spare a value for those before it that overlap with it.
bool Goals::CanDiffer(const std::vector<std::pair<GoalId, uint64_t>>& list) {
  uint64_t total = 0;
  std::map<GoalId, uint64_t> goals;
  for (const auto& [goal, times] : list) {
    goals[goal] += times;
    total += times;
  }
  if (total < 2) return true;
  struct Choice {
    uint64_t values = 0, times = 0;
    GoalId goal = kNoGoal;
    auto operator<=>(const Choice&) const = default;
  };
  std::vector<Choice> order;
  for (const auto& [goal, times] : goals) order.push_back({CountValues(goal, total), times, goal});
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) {
    uint64_t taken = order[i].times;
    for (size_t j = 0; j < i && order[i].values < total; ++j) {
      if (!budget_->Spend()) return false;
      if (!IsEmpty(Join(order[i].goal, order[j].goal))) taken += order[j].times;
    }
    if (order[i].values < taken) return false;
  }
  return true;
}

// Tries elements one after the other until all obligations are met; each may count for any set of them.
bool Goals::FinishElements(const ArrayShape& shape, ArrayState state, int depth, std::vector<GoalId>* chosen_goals) {
  state.counts.resize(shape.obligations.size(), 0);
  bool met = state.index >= shape.min;
  uint32_t open = 0;
  for (size_t i = 0; i < shape.obligations.size(); ++i) {
    const Obligation& obligation = shape.obligations[i];
    met = met && state.counts[i] >= obligation.lo;
    const bool matters = state.counts[i] < obligation.lo || obligation.hi != kNoMax;
    if (matters && state.index >= obligation.from) open |= 1u << i;
  }
  if (shape.unique) {
    std::vector<std::pair<GoalId, uint64_t>> goals;
    for (GoalId goal : *chosen_goals) goals.emplace_back(goal, 1);
    if (!CanDiffer(goals)) return false;
  }
  if (met) return true;
  if (state.index >= shape.max || depth > 300 || !budget_->Spend()) return false;
  // Where the index no longer matters, an element that meets nothing is of no use.
  bool index_matters = state.index < std::max<uint64_t>(shape.prefix.size(), shape.min);
  uint32_t missing = 0;
  for (size_t i = 0; i < shape.obligations.size(); ++i) {
    index_matters = index_matters || state.index < shape.obligations[i].from;
    if (state.counts[i] < shape.obligations[i].lo) missing |= 1u << i;
  }
  // Counting for as much as possible comes first.
  for (uint32_t chosen = open;; chosen = (chosen - 1) & open) {
    if (!index_matters && (chosen & missing) == 0) {
      if (chosen == 0) return false;
      continue;
    }
    GoalId goal = ElementGoal(shape, state);
    ArrayState next = state;
    ++next.index;
    bool fits = true;
    for (size_t i = 0; i < shape.obligations.size(); ++i) {
      const Obligation& obligation = shape.obligations[i];
      if ((chosen >> i & 1) != 0) {
        goal = Join(goal, obligation.goal);
        fits = fits && ++next.counts[i] <= obligation.hi;
      } else if ((open >> i & 1) != 0 && obligation.hi != kNoMax) {
        goal = Join(goal, obligation.denied);
      }
    }
    if (fits && !IsEmpty(goal)) {
      chosen_goals->push_back(goal);
      if (FinishElements(shape, next, depth + 1, chosen_goals)) return true;
      chosen_goals->pop_back();
    }
    if (chosen == 0) return false;
  }
}

bool Goals::CanFinish(const ArrayShape& shape, const ArrayState& state) {
  if (shape.obligations.size() > 16) {
    Fail(SchemaNode{}, "contains", "too many at once");
    return false;
  }
  if (state.index > shape.max) return false;
  if (!shape.obligations.empty()) {
    std::vector<GoalId> chosen;
    return FinishElements(shape, state, 0, &chosen);
  }
  if (state.index >= shape.min) return true;
  std::vector<std::pair<GoalId, uint64_t>> goals;
  for (uint64_t i = state.index; i < shape.min; ++i) {
    ArrayState at = state;
    at.index = i;
    const bool last = i >= shape.prefix.size();
    goals.emplace_back(ElementGoal(shape, at), last ? shape.min - i : 1);
    if (IsEmpty(goals.back().first)) return false;
    if (last) break;
  }
  return !shape.unique || CanDiffer(goals);
}

}  // namespace deepinfer::grammar
