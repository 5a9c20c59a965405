// SPDX-License-Identifier: Apache-2.0
#include "grammar/goal.h"

#include <algorithm>

#include "grammar/regex.h"

namespace deepinfer::grammar {

Goals::Goals(ExprPool* pool, SchemaGraph* graph, Budget* budget)
    : pool_(pool),
      graph_(graph),
      budget_(budget),
      text_(AnyText(pool)),
      plain_number_(PlainNumber(pool)),
      any_number_(AnyNumber(pool)),
      integers_(*NumberMultipleOf(pool, Decimal{false, "1", ""})),
      spelled_integers_(*ParseRegex(pool, R"(-?(?:0|[1-9]\d*))", RegexMatch::kWhole)),
      usual_numbers_(*ParseRegex(pool, R"(-?\d{1,100}(?:\.\d{1,100})?(?:[eE][-+]?\d{1,2})?)", RegexMatch::kWhole)),
      usual_integers_(*ParseRegex(pool, R"(-?(?:0|[1-9]\d{0,99}))", RegexMatch::kWhole)) {
  goals_.emplace_back();
  goals_.emplace_back().literals = {kFalseNode << 1};
  goal_index_[goals_[0].literals] = kAnyGoal;
  goal_index_[goals_[1].literals] = kNoGoal;
}

GoalId Goals::Intern(std::vector<uint32_t> literals) {
  std::sort(literals.begin(), literals.end());
  literals.erase(std::unique(literals.begin(), literals.end()), literals.end());
  std::vector<uint32_t> kept;
  for (uint32_t literal : literals) {
    const bool denied = (literal & 1) != 0;
    const NodeId node = literal >> 1;
    if (node == (denied ? kTrueNode : kFalseNode)) return kNoGoal;
    if (node == (denied ? kFalseNode : kTrueNode)) continue;
    if (denied && !kept.empty() && kept.back() == literal - 1) return kNoGoal;
    kept.push_back(literal);
  }
  const auto [it, is_new] = goal_index_.try_emplace(kept, static_cast<GoalId>(goals_.size()));
  if (is_new) {
    budget_->Spend();
    goals_.emplace_back().literals = std::move(kept);
  }
  return it->second;
}

GoalId Goals::Join(GoalId a, GoalId b) {
  if (a == b || b == kAnyGoal) return a;
  if (a == kAnyGoal) return b;
  if (a == kNoGoal || b == kNoGoal) return kNoGoal;
  std::vector<uint32_t> literals = goals_[a].literals;
  literals.insert(literals.end(), goals_[b].literals.begin(), goals_[b].literals.end());
  return Intern(std::move(literals));
}

NameId Goals::InternName(const std::string& name) {
  const auto [it, is_new] = name_index_.try_emplace(name, static_cast<NameId>(names_.size()));
  if (is_new) {
    names_.push_back(name);
    name_literals_.push_back(pool_->Literal(name));
  }
  return it->second;
}

void Goals::Fail(const SchemaNode& node, std::string_view keyword, std::string_view why) {
  if (running_ || !error_.ok()) return;
  const std::string pointer = node.pointer.empty() ? "#" : node.pointer;
  error_ = Error(Code::kUnimplemented, "{}/{}: keyword \"{}\" cannot be enforced: {}", pointer, keyword, keyword, why);
}

std::string Goals::PointerOf(GoalId goal) const {
  for (uint32_t literal : goals_[goal].literals) {
    const std::string& pointer = (*graph_)[literal >> 1].pointer;
    if (!pointer.empty()) return pointer;
  }
  return "#";
}

bool Goals::ArrayUsable(uint32_t shape) {
  if (array_state_[shape] == Emptiness::kUnknown) {
    const bool outer = assumed_;
    assumed_ = false;
    const bool usable = CanFinish(arrays_[shape], ArrayState{});
    if (usable || !assumed_) array_state_[shape] = usable ? Emptiness::kInhabited : Emptiness::kEmpty;
    assumed_ |= outer;
    return usable;
  }
  return array_state_[shape] == Emptiness::kInhabited;
}

bool Goals::ObjectUsable(uint32_t shape) {
  if (object_state_[shape] == Emptiness::kUnknown) {
    const bool outer = assumed_;
    assumed_ = false;
    const bool usable = CanFinish(objects_[shape], ObjectState{});
    if (usable || !assumed_) object_state_[shape] = usable ? Emptiness::kInhabited : Emptiness::kEmpty;
    assumed_ |= outer;
    return usable;
  }
  return object_state_[shape] == Emptiness::kInhabited;
}

bool Goals::IsEmpty(GoalId goal) {
  if (goal == kNoGoal) return true;
  if (goal == kAnyGoal) return false;
  Goal& entry = goals_[goal];
  if (entry.emptiness == Emptiness::kInhabited) return false;
  if (entry.emptiness == Emptiness::kEmpty) return true;
  if (entry.emptiness == Emptiness::kRunning) {
    assumed_ = true;  // least fixpoint: what rests on itself alone has no value
    return true;
  }
  if (!budget_->Spend() || depth_ > 400) {
    if (depth_ > 400) budget_->Fail(Error(Code::kResourceExhausted, "schema: required values nest too deep"));
    return true;
  }
  entry.emptiness = Emptiness::kRunning;
  const bool outer = assumed_;
  assumed_ = false;
  ++depth_;
  const bool empty = ComputeEmpty(goal);
  --depth_;
  Goal& after = goals_[goal];
  if (!empty) {
    after.emptiness = Emptiness::kInhabited;
  } else {
    after.emptiness = !assumed_ || depth_ == 0 ? Emptiness::kEmpty : Emptiness::kUnknown;
  }
  if (depth_ == 0) assumed_ = false;
  assumed_ |= outer;
  return empty;
}

bool Goals::ComputeEmpty(GoalId goal) {
  const Scalars scalars = ScalarsOf(goal);
  if (scalars.literals != 0) return false;
  if (scalars.strings == text_ || !pool_->IsEmpty(scalars.strings)) return false;
  if (scalars.numbers == any_number_ || !pool_->IsEmpty(scalars.numbers)) return false;
  for (uint32_t shape : Arrays(goal)) {
    if (ArrayUsable(shape)) return false;
  }
  for (uint32_t shape : Objects(goal)) {
    if (ObjectUsable(shape)) return false;
  }
  return true;
}

uint64_t Goals::CountValues(GoalId goal, uint64_t cap) {
  const Scalars scalars = ScalarsOf(goal);
  uint64_t count = static_cast<uint64_t>(__builtin_popcount(scalars.literals));
  if (count < cap) count += pool_->Count(scalars.strings, cap - count);
  if (count < cap && scalars.numbers != ExprPool::kEmpty) {
    // One spelling of each value: no -0, no zeros at the end of a fraction.
    auto canonical = ParseRegex(pool_, R"(0|-?(?:[1-9]\d*(?:\.\d*[1-9])?|0\.\d*[1-9]))", RegexMatch::kWhole);
    count += pool_->Count(pool_->And(scalars.numbers, *canonical), cap - count);
  }
  bool inhabited = false, open = false;
  for (uint32_t shape : Arrays(goal)) {
    inhabited |= ArrayUsable(shape);
    open |= ArrayUsable(shape) && arrays_[shape].max == kNoMax && !IsEmpty(arrays_[shape].rest);
  }
  for (uint32_t shape : Objects(goal)) {
    inhabited |= ObjectUsable(shape);
    open |= ObjectUsable(shape) && !objects_[shape].others.empty() && objects_[shape].max == kNoMax;
  }
  if (open) return cap;
  return std::min(cap, count + (inhabited ? 1 : 0));
}

size_t Goals::bytes() const {
  size_t bytes = 0;
  for (const ObjectShape& shape : objects_) bytes += sizeof(shape) + shape.names.capacity() * (sizeof(ObjectName) + 16);
  return bytes + goals_.size() * (sizeof(Goal) + 96) + arrays_.size() * (sizeof(ArrayShape) + 64);
}

ExprId Goals::Strings(GoalId goal) { return ScalarsOf(goal).strings; }
ExprId Goals::Numbers(GoalId goal) { return ScalarsOf(goal).numbers; }
ExprId Goals::UsualNumbers(GoalId goal) {
  const Scalars& scalars = ScalarsOf(goal);
  if (scalars.numbers == ExprPool::kEmpty) return scalars.numbers;
  const ExprId usual = pool_->And(scalars.numbers, scalars.whole ? usual_integers_ : usual_numbers_);
  // A schema may ask for numbers that large.
  return pool_->IsEmpty(usual) ? scalars.numbers : usual;
}
uint8_t Goals::Literals(GoalId goal) { return ScalarsOf(goal).literals; }

}  // namespace deepinfer::grammar
