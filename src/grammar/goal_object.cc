// SPDX-License-Identifier: Apache-2.0
// Objects: keywords to rules (a set of keys, and the goal of their values), rules to shapes, and whether a half-written
// object can still be finished.
#include <algorithm>

#include "grammar/goal.h"

namespace deepinfer::grammar {
namespace {

constexpr size_t kClassesMax = 64;      // classes of keys made by overlapping patterns
constexpr size_t kObligationsMax = 16;

bool Seen(const ObjectState& state, uint32_t name) {
  return name / 64 < state.seen.size() && (state.seen[name / 64] >> (name % 64) & 1) != 0;
}

}  // namespace

KeySet Goals::NameSet(const std::string& name) {
  KeySet set;
  set.kind = KeySet::kName;
  set.name = InternName(name);
  return set;
}

KeySet Goals::OtherThan(const SchemaNode& node) {
  KeySet set;
  for (const auto& [name, child] : node.properties) set.names.push_back(InternName(name));
  for (const auto& [pattern, child] : node.pattern_properties) set.patterns.push_back(pattern);
  std::sort(set.names.begin(), set.names.end());
  std::sort(set.patterns.begin(), set.patterns.end());
  return set;
}

bool Goals::Holds(const KeySet& set, NameId name) {
  switch (set.kind) {
    case KeySet::kName:
      return set.name == name;
    case KeySet::kPattern:
      return pool_->Matches(set.pattern, names_[name]);
    case KeySet::kOther:
      if (std::binary_search(set.names.begin(), set.names.end(), name)) return false;
      for (ExprId pattern : set.patterns) {
        if (pool_->Matches(pattern, names_[name])) return false;
      }
      return true;
  }
  return false;
}

Goals::ObjectPart Goals::OwnKeywords(const SchemaNode& node, bool evaluate, ObjectPart*) {
  ObjectPart part;
  for (const auto& [name, child] : node.properties) part.rules.emplace_back(NameSet(name), Of(child));
  for (const auto& [pattern, child] : node.pattern_properties) {
    KeySet set;
    set.kind = KeySet::kPattern;
    set.pattern = pattern;
    part.rules.emplace_back(std::move(set), Of(child));
  }
  if (evaluate) {
    for (const auto& [set, goal] : part.rules) part.evaluated.keys.push_back(set);
    part.evaluated.all = node.additional != kNoNode;
  }
  if (node.additional != kNoNode && node.additional != kTrueNode) part.rules.emplace_back(OtherThan(node), Of(node.additional));
  if (node.property_names != kNoNode) {
    const ExprId allowed = Strings(Of(node.property_names));
    if (allowed != text_) {
      KeySet set;
      set.kind = KeySet::kPattern;
      set.pattern = NotIn(text_, allowed);
      part.rules.emplace_back(std::move(set), kNoGoal);
    }
  }
  for (const std::string& name : node.required) part.required.push_back(InternName(name));
  part.min = node.min_properties;
  part.max = node.max_properties;
  for (const auto& [name, others] : node.dependent_required) {
    std::vector<NameId> implied;
    for (const std::string& other : others) implied.push_back(InternName(other));
    part.implications.emplace_back(InternName(name), std::move(implied));
  }
  return part;
}

std::vector<Goals::ObjectPart> Goals::DenyOwn(const SchemaNode& node, ObjectPart*) {
  std::vector<ObjectPart> out;
  const auto add = [&]() -> ObjectPart& { return out.emplace_back(); };
  const auto exists = [&](KeySet set, GoalId goal) { add().obligations.emplace_back(std::move(set), goal); };
  for (const auto& [name, child] : node.properties) {
    if (child == kTrueNode) continue;
    ObjectPart& part = add();
    part.rules.emplace_back(NameSet(name), Of(child, true));
    part.required.push_back(InternName(name));
  }
  for (const auto& [pattern, child] : node.pattern_properties) {
    KeySet set;
    set.kind = KeySet::kPattern;
    set.pattern = pattern;
    if (child != kTrueNode) exists(std::move(set), Of(child, true));
  }
  if (node.additional != kNoNode && node.additional != kTrueNode) exists(OtherThan(node), Of(node.additional, true));
  if (node.property_names != kNoNode) {
    KeySet set;
    set.kind = KeySet::kPattern;
    set.pattern = NotIn(text_, Strings(Of(node.property_names)));
    if (set.pattern != ExprPool::kEmpty) exists(std::move(set), kAnyGoal);
  }
  for (const std::string& name : node.required) add().rules.emplace_back(NameSet(name), kNoGoal);
  if (node.min_properties > 0) add().max = node.min_properties - 1;
  if (node.max_properties != kNoMax) add().min = node.max_properties + 1;
  for (const auto& [name, others] : node.dependent_required) {
    for (const std::string& other : others) {
      ObjectPart& part = add();
      part.required.push_back(InternName(name));
      part.rules.emplace_back(NameSet(other), kNoGoal);
    }
  }
  return out;
}

std::vector<Goals::ObjectPart> Goals::ConstPart(const Json& value, bool denied, ObjectPart*) {
  if (!value.IsObject()) return std::vector<ObjectPart>(denied ? 1 : 0);
  KeySet others;
  std::vector<ObjectPart> out;
  ObjectPart same;
  for (const Json::Member* place : LastMembers(value)) {
    const auto& [name, member] = *place;
    const NodeId node = graph_->ConstNode(member);
    others.names.push_back(InternName(name));
    same.rules.emplace_back(NameSet(name), Of(node));
    same.required.push_back(InternName(name));
    ObjectPart& absent = out.emplace_back();
    absent.rules.emplace_back(NameSet(name), kNoGoal);
    ObjectPart& different = out.emplace_back();
    different.rules.emplace_back(NameSet(name), Of(node, true));
    different.required.push_back(InternName(name));
  }
  std::sort(others.names.begin(), others.names.end());
  out.emplace_back().obligations.emplace_back(others, kAnyGoal);
  if (denied) return out;
  same.rules.emplace_back(std::move(others), kNoGoal);
  return {same};
}

std::vector<Goals::ObjectPart> Goals::DependentSchemas(const SchemaNode& node, bool denied, bool evaluate, ObjectPart*) {
  std::vector<ObjectPart> result(denied ? 0 : 1);
  for (const auto& [name, child] : node.dependent_schemas) {
    ObjectPart present;
    present.required.push_back(InternName(name));
    std::vector<ObjectPart> options =
        Product<ObjectPart>(node, {present}, Expand<ObjectPart>(child, denied, evaluate && !denied));
    if (denied) {
      for (ObjectPart& part : options) result.push_back(std::move(part));
      continue;
    }
    options.emplace_back().rules.emplace_back(NameSet(name), kNoGoal);
    result = Product<ObjectPart>(node, result, options);
  }
  return result;
}

void Goals::Unevaluated(const SchemaNode& node, ObjectPart* part) {
  if (!part->evaluated.all) {
    KeySet rest;
    for (const KeySet& set : part->evaluated.keys) {
      if (set.kind == KeySet::kName) rest.names.push_back(set.name);
      if (set.kind == KeySet::kPattern) rest.patterns.push_back(set.pattern);
    }
    std::sort(rest.names.begin(), rest.names.end());
    std::sort(rest.patterns.begin(), rest.patterns.end());
    part->rules.emplace_back(std::move(rest), Of(node.unevaluated_properties));
  }
  part->evaluated.all = true;
}

bool Goals::Merge(const ObjectPart& a, const ObjectPart& b, ObjectPart* out) {
  *out = a;
  const auto append = [](auto* to, const auto& from) { to->insert(to->end(), from.begin(), from.end()); };
  append(&out->rules, b.rules);
  append(&out->required, b.required);
  append(&out->implications, b.implications);
  append(&out->obligations, b.obligations);
  append(&out->evaluated.keys, b.evaluated.keys);
  out->evaluated.all |= b.evaluated.all;
  out->min = std::max(a.min, b.min);
  out->max = std::min(a.max, b.max);
  if (out->min > out->max) return false;
  for (const auto& [set, goal] : out->rules) {
    if (goal != kNoGoal || set.kind != KeySet::kName) continue;
    if (std::find(out->required.begin(), out->required.end(), set.name) != out->required.end()) return false;
  }
  return true;
}

void Goals::BuildNames(const ObjectPart& part, ObjectShape* shape) {
  std::unordered_map<NameId, uint32_t> index;
  const auto touch = [&](NameId name) -> uint32_t {
    const auto [it, is_new] = index.try_emplace(name, static_cast<uint32_t>(shape->names.size()));
    if (is_new) {
      ObjectName& entry = shape->names.emplace_back();
      entry.name = name;
      entry.literal = name_literals_[name];
    }
    return it->second;
  };
  for (const auto& [set, goal] : part.rules) {
    if (set.kind == KeySet::kName) touch(set.name);
  }
  for (NameId name : part.required) shape->names[touch(name)].required = true;
  for (const auto& [name, implied] : part.implications) {
    const uint32_t from = touch(name);
    for (NameId other : implied) {
      const uint32_t to = touch(other);
      shape->names[from].implies.push_back(to);
    }
  }
  for (const auto* list : {&part.rules, &part.obligations}) {
    for (const auto& [set, goal] : *list) {
      if (set.kind == KeySet::kName) touch(set.name);
      for (NameId name : set.names) touch(name);
    }
  }
  for (const auto& [set, goal] : part.rules) {
    if (set.kind == KeySet::kName) {
      ObjectName& entry = shape->names[index[set.name]];
      entry.goal = Join(entry.goal, goal);
      continue;
    }
    for (ObjectName& entry : shape->names) {
      if (entry.goal != kNoGoal && Holds(set, entry.name)) entry.goal = Join(entry.goal, goal);
    }
  }
  for (size_t i = 0; i < part.obligations.size(); ++i) {
    for (ObjectName& entry : shape->names) {
      if (Holds(part.obligations[i].first, entry.name)) entry.obligations |= 1u << i;
    }
  }
}

// The goal of the keys beyond all names that match just the patterns in the bit set `members`.
GoalId Goals::ClassGoal(const ObjectPart& part, const std::vector<ExprId>& patterns, uint64_t members,
                        uint32_t* obligations) {
  const auto is_member = [&](ExprId pattern) {
    const size_t at = static_cast<size_t>(std::lower_bound(patterns.begin(), patterns.end(), pattern) - patterns.begin());
    return (members >> at & 1) != 0;
  };
  const auto holds = [&](const KeySet& set) {
    if (set.kind == KeySet::kName) return false;
    if (set.kind == KeySet::kPattern) return is_member(set.pattern);
    return std::none_of(set.patterns.begin(), set.patterns.end(), is_member);
  };
  GoalId goal = kAnyGoal;
  for (const auto& [set, rule] : part.rules) {
    if (holds(set)) goal = Join(goal, rule);
  }
  for (size_t i = 0; i < part.obligations.size(); ++i) {
    if (holds(part.obligations[i].first)) *obligations |= 1u << i;
  }
  return goal;
}

void Goals::BuildOthers(const ObjectPart& part, const std::vector<NameId>& names, ObjectShape* shape) {
  std::vector<ExprId> patterns;
  for (const auto* list : {&part.rules, &part.obligations}) {
    for (const auto& [set, goal] : *list) {
      if (set.kind == KeySet::kPattern) patterns.push_back(set.pattern);
      patterns.insert(patterns.end(), set.patterns.begin(), set.patterns.end());
    }
  }
  std::sort(patterns.begin(), patterns.end());
  patterns.erase(std::unique(patterns.begin(), patterns.end()), patterns.end());
  std::vector<ExprId> literals;
  for (NameId name : names) literals.push_back(name_literals_[name]);
  struct Class {
    ExprId keys;
    uint64_t members;
  };
  // The class outside all patterns comes last and is only written out where its keys are allowed at all.
  const ExprId unnamed = NotIn(text_, pool_->Or(literals));
  std::vector<Class> classes{{unnamed, 0}};
  for (size_t i = 0; i < patterns.size() && i < 64; ++i) {
    std::vector<Class> split;
    for (const Class& one : classes) {
      const Class inside{AndIn(text_, one.keys, patterns[i]), one.members | uint64_t{1} << i};
      const Class outside{pool_->And(one.keys, pool_->Not(patterns[i])), one.members};
      if (!pool_->IsEmpty(inside.keys)) split.push_back(inside);
      if (!pool_->IsEmpty(outside.keys)) split.push_back(outside);
    }
    classes = std::move(split);
    if (classes.size() > kClassesMax) break;
  }
  if (classes.size() > kClassesMax || patterns.size() > 63) {
    Fail(SchemaNode{}, "patternProperties", "too many patterns overlap");
    return;
  }
  for (const Class& one : classes) {
    ObjectOther other;
    other.keys = one.keys;
    other.goal = ClassGoal(part, patterns, one.members, &other.obligations);
    if (other.goal == kNoGoal) continue;
    shape->others.push_back(other);
  }
}

bool Goals::Build(const ObjectPart& part, ObjectShape* shape) {
  if (part.obligations.size() > kObligationsMax) {
    Fail(SchemaNode{}, "not", "it denies too much at once");
    return false;
  }
  shape->min = part.min;
  shape->max = part.max;
  BuildNames(part, shape);
  uint64_t required = 0;
  std::vector<NameId> names;
  for (const ObjectName& name : shape->names) {
    if (name.required && name.goal == kNoGoal) return false;
    required += name.required ? 1 : 0;
    names.push_back(name.name);
  }
  if (required > shape->max) return false;
  if (shape->min <= required) shape->min = 0;
  std::sort(names.begin(), names.end());
  BuildOthers(part, names, shape);
  for (const auto& [set, goal] : part.obligations) {
    Obligation obligation;
    obligation.goal = goal;
    shape->obligations.push_back(obligation);
  }
  for (ObjectOther& other : shape->others) {
    if (shape->min == 0 && shape->obligations.empty()) break;
    const uint64_t count = pool_->Count(other.keys, kExtraKeysMax + 1);
    if (count <= kExtraKeysMax) other.count = count;
  }
  bool implies = false;
  for (const ObjectName& name : shape->names) implies |= !name.implies.empty();
  shape->simple = shape->min == 0 && shape->max == kNoMax && !implies && shape->obligations.empty();
  return true;
}

bool Goals::Needed(const ObjectShape& shape, const ObjectState& state, std::vector<uint32_t>* needed) {
  std::vector<uint32_t> todo;
  std::vector<bool> marked(shape.names.size(), false);
  const auto mark = [&](uint32_t i) {
    if (!marked[i]) todo.push_back(i);
    marked[i] = true;
  };
  for (uint32_t i = 0; i < shape.names.size(); ++i) {
    if (shape.names[i].required || Seen(state, i)) mark(i);
  }
  while (!todo.empty()) {
    const uint32_t i = todo.back();
    todo.pop_back();
    for (uint32_t other : shape.names[i].implies) mark(other);
    if (Seen(state, i)) continue;
    if (i < state.position) {
      if (shape.names[i].required) continue;  // it was not skipped, so it was seen
      return false;
    }
    if (IsEmpty(shape.names[i].goal)) return false;
    needed->push_back(i);
  }
  std::sort(needed->begin(), needed->end());
  return true;
}

std::vector<uint64_t> Goals::KeysLeft(const ObjectShape& shape, const ObjectState& state, const ObjectOther* pending) {
  std::vector<uint64_t> left;
  for (const ObjectOther& other : shape.others) {
    uint64_t count = other.count;
    if (count != kNoMax) {
      count -= &other == pending ? 1 : 0;
      for (NameId name : state.extra) count -= pool_->Matches(other.keys, names_[name]) ? 1 : 0;
    }
    left.push_back(count);
  }
  return left;
}

bool Goals::ImpliedBy(const ObjectShape& shape, const ObjectState& state, uint32_t name, const std::vector<bool>& there,
                      std::vector<uint32_t>* out) {
  out->assign(1, name);
  std::vector<bool> marked = there;
  marked[name] = true;
  for (size_t i = 0; i < out->size(); ++i) {
    const uint32_t at = (*out)[i];
    if (at < state.position || !budget_->Spend() || IsEmpty(shape.names[at].goal)) return false;
    for (uint32_t other : shape.names[at].implies) {
      if (!marked[other]) out->push_back(other);
      marked[other] = true;
    }
  }
  return true;
}

// Names that imply others come together with them; smaller groups first, so that no room is lost.
uint64_t Goals::SpareKeys(const ObjectShape& shape, const ObjectState& state, const std::vector<uint32_t>& needed,
                          const std::vector<uint64_t>& left, uint64_t room) {
  std::vector<bool> there(shape.names.size(), false);
  for (uint32_t i : needed) there[i] = true;
  for (uint32_t i = 0; i < shape.names.size(); ++i) there[i] = there[i] || Seen(state, i);
  std::vector<uint32_t> alone, with_others;
  for (uint32_t i = state.position; i < shape.names.size(); ++i) {
    if (there[i] || IsEmpty(shape.names[i].goal)) continue;
    const auto& implies = shape.names[i].implies;
    const bool free = std::all_of(implies.begin(), implies.end(), [&](uint32_t other) { return there[other]; });
    (free ? alone : with_others).push_back(i);
  }
  for (uint32_t i : alone) there[i] = true;
  uint64_t spare = alone.size();
  for (size_t i = 0; i < left.size(); ++i) {
    if (IsEmpty(shape.others[i].goal)) continue;
    if (left[i] == kNoMax) return kNoMax;
    spare += left[i];
  }
  for (std::vector<uint32_t> group, best; spare < room; best.clear()) {
    for (uint32_t i : with_others) {
      if (there[i] || !ImpliedBy(shape, state, i, there, &group)) continue;
      if (best.empty() || group.size() < best.size()) best = group;
    }
    if (best.empty() || best.size() > room - spare) break;
    spare += best.size();
    for (uint32_t i : best) there[i] = true;
  }
  return spare;
}

bool Goals::AssignObligations(const ObjectShape& shape, const ObjectState& state, uint32_t missing, uint64_t spare,
                              std::vector<uint64_t>* left, std::map<uint32_t, GoalId>* chosen,
                              const std::vector<uint32_t>& needed) {
  if (missing == 0) return true;
  if (!budget_->Spend()) return false;
  const uint32_t bit = missing & (~missing + 1);
  const GoalId goal = shape.obligations[static_cast<size_t>(__builtin_ctz(missing))].goal;
  for (uint32_t i = state.position; i < shape.names.size(); ++i) {
    if (Seen(state, i) || (shape.names[i].obligations & bit) == 0) continue;
    const auto before = chosen->find(i);
    const bool was_chosen = before != chosen->end();
    const GoalId old = was_chosen ? before->second : shape.names[i].goal;
    const GoalId joined = Join(old, goal);
    const bool free = was_chosen || std::binary_search(needed.begin(), needed.end(), i);
    if (IsEmpty(joined)) continue;
    // A key that is not coming anyway takes with it what it implies.
    std::vector<uint32_t> group, with_group = needed;
    if (!free) {
      std::vector<bool> there(shape.names.size(), false);
      for (uint32_t k : needed) there[k] = true;
      for (uint32_t k = 0; k < shape.names.size(); ++k) there[k] = there[k] || Seen(state, k);
      if (!ImpliedBy(shape, state, i, there, &group) || group.size() > spare) continue;
      with_group.insert(with_group.end(), group.begin(), group.end());
      std::sort(with_group.begin(), with_group.end());
    }
    (*chosen)[i] = joined;
    if (AssignObligations(shape, state, missing & ~bit, spare - group.size(), left, chosen, with_group)) return true;
    if (was_chosen) {
      (*chosen)[i] = old;
    } else {
      chosen->erase(i);
    }
  }
  for (size_t k = 0; k < shape.others.size(); ++k) {
    const ObjectOther& other = shape.others[k];
    if ((other.obligations & bit) == 0 || spare == 0 || (*left)[k] == 0) continue;
    const uint64_t before = (*left)[k];
    if (before != kNoMax) --(*left)[k];
    // One member may meet several obligations at once.
    const uint32_t rest = missing & other.obligations & ~bit;
    for (uint32_t more = rest;; more = (more - 1) & rest) {
      GoalId joined = Join(other.goal, goal);
      for (size_t i = 0; i < shape.obligations.size(); ++i) {
        if ((more >> i & 1) != 0) joined = Join(joined, shape.obligations[i].goal);
      }
      if (!IsEmpty(joined) && AssignObligations(shape, state, missing & ~bit & ~more, spare - 1, left, chosen, needed)) return true;
      if (more == 0) break;
    }
    (*left)[k] = before;
  }
  return false;
}

bool Goals::CanFinish(const ObjectShape& shape, const ObjectState& state, const ObjectOther* pending) {
  if (!budget_->Spend()) return false;
  std::vector<uint32_t> needed;
  if (!Needed(shape, state, &needed)) return false;
  const uint64_t total = state.count + needed.size();
  if (total > shape.max) return false;
  const uint32_t all = shape.obligations.empty() ? 0 : (1u << shape.obligations.size()) - 1;
  std::map<uint32_t, GoalId> chosen;
  const uint64_t spare = shape.max == kNoMax ? kNoMax : shape.max - total;
  std::vector<uint64_t> left = KeysLeft(shape, state, pending);
  if (!AssignObligations(shape, state, all & ~state.met, spare, &left, &chosen, needed)) return false;
  return total >= shape.min || shape.min - total <= SpareKeys(shape, state, needed, KeysLeft(shape, state, pending), spare);
}

}  // namespace deepinfer::grammar
