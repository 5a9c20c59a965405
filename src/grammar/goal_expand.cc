// SPDX-License-Identifier: Apache-2.0
// From schemas to alternatives. A schema, asserted or denied, is turned into a list of plain conjunctions for one type
// (arrays or objects): allOf multiplies the lists, anyOf joins them, `not` swaps the roles and pushes the denial down
// to single keywords, so nothing but assertions about elements and members is left. oneOf denies a sibling only where
// the two can hold together. For unevaluated* a disjunct also carries what its branches have evaluated, and anyOf is
// opened into the sets of branches that hold.
#include <algorithm>

#include "grammar/goal.h"

namespace deepinfer::grammar {
namespace {

constexpr size_t kPartsMax = 2000;

}  // namespace

template <typename Part>
std::vector<Part> Goals::Product(const SchemaNode& node, const std::vector<Part>& a, const std::vector<Part>& b) {
  std::vector<Part> out;
  for (const Part& x : a) {
    for (const Part& y : b) {
      if (!budget_->Spend()) return {};
      Part merged;
      if (Merge(x, y, &merged)) out.push_back(std::move(merged));
      if (out.size() > kPartsMax) {
        Fail(node, node.has_one_of ? "oneOf" : node.has_any_of ? "anyOf" : node.negated != kNoNode ? "not" : "allOf",
             "it has too many alternatives");
        return {};
      }
    }
  }
  return out;
}

template <typename Part>
std::vector<Part> Goals::AnyOf(const std::vector<NodeId>& list, bool evaluate) {
  std::vector<Part> out;
  if (!evaluate) {
    for (NodeId child : list) {
      for (Part& part : Expand<Part>(child, false, false)) out.push_back(std::move(part));
    }
    return out;
  }
  const SchemaNode& node = (*graph_)[list.empty() ? kTrueNode : list[0]];
  if (list.size() > 6) {
    Fail(node, "anyOf", "it has more than 6 branches beside an unevaluated keyword");
    return {};
  }
  for (uint32_t subset = 1; subset < (1u << list.size()); ++subset) {
    std::vector<Part> parts(1);
    for (size_t i = 0; i < list.size(); ++i) {
      if ((subset >> i & 1) != 0) parts = Product<Part>(node, parts, Expand<Part>(list[i], false, true));
    }
    for (Part& part : parts) out.push_back(std::move(part));
  }
  return out;
}

template <typename Part>
std::vector<Part> Goals::OneOf(const SchemaNode& node, bool evaluate) {
  constexpr uint8_t kType = std::is_same_v<Part, ObjectPart> ? kObject : kArray;
  std::vector<Part> out;
  for (size_t i = 0; i < node.one_of.size(); ++i) {
    std::vector<Part> parts = Expand<Part>(node.one_of[i], false, evaluate);
    for (size_t j = 0; j < node.one_of.size() && !parts.empty(); ++j) {
      if (i == j || !MayOverlap(node.one_of[i], node.one_of[j], kType)) continue;
      parts = Product<Part>(node, parts, Expand<Part>(node.one_of[j], true, false));
    }
    for (Part& part : parts) out.push_back(std::move(part));
    if (!error_.ok() || !budget_->ok()) return {};
  }
  return out;
}

template <typename Part>
std::vector<Part> Goals::Conditional(const SchemaNode& node, bool denied, bool evaluate) {
  const auto branch = [&](bool condition, NodeId consequence) {
    std::vector<Part> parts = Expand<Part>(node.condition, !condition, evaluate && condition);
    if (consequence == kNoNode) return denied ? std::vector<Part>{} : parts;
    return Product<Part>(node, parts, Expand<Part>(consequence, denied, evaluate && !denied));
  };
  std::vector<Part> out = branch(true, node.then_node);
  for (Part& part : branch(false, node.else_node)) out.push_back(std::move(part));
  return out;
}

template <typename Part>
std::vector<Part> Goals::ExpandApplicator(const SchemaNode& node, char kind, bool evaluate) {
  std::vector<Part> parts(1);
  switch (kind) {
    case 'p':
      parts[0] = OwnKeywords(node, evaluate, static_cast<Part*>(nullptr));
      break;
    case 'a':
      for (NodeId child : node.all_of) parts = Product<Part>(node, parts, Expand<Part>(child, false, evaluate));
      break;
    case 'r':
      return Expand<Part>(node.ref, false, evaluate);
    case 'n':
      return AnyOf<Part>(node.any_of, evaluate);
    case 'o':
      return OneOf<Part>(node, evaluate);
    case 'i':
      if (evaluate || node.then_node != kNoNode || node.else_node != kNoNode) return Conditional<Part>(node, false, evaluate);
      break;
    default:
      break;
  }
  return parts;
}

template <typename Part>
std::vector<Part> Goals::ExpandKeywords(const SchemaNode& node, bool evaluate) {
  constexpr uint8_t kType = std::is_same_v<Part, ObjectPart> ? kObject : kArray;
  if ((node.types & kType) == 0) return {};
  const bool unevaluated = kType == kObject ? node.unevaluated_properties != kNoNode : node.unevaluated_items != kNoNode;
  const bool inner = evaluate || unevaluated;
  std::string order = node.order;
  if (order.find('p') == std::string::npos) order.insert(order.begin(), 'p');
  std::vector<Part> parts(1);
  std::string done;
  for (char kind : order) {
    if (done.find(kind) != std::string::npos) continue;
    done.push_back(kind);
    parts = Product<Part>(node, parts, ExpandApplicator<Part>(node, kind, inner));
    if (parts.empty()) return {};
  }
  if (node.has_enum) {
    std::vector<Part> values;
    for (NodeId value : node.enumeration) {
      for (Part& part : Expand<Part>(value, false, inner)) values.push_back(std::move(part));
    }
    parts = Product<Part>(node, parts, values);
  }
  if (node.negated != kNoNode) parts = Product<Part>(node, parts, Expand<Part>(node.negated, true, false));
  parts = Product<Part>(node, parts, DependentSchemas(node, false, inner, static_cast<Part*>(nullptr)));
  if (unevaluated) {
    for (Part& part : parts) Unevaluated(node, &part);
  }
  return parts;
}

template <typename Part>
std::vector<Part> Goals::DenyKeywords(const SchemaNode& node) {
  constexpr uint8_t kType = std::is_same_v<Part, ObjectPart> ? kObject : kArray;
  if ((node.types & kType) == 0) return std::vector<Part>(1);
  if ((kType == kObject ? node.unevaluated_properties : node.unevaluated_items) != kNoNode) {
    Fail(node, kType == kObject ? "unevaluatedProperties" : "unevaluatedItems", "it stands below a negation");
    return {};
  }
  std::vector<Part> out = DenyOwn(node, static_cast<Part*>(nullptr));
  const auto add = [&](std::vector<Part> parts) {
    for (Part& part : parts) out.push_back(std::move(part));
  };
  const auto deny_all = [&](const std::vector<NodeId>& list) {
    std::vector<Part> parts(1);
    for (NodeId child : list) parts = Product<Part>(node, parts, Expand<Part>(child, true, false));
    return parts;
  };
  if (node.ref != kNoNode) add(Expand<Part>(node.ref, true, false));
  for (NodeId child : node.all_of) add(Expand<Part>(child, true, false));
  if (node.has_any_of) add(deny_all(node.any_of));
  if (node.has_enum) add(deny_all(node.enumeration));
  if (node.has_one_of) {
    add(deny_all(node.one_of));
    for (size_t i = 0; i < node.one_of.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (!MayOverlap(node.one_of[i], node.one_of[j], kType)) continue;
        add(Product<Part>(node, Expand<Part>(node.one_of[i], false, false), Expand<Part>(node.one_of[j], false, false)));
      }
    }
  }
  if (node.negated != kNoNode) add(Expand<Part>(node.negated, false, false));
  if (node.condition != kNoNode) add(Conditional<Part>(node, true, false));
  add(DependentSchemas(node, true, false, static_cast<Part*>(nullptr)));
  return out;
}

template <typename Part>
std::vector<Part> Goals::ExpandForm(const SchemaNode& node, bool denied, bool evaluate) {
  switch (node.form) {
    case SchemaNode::Form::kTrue:
    case SchemaNode::Form::kFalse:
      return std::vector<Part>((node.form == SchemaNode::Form::kTrue) != denied ? 1 : 0);
    case SchemaNode::Form::kConst:
      return ConstPart(*node.value, denied, static_cast<Part*>(nullptr));
    case SchemaNode::Form::kAnyOf: {
      if (!denied) return AnyOf<Part>(node.any_of, evaluate);
      std::vector<Part> parts(1);
      for (NodeId child : node.any_of) parts = Product<Part>(node, parts, Expand<Part>(child, true, false));
      return parts;
    }
    case SchemaNode::Form::kKeywords:
      return denied ? DenyKeywords<Part>(node) : ExpandKeywords<Part>(node, evaluate);
  }
  return {};
}

template <typename Part>
std::vector<Part> Goals::Expand(NodeId id, bool denied, bool evaluate) {
  const SchemaNode& node = (*graph_)[id];
  const uint32_t literal = id << 1 | (denied ? 1 : 0);
  if (!error_.ok() || !budget_->Spend()) return {};
  if (std::find(active_.begin(), active_.end(), literal) != active_.end()) {
    Fail(node, "$ref", "it refers to itself without consuming anything");
    return {};
  }
  active_.push_back(literal);
  std::vector<Part> parts = ExpandForm<Part>(node, denied, evaluate);
  active_.pop_back();
  if (parts.size() > kPartsMax) {
    Fail(node, denied ? "not" : node.has_one_of ? "oneOf" : "anyOf", "it has too many alternatives");
    return {};
  }
  return parts;
}

template <typename Part>
std::vector<Part> Goals::ExpandGoal(GoalId goal) {
  const std::vector<uint32_t> literals = goals_[goal].literals;
  std::vector<uint32_t> active;
  active.swap(active_);  // elements start afresh: something was consumed
  std::vector<Part> parts(1);
  for (uint32_t literal : literals) {
    const std::vector<Part> next = Expand<Part>(literal >> 1, (literal & 1) != 0, false);
    parts = Product<Part>((*graph_)[literal >> 1], parts, next);
  }
  active.swap(active_);
  return parts;
}

// Whether two schemas surely have no value of the type in common, by a glance at their keywords.
bool Goals::QuickDisjoint(NodeId a, NodeId b, uint8_t type) {
  const auto resolve = [&](NodeId id) {
    for (int i = 0; i < 20; ++i) {
      const SchemaNode& node = (*graph_)[id];
      if (node.ref == kNoNode || node.types != kAnyType) break;
      id = node.ref;
    }
    return id;
  };
  const SchemaNode &x = (*graph_)[resolve(a)], &y = (*graph_)[resolve(b)];
  return (x.types & y.types & type) == 0;
}

bool Goals::MayOverlap(NodeId a, NodeId b, uint8_t type) {
  if (a > b) std::swap(a, b);
  const auto key = std::make_pair(uint64_t{a} << 32 | b, type);
  const auto known = overlaps_.find(key);
  if (known != overlaps_.end()) return known->second;
  overlaps_[key] = true;  // while this is being found out: denying the sibling is always right
  bool overlap = !QuickDisjoint(a, b, type);
  if (overlap) {
    const GoalId both = Join(Of(a), Of(b));
    const bool outer = assumed_;
    assumed_ = false;
    overlap = false;
    if (type == kObject) {
      for (uint32_t shape : Objects(both)) overlap = overlap || ObjectUsable(shape);
    } else {
      for (uint32_t shape : Arrays(both)) overlap = overlap || ArrayUsable(shape);
    }
    if (assumed_) overlap = true;
    assumed_ = outer;
  }
  overlaps_[key] = overlap;
  return overlap;
}

const std::vector<uint32_t>& Goals::Arrays(GoalId goal) {
  if (goals_[goal].arrays_known) return goals_[goal].arrays;
  std::vector<uint32_t> shapes;
  for (ArrayPart& part : ExpandGoal<ArrayPart>(goal)) {
    if (part.shape.max < part.shape.min) continue;
    shapes.push_back(static_cast<uint32_t>(arrays_.size()));
    arrays_.push_back(std::move(part.shape));
    array_state_.push_back(Emptiness::kUnknown);
  }
  goals_[goal].arrays = std::move(shapes);
  goals_[goal].arrays_known = true;
  return goals_[goal].arrays;
}

const std::vector<uint32_t>& Goals::Objects(GoalId goal) {
  if (goals_[goal].objects_known) return goals_[goal].objects;
  std::vector<uint32_t> shapes;
  for (ObjectPart& part : ExpandGoal<ObjectPart>(goal)) {
    ObjectShape shape;
    if (!Build(part, &shape)) continue;
    shapes.push_back(static_cast<uint32_t>(objects_.size()));
    objects_.push_back(std::move(shape));
    object_state_.push_back(Emptiness::kUnknown);
  }
  goals_[goal].objects = std::move(shapes);
  goals_[goal].objects_known = true;
  return goals_[goal].objects;
}

}  // namespace deepinfer::grammar
