// SPDX-License-Identifier: Apache-2.0
// JSON Schema documents as a graph of nodes: keywords read and checked, $ref, $anchor and $id resolved, spellings of
// drafts 4 to 2020-12 made one. No meaning is given to the keywords here; grammar/goal.h does that.
// What cannot be enforced is an error that names the keyword and its JSON pointer, or, with allow_unsupported, an entry
// in `dropped`. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "grammar/expr.h"
#include "grammar/number.h"

namespace deepinfer::grammar {

using NodeId = uint32_t;
inline constexpr NodeId kTrueNode = 0, kFalseNode = 1, kNoNode = UINT32_MAX;

enum TypeBits : uint8_t { kNull = 1, kBoolean = 2, kNumber = 4, kString = 8, kArray = 16, kObject = 32, kAnyType = 63 };

struct NumberBound {
  Decimal value;
  bool lower = false;
  bool strict = false;
};

// One schema. Defaults mean "keyword absent".
struct SchemaNode {
  enum class Form { kTrue, kFalse, kKeywords, kConst, kAnyOf };
  Form form = Form::kKeywords;
  std::string pointer;          // "#/properties/a", for messages
  const Json* value = nullptr;  // of kConst

  uint8_t types = kAnyType;
  bool integer_only = false;  // numbers must be whole
  bool has_enum = false;      // values of enum and const: the node's value must equal one of them
  std::vector<NodeId> enumeration;

  std::vector<NumberBound> bounds;
  std::vector<Decimal> multiple_of;
  std::vector<ExprId> strings;  // all must match: pattern, format, lengths

  std::vector<NodeId> prefix_items;
  NodeId items = kNoNode;
  uint64_t min_items = 0, max_items = kNoMax;
  bool unique_items = false;
  NodeId contains = kNoNode;
  uint64_t min_contains = 1, max_contains = kNoMax;
  NodeId unevaluated_items = kNoNode;

  std::vector<std::pair<std::string, NodeId>> properties;
  std::vector<std::pair<ExprId, NodeId>> pattern_properties;
  NodeId additional = kNoNode, property_names = kNoNode, unevaluated_properties = kNoNode;
  std::vector<std::string> required;
  uint64_t min_properties = 0, max_properties = kNoMax;
  std::vector<std::pair<std::string, std::vector<std::string>>> dependent_required;
  std::vector<std::pair<std::string, NodeId>> dependent_schemas;

  std::vector<NodeId> any_of, one_of, all_of;  // any_of: also the list of Form::kAnyOf
  bool has_any_of = false, has_one_of = false;
  NodeId negated = kNoNode, condition = kNoNode, then_node = kNoNode, else_node = kNoNode, ref = kNoNode;
  // In-place applicators in document order ('p' own keywords, 'a' allOf, 'r' $ref, ...): it fixes the order of keys.
  std::string order;
};

struct SchemaOptions {
  bool assert_formats = true;
  bool allow_unsupported = false;
  std::vector<std::pair<std::string, std::string>> documents;  // URI, JSON text: what $ref may reach besides the schema
};

class SchemaGraph {
 public:
  SchemaGraph(ExprPool* pool, Budget* budget);

  // Reads the schema and all that it reaches; gives its node. May be called for several schemas, which don't see each
  // other. The schema must outlive the graph.
  Result<NodeId> Load(const Json* schema, const SchemaOptions& options);

  const SchemaNode& operator[](NodeId id) const { return nodes_[id]; }
  size_t size() const { return nodes_.size(); }
  // The node of the schema {"const": value}; equal values get equal nodes. Keeps a copy.
  NodeId ConstNode(const Json& value);
  NodeId AnyOfNode(std::vector<NodeId> list);
  NodeId NonStringNode();
  // Draft 4: 1.0 is no integer.
  bool integers_are_spelled_so() const { return draft_ == 4; }
  // Whether `contains` counts as having evaluated the elements that it matches (2020-12).
  bool contains_evaluates() const { return draft_ == 0 || draft_ >= 2020; }
  const std::vector<std::string>& dropped() const { return dropped_; }

 private:
  struct Location {
    uint32_t base = 0;  // index into bases_
    std::string pointer;
  };
  void Index(const Json& value, uint32_t base, const std::string& pointer, int depth);
  uint32_t IndexIdentifiers(const Json& value, uint32_t base);
  Result<NodeId> NodeFor(const Json& value, const std::string& pointer);
  Status Fill(const Json& value, NodeId id);
  Status ReadKeyword(const std::string& key, const Json& value, const Json& schema, SchemaNode* node);
  Status ReadScalarKeyword(const std::string& key, const Json& value, const Json& schema, SchemaNode* node, bool* known);
  Status ReadArrayKeyword(const std::string& key, const Json& value, const Json& schema, SchemaNode* node, bool* known);
  Status ReadObjectKeyword(const std::string& key, const Json& value, const Json& schema, SchemaNode* node, bool* known);
  Status ReadApplicator(const std::string& key, const Json& value, const Json& schema, SchemaNode* node, bool* known);
  Status ReadReference(const std::string& key, const Json& value, SchemaNode* node);
  Status ReadDependencies(const std::string& key, const Json& value, SchemaNode* node);
  Status ReadLengths(const Json& schema, SchemaNode* node);
  Status ReadType(const Json& value, SchemaNode* node);
  Status ReadList(const Json& value, const std::string& pointer, std::vector<NodeId>* out);
  Result<const Json*> Resolve(const std::string& reference, uint32_t base, const std::string& where);
  Result<const Json*> ResolveDynamic(const std::string& reference, uint32_t base, const std::string& where);
  Status Unsupported(const std::string& keyword, const std::string& pointer, std::string_view why);

  ExprPool* pool_;
  Budget* budget_;
  SchemaOptions options_;
  std::deque<SchemaNode> nodes_;
  std::deque<Json> owned_;
  std::unordered_map<const Json*, NodeId> by_json_;
  std::map<std::string, NodeId> by_const_;
  std::map<std::vector<NodeId>, NodeId> by_any_of_;
  std::unordered_map<const Json*, Location> locations_;
  std::vector<std::string> bases_;
  std::map<std::string, const Json*> resources_;        // absolute URI, with "#anchor" where one is named
  std::map<std::string, std::vector<const Json*>> dynamic_anchors_;
  std::vector<const Json*> recursive_anchors_;
  std::map<std::string, ExprId> formats_;
  std::vector<NodeId> unread_;
  std::vector<const Json*> unread_json_;
  const Json* reading_ = nullptr;
  std::vector<std::string> dropped_;
  NodeId non_string_ = kNoNode;
  int draft_ = 2020;  // 4, 6, 7, 2019, 2020; 0 not said
};

// `reference` against `base`, as RFC 3986 section 5 resolves it.
std::string ResolveUri(const std::string& base, const std::string& reference);
// The members of an object in their order, without those whose name comes again further on.
std::vector<const Json::Member*> LastMembers(const Json& object);
// A number-insensitive canonical text: equal for equal JSON values (1 and 1.0, any key order).
std::string CanonicalJson(const Json& value);

}  // namespace deepinfer::grammar
