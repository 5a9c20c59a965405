// SPDX-License-Identifier: Apache-2.0
// What a JSON value has to satisfy, as a *goal*: a set of schema nodes, each asserted or denied, all of which must
// hold. A goal is taken apart by type: strings, numbers and literals become one expression each (closed under and, or,
// not); arrays and objects become a list of alternatives, *shapes*, each a plain conjunction whose elements and members
// are goals again. Goals and shapes are made when first asked for and kept, so recursion through $ref is harmless.
// A goal without any value is found as a least fixpoint. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/expr.h"
#include "grammar/intern.h"
#include "grammar/schema.h"

namespace deepinfer::grammar {

using GoalId = uint32_t;
using NameId = uint32_t;
inline constexpr GoalId kAnyGoal = 0, kNoGoal = 1;  // every value; no value

// A limit on members or elements of some kind. lo of them must satisfy `goal`, at most hi may.
struct Obligation {
  GoalId goal = kAnyGoal;
  GoalId denied = kNoGoal;  // the negation, for counting with hi
  uint64_t lo = 1, hi = kNoMax;
  uint64_t from = 0;  // arrays: elements before this index do not count
};

struct ArrayShape {
  std::vector<GoalId> prefix;
  GoalId rest = kAnyGoal;
  uint64_t min = 0, max = kNoMax;
  bool unique = false;
  std::vector<Obligation> obligations;

  GoalId At(uint64_t index) const { return index < prefix.size() ? prefix[index] : rest; }
};

// A set of keys: one name, those matching a pattern, or all but some names and patterns.
struct KeySet {
  enum Kind { kName, kPattern, kOther } kind = kOther;
  NameId name = 0;
  ExprId pattern = 0;
  std::vector<NameId> names;      // kOther: sorted
  std::vector<ExprId> patterns;   // kOther: sorted
};

struct ObjectName {
  NameId name = 0;
  GoalId goal = kAnyGoal;
  ExprId literal = 0;
  bool required = false;
  uint32_t obligations = 0;             // bit set: those whose key set holds this name
  std::vector<uint32_t> implies;        // indices of names that must be there if this one is
};

inline constexpr uint64_t kExtraKeysMax = 1000;  // keys beyond the declared ones in one object

// Keys beyond the names, in disjoint classes.
struct ObjectOther {
  ExprId keys = 0;
  GoalId goal = kAnyGoal;
  uint32_t obligations = 0;
  uint64_t count = kNoMax;  // keys in the class; kNoMax: more than one object may have, or nobody asks
};

struct ObjectShape {
  std::vector<ObjectName> names;  // in the order in which they may appear
  std::vector<ObjectOther> others;
  uint64_t min = 0, max = kNoMax;
  std::vector<Obligation> obligations;
  bool simple = true;  // no counts, no implications, no obligations: order and `required` are all there is
};

// How far an object or array has come. Fields that no longer matter are kept at a fixed value, so that states that
// behave alike are equal.
struct ObjectState {
  uint32_t position = 0;           // names before it are out of reach (ordered keys)
  uint64_t count = 0;              // members so far
  uint32_t met = 0;                // bit set of obligations
  std::vector<uint64_t> seen;      // bit set of names
  std::vector<NameId> extra;       // other keys so far, sorted
  bool pending = false;            // a key was just finished whose name is not in `extra` yet
};
struct ArrayState {
  uint64_t index = 0;              // elements so far
  std::vector<uint64_t> counts;    // by obligation
  std::vector<NodeId> values;      // elements so far, where they must differ: const nodes, sorted
  bool pending = false;            // an element was just finished that is not in `values` yet
};

class Goals {
 public:
  Goals(ExprPool* pool, SchemaGraph* graph, Budget* budget);

  GoalId Of(NodeId node, bool denied = false) { return Intern({node << 1 | (denied ? 1u : 0u)}); }
  GoalId Join(GoalId a, GoalId b);

  ExprId Strings(GoalId goal);   // over decoded text
  ExprId Numbers(GoalId goal);   // over the spelling
  // The same without what many readers don't take: "1.0" where integers are asked for, and numbers beyond a double's range.
  ExprId UsualNumbers(GoalId goal);
  uint8_t Literals(GoalId goal); // bits: 1 null, 2 false, 4 true
  // Shape ids; some may have no value at all (ArrayUsable, ObjectUsable).
  const std::vector<uint32_t>& Arrays(GoalId goal);
  const std::vector<uint32_t>& Objects(GoalId goal);
  const ArrayShape& Array(uint32_t shape) const { return arrays_[shape]; }
  const ObjectShape& Object(uint32_t shape) const { return objects_[shape]; }

  bool ArrayUsable(uint32_t shape);
  bool ObjectUsable(uint32_t shape);

  // Whether an object can still be finished after `state`.
  // REQUIRES for objects: no required name was skipped on the way.
  // `pending`: the class of the key whose name is not in state.extra yet.
  bool CanFinish(const ObjectShape& shape, const ObjectState& state, const ObjectOther* pending = nullptr);
  bool CanFinish(const ArrayShape& shape, const ArrayState& state);
  // The goal of element state.index, with what uniqueness forbids.
  GoalId ElementGoal(const ArrayShape& shape, const ArrayState& state);

  bool IsEmpty(GoalId goal);
  // Distinct values, a lower bound, capped.
  uint64_t CountValues(GoalId goal, uint64_t cap);
  const std::string& Name(NameId id) const { return names_[id]; }
  NameId InternName(const std::string& name);

  ExprPool* pool() { return pool_; }
  SchemaGraph* graph() { return graph_; }
  ExprId text() const { return text_; }
  // The first thing that could not be enforced. Sticky.
  const Status& error() const { return error_; }
  // Set once compiled: what is too large to take apart then counts as empty instead of being an error (it only arises
  // from uniqueItems, where it ends the array).
  void SetRunning() { running_ = true; }

  size_t goals() const { return goals_.size(); }
  size_t bytes() const;
  // The pointer of a schema in the goal, for messages.
  std::string PointerOf(GoalId goal) const;

 private:
  // Members and elements before they are merged into a shape.
  struct Evaluated {
    bool all = false;
    std::vector<KeySet> keys;
    uint64_t prefix = 0;
    std::vector<NodeId> contains;
  };
  struct ObjectPart {
    std::vector<std::pair<KeySet, GoalId>> rules;
    std::vector<NameId> required;
    uint64_t min = 0, max = kNoMax;
    std::vector<std::pair<NameId, std::vector<NameId>>> implications;
    std::vector<std::pair<KeySet, GoalId>> obligations;
    Evaluated evaluated;
  };
  struct ArrayPart {
    ArrayShape shape;
    Evaluated evaluated;
  };
  struct Scalars {
    ExprId strings = 0, numbers = 0;
    uint8_t literals = 0;
    bool whole = false;  // all the numbers are integers (false: not known)
  };
  enum class Emptiness : uint8_t { kUnknown, kRunning, kEmpty, kInhabited };
  struct Goal {
    std::vector<uint32_t> literals;  // node << 1 | denied, sorted
    bool scalars_known = false, arrays_known = false, objects_known = false;
    Scalars scalars;
    std::vector<uint32_t> arrays, objects;
    Emptiness emptiness = Emptiness::kUnknown;
  };

  GoalId Intern(std::vector<uint32_t> literals);
  void Fail(const SchemaNode& node, std::string_view keyword, std::string_view why);

  // goal_scalars.cc
  const Scalars& ScalarsOf(GoalId goal);
  Scalars NodeScalars(NodeId node);
  Scalars KeywordScalars(const SchemaNode& node);
  Scalars ConstScalars(const Json& value);
  Scalars AndScalars(const Scalars& a, const Scalars& b);
  Scalars OrScalars(const Scalars& a, const Scalars& b);
  Scalars NotScalars(const Scalars& a);
  static bool IsWhole(const Scalars& scalars);
  Scalars ExactlyOne(const std::vector<NodeId>& list);
  ExprId AndIn(ExprId universe, ExprId a, ExprId b);
  ExprId OrIn(ExprId universe, ExprId a, ExprId b);
  ExprId NotIn(ExprId universe, ExprId a);

  // The alternatives of one literal, for arrays and for objects: the same walk with other leaves.
  template <typename Part>
  std::vector<Part> Expand(NodeId node, bool denied, bool evaluate);
  template <typename Part>
  std::vector<Part> ExpandForm(const SchemaNode& node, bool denied, bool evaluate);
  template <typename Part>
  std::vector<Part> ExpandKeywords(const SchemaNode& node, bool evaluate);
  template <typename Part>
  std::vector<Part> ExpandApplicator(const SchemaNode& node, char kind, bool evaluate);
  template <typename Part>
  std::vector<Part> DenyKeywords(const SchemaNode& node);
  template <typename Part>
  std::vector<Part> AnyOf(const std::vector<NodeId>& list, bool evaluate);
  template <typename Part>
  std::vector<Part> OneOf(const SchemaNode& node, bool evaluate);
  template <typename Part>
  std::vector<Part> Conditional(const SchemaNode& node, bool denied, bool evaluate);
  template <typename Part>
  std::vector<Part> Product(const SchemaNode& node, const std::vector<Part>& a, const std::vector<Part>& b);
  template <typename Part>
  std::vector<Part> ExpandGoal(GoalId goal);
  bool MayOverlap(NodeId a, NodeId b, uint8_t type);
  bool QuickDisjoint(NodeId a, NodeId b, uint8_t type);

  // goal_object.cc
  ObjectPart OwnKeywords(const SchemaNode& node, bool evaluate, ObjectPart*);
  std::vector<ObjectPart> DenyOwn(const SchemaNode& node, ObjectPart*);
  std::vector<ObjectPart> ConstPart(const Json& value, bool denied, ObjectPart*);
  std::vector<ObjectPart> DependentSchemas(const SchemaNode& node, bool denied, bool evaluate, ObjectPart*);
  void Unevaluated(const SchemaNode& node, ObjectPart* part);
  bool Merge(const ObjectPart& a, const ObjectPart& b, ObjectPart* out);
  bool Build(const ObjectPart& part, ObjectShape* shape);
  void BuildNames(const ObjectPart& part, ObjectShape* shape);
  void BuildOthers(const ObjectPart& part, const std::vector<NameId>& names, ObjectShape* shape);
  KeySet OtherThan(const SchemaNode& node);
  KeySet NameSet(const std::string& name);
  GoalId ClassGoal(const ObjectPart& part, const std::vector<ExprId>& patterns, uint64_t members,
                                   uint32_t* obligations);
  bool Holds(const KeySet& set, NameId name);
  // Keys that each class has left.
  std::vector<uint64_t> KeysLeft(const ObjectShape& shape, const ObjectState& state, const ObjectOther* pending);
  bool AssignObligations(const ObjectShape& shape, const ObjectState& state, uint32_t missing, uint64_t spare,
                         std::vector<uint64_t>* left, std::map<uint32_t, GoalId>* chosen, const std::vector<uint32_t>& needed);
  bool Needed(const ObjectShape& shape, const ObjectState& state, std::vector<uint32_t>* needed);
  uint64_t SpareKeys(const ObjectShape& shape, const ObjectState& state, const std::vector<uint32_t>& needed,
                     const std::vector<uint64_t>& left, uint64_t room);
  // The name and all that must come with it; false where some of that cannot.
  bool ImpliedBy(const ObjectShape& shape, const ObjectState& state, uint32_t name, const std::vector<bool>& there,
                 std::vector<uint32_t>* out);

  // goal_array.cc
  ArrayPart OwnKeywords(const SchemaNode& node, bool evaluate, ArrayPart*);
  std::vector<ArrayPart> DenyOwn(const SchemaNode& node, ArrayPart*);
  std::vector<ArrayPart> ConstPart(const Json& value, bool denied, ArrayPart*);
  std::vector<ArrayPart> DependentSchemas(const SchemaNode&, bool denied, bool, ArrayPart*);
  void Unevaluated(const SchemaNode& node, ArrayPart* part);
  bool Merge(const ArrayPart& a, const ArrayPart& b, ArrayPart* out);
  bool FinishElements(const ArrayShape& shape, ArrayState state, int depth, std::vector<GoalId>* chosen);
  // Whether one value of each goal, each so many times, can be chosen so that all differ; may say no for some that can.
  bool CanDiffer(const std::vector<std::pair<GoalId, uint64_t>>& list);

  bool ComputeEmpty(GoalId goal);

  ExprPool* pool_;
  SchemaGraph* graph_;
  Budget* budget_;
  ExprId text_, plain_number_, any_number_;
  ExprId integers_, spelled_integers_;  // by value; without a fraction
  ExprId usual_numbers_, usual_integers_;  // within a double's range; such integers without a fraction
  std::deque<Goal> goals_;
  std::map<std::vector<uint32_t>, GoalId> goal_index_;
  std::deque<ArrayShape> arrays_;
  std::deque<ObjectShape> objects_;
  std::vector<Emptiness> array_state_, object_state_;
  std::deque<std::string> names_;
  std::unordered_map<std::string, NameId> name_index_;
  std::vector<ExprId> name_literals_;
  std::unordered_map<NodeId, Scalars> node_scalars_;
  std::vector<uint32_t> active_;         // literals being expanded, to find loops without progress
  std::unordered_map<NodeId, bool> scalars_running_;
  std::map<std::pair<uint64_t, uint8_t>, bool> overlaps_;
  int depth_ = 0;         // of emptiness questions
  bool assumed_ = false;  // an emptiness answer below rested on a goal still being worked on
  bool running_ = false;
  Status error_;
};

}  // namespace deepinfer::grammar
