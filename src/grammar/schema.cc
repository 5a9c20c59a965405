// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema.h"

#include <algorithm>
#include <unordered_set>

#include "grammar/format.h"
#include "grammar/regex.h"

namespace deepinfer::grammar {
namespace {

constexpr int kSchemaDepthMax = 250;

std::string EscapePointer(std::string_view key) {
  std::string out;
  for (char c : key) out += c == '~' ? std::string("~0") : c == '/' ? std::string("~1") : std::string(1, c);
  return out;
}

std::string UnescapePercent(std::string_view text) {
  std::string out;
  const auto hex = [](char c) { return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() + 0 && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

const Json* FollowPointer(const Json* value, std::string_view pointer) {
  while (!pointer.empty()) {
    if (pointer[0] != '/') return nullptr;
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    std::string key;
    for (size_t i = 1; i < end; ++i) {
      if (pointer[i] == '~' && i + 1 < end) {
        key.push_back(pointer[++i] == '1' ? '/' : '~');
      } else {
        key.push_back(pointer[i]);
      }
    }
    pointer.remove_prefix(end);
    if (value->IsArray()) {
      size_t index = 0;
      if (key.empty() || key.size() > 7 || key.find_first_not_of("0123456789") != std::string::npos) return nullptr;
      index = std::stoul(key);
      if (index >= value->Items().size()) return nullptr;
      value = &value->Items()[index];
    } else {
      value = value->Find(key);
      if (value == nullptr) return nullptr;
    }
  }
  return value;
}

int DraftOf(std::string_view schema_uri) {
  const auto has = [&](std::string_view what) { return schema_uri.find(what) != std::string_view::npos; };
  if (has("draft-03")) return 3;
  if (has("draft-04")) return 4;
  if (has("draft-06")) return 6;
  if (has("draft-07")) return 7;
  if (has("draft/2019-09")) return 2019;
  if (has("draft/2020-12") || has("json-schema.org/v1")) return 2020;
  return 0;
}

// A count keyword: a non-negative whole number, "3.0" too. Anything above 2^53 is as good as no limit.
Result<uint64_t> CountOf(const Json& value) {
  if (value.IsNumber()) {
    auto decimal = ParseDecimal(value.Literal());
    if (decimal.ok() && !decimal->negative && decimal->IsInteger()) {
      return decimal->integer.size() > 15 ? uint64_t{1} << 53 : std::stoull(decimal->integer);
    }
  }
  return Error(Code::kInvalidArgument, "expected a non-negative integer");
}

}  // namespace

std::string ResolveUri(const std::string& base, const std::string& reference) {
  const auto scheme_end = [](const std::string& uri) {
    const size_t end = uri.find(':');
    if (end == std::string::npos || end == 0) return std::string::npos;
    for (size_t i = 0; i < end; ++i) {
      const char c = uri[i];
      const bool alpha = (c | 32) >= 'a' && (c | 32) <= 'z';
      if (!alpha && (i == 0 || !((c >= '0' && c <= '9') || c == '+' || c == '.' || c == '-'))) return std::string::npos;
    }
    return end;
  };
  if (scheme_end(reference) != std::string::npos) return reference;
  const std::string stem = base.substr(0, base.find('#'));
  if (reference.empty()) return stem;
  if (reference[0] == '#') return stem + reference;
  const size_t scheme = scheme_end(stem);
  const size_t after = scheme == std::string::npos ? 0 : scheme + 1;
  if (reference.substr(0, 2) == "//") return stem.substr(0, after) + reference;
  size_t path = after;
  if (stem.substr(after, 2) == "//") path = std::min(stem.find('/', after + 2), stem.size());
  if (reference[0] == '/') return stem.substr(0, path) + reference;
  const size_t query = std::min(stem.find('?', path), stem.size());
  if (reference[0] == '?') return stem.substr(0, query) + reference;
  const size_t last = stem.rfind('/', query);
  std::string merged = last == std::string::npos || last < path ? stem.substr(0, path) + (path > after ? "/" : "")
                                                                : stem.substr(0, last + 1);
  std::string rest = reference;
  while (rest.substr(0, 2) == "./") rest.erase(0, 2);
  while (rest.substr(0, 3) == "../") {
    rest.erase(0, 3);
    if (merged.size() > path + 1) merged.erase(merged.rfind('/', merged.size() - 2) + 1);
  }
  return merged + rest;
}

std::vector<const Json::Member*> LastMembers(const Json& object) {
  const Json::Object& all = object.Members();
  std::unordered_set<std::string_view> names;
  std::vector<const Json::Member*> last;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    if (names.insert(it->first).second) last.push_back(&*it);
  }
  std::reverse(last.begin(), last.end());
  return last;
}

std::string CanonicalJson(const Json& value) {
  if (value.IsNumber()) {
    auto decimal = ParseDecimal(value.Literal());
    return decimal.ok() ? PlainSpelling(*decimal) : value.Literal();
  }
  if (value.IsArray()) {
    std::string out = "[";
    for (const Json& item : value.Items()) out += CanonicalJson(item) + ",";
    return out + "]";
  }
  if (value.IsObject()) {
    std::map<std::string, std::string> members;
    for (const auto& [key, member] : value.Members()) members[key] = CanonicalJson(member);
    std::string out = "{";
    for (const auto& [key, text] : members) {
      AppendJsonString(key, false, &out);
      out += ":" + text + ",";
    }
    return out + "}";
  }
  return WriteJson(value);
}

SchemaGraph::SchemaGraph(ExprPool* pool, Budget* budget) : pool_(pool), budget_(budget) {
  nodes_.emplace_back().form = SchemaNode::Form::kTrue;
  nodes_.emplace_back().form = SchemaNode::Form::kFalse;
}

Status SchemaGraph::Unsupported(const std::string& keyword, const std::string& pointer, std::string_view why) {
  if (options_.allow_unsupported) {
    dropped_.push_back(pointer + "/" + keyword);
    return Status();
  }
  return Error(Code::kUnimplemented, "{}/{}: keyword \"{}\" cannot be enforced: {}", pointer, keyword, keyword, why);
}

uint32_t SchemaGraph::IndexIdentifiers(const Json& value, uint32_t base) {
  const Json* ref = draft_ != 0 && draft_ <= 7 ? value.Find("$ref") : nullptr;
  const Json* id = value.Find(draft_ == 4 ? "id" : "$id");
  if (id != nullptr && id->IsString() && (ref == nullptr || !ref->IsString())) {
    const std::string uri = ResolveUri(bases_[base], id->AsString());
    const size_t hash = uri.find('#');
    if (hash != std::string::npos && hash + 1 < uri.size()) {
      resources_.try_emplace(uri, &value);  // drafts 4 to 7: an anchor
    } else {
      resources_.try_emplace(uri.substr(0, hash), &value);
      bases_.push_back(uri.substr(0, hash));
      base = static_cast<uint32_t>(bases_.size() - 1);
    }
  }
  for (const char* key : {"$anchor", "$dynamicAnchor"}) {
    const Json* anchor = value.Find(key);
    if (anchor == nullptr || !anchor->IsString()) continue;
    resources_.try_emplace(bases_[base] + "#" + anchor->AsString(), &value);
    if (key[1] == 'd') dynamic_anchors_[anchor->AsString()].push_back(&value);
  }
  const Json* recursive = value.Find("$recursiveAnchor");
  if (recursive != nullptr && recursive->IsBool() && recursive->AsBool()) recursive_anchors_.push_back(&value);
  return base;
}

void SchemaGraph::Index(const Json& value, uint32_t base, const std::string& pointer, int depth) {
  if (depth > kSchemaDepthMax) {
    budget_->Fail(Error(Code::kResourceExhausted, "schema: nested deeper than {}", kSchemaDepthMax));
    return;
  }
  if (!budget_->Spend()) return;
  if (value.IsObject()) {
    base = IndexIdentifiers(value, base);
    locations_[&value] = {base, pointer};
    for (const auto& [key, member] : value.Members()) {
      if (key == "enum" || key == "const") continue;
      Index(member, base, pointer + "/" + EscapePointer(key), depth + 1);
    }
  } else if (value.IsArray()) {
    for (size_t i = 0; i < value.Items().size(); ++i) {
      Index(value.Items()[i], base, fmt::format("{}/{}", pointer, i), depth + 1);
    }
  }
}

Result<NodeId> SchemaGraph::Load(const Json* schema, const SchemaOptions& options) {
  options_ = options;
  resources_.clear();
  dynamic_anchors_.clear();
  recursive_anchors_.clear();
  const Json* said = schema->Find("$schema");
  draft_ = said != nullptr && said->IsString() ? DraftOf(said->AsString()) : 0;
  if (draft_ == 3) return Error(Code::kUnimplemented, "#/$schema: keyword \"$schema\" cannot be enforced: draft 3");
  for (const auto& [uri, text] : options.documents) {
    DI_ASSIGN_OR_RETURN(Json document, ParseJson(text));
    owned_.push_back(std::move(document));
    bases_.push_back(uri);
    resources_[uri] = &owned_.back();
    Index(owned_.back(), static_cast<uint32_t>(bases_.size() - 1), uri + "#", 0);
  }
  bases_.push_back("");
  resources_[""] = schema;
  Index(*schema, static_cast<uint32_t>(bases_.size() - 1), "#", 0);
  if (said != nullptr && said->IsString()) {
    const auto meta = resources_.find(said->AsString());
    if (meta != resources_.end() && meta->second->Find("$vocabulary") != nullptr) {
      return Error(Code::kUnimplemented, "#/$schema: keyword \"$schema\" cannot be enforced: a vocabulary of its own");
    }
  }
  DI_ASSIGN_OR_RETURN(const NodeId root, NodeFor(*schema, "#"));
  while (!unread_.empty()) {
    if (!budget_->Spend()) return budget_->failure();
    const NodeId id = unread_.back();
    const Json* json = unread_json_.back();
    unread_.pop_back();
    unread_json_.pop_back();
    DI_RETURN_IF_ERROR(Fill(*json, id));
  }
  if (!budget_->ok()) return budget_->failure();
  return root;
}

Result<NodeId> SchemaGraph::NodeFor(const Json& value, const std::string& pointer) {
  if (value.IsBool()) return value.AsBool() ? kTrueNode : kFalseNode;
  if (!value.IsObject()) {
    return Error(Code::kInvalidArgument, "{}: a schema must be an object or a boolean, found {}", pointer, value.KindName());
  }
  if (value.Members().empty()) return kTrueNode;
  const auto [it, is_new] = by_json_.try_emplace(&value, static_cast<NodeId>(nodes_.size()));
  if (is_new) {
    nodes_.emplace_back().pointer = pointer;
    unread_.push_back(it->second);
    unread_json_.push_back(&value);
  }
  return it->second;
}

NodeId SchemaGraph::ConstNode(const Json& value) {
  const auto [it, is_new] = by_const_.try_emplace(CanonicalJson(value), static_cast<NodeId>(nodes_.size()));
  if (is_new) {
    owned_.push_back(value);
    SchemaNode& node = nodes_.emplace_back();
    node.form = SchemaNode::Form::kConst;
    node.value = &owned_.back();
  }
  return it->second;
}

NodeId SchemaGraph::AnyOfNode(std::vector<NodeId> list) {
  const auto [it, is_new] = by_any_of_.try_emplace(list, static_cast<NodeId>(nodes_.size()));
  if (is_new) {
    SchemaNode& node = nodes_.emplace_back();
    node.form = SchemaNode::Form::kAnyOf;
    node.any_of = std::move(list);
  }
  return it->second;
}

NodeId SchemaGraph::NonStringNode() {
  if (non_string_ == kNoNode) {
    non_string_ = static_cast<NodeId>(nodes_.size());
    nodes_.emplace_back().types = kAnyType & ~kString;
  }
  return non_string_;
}

Status SchemaGraph::Fill(const Json& value, NodeId id) {
  SchemaNode node = nodes_[id];
  reading_ = &value;
  const Json* ref = value.Find("$ref");
  if (draft_ != 0 && draft_ <= 7 && ref != nullptr && ref->IsString()) {
    DI_RETURN_IF_ERROR(ReadReference("$ref", *ref, &node));
    nodes_[id] = std::move(node);
    return Status();
  }
  for (const Json::Member* member : LastMembers(value)) {
    DI_RETURN_IF_ERROR(ReadKeyword(member->first, member->second, value, &node));
  }
  DI_RETURN_IF_ERROR(ReadLengths(value, &node));
  nodes_[id] = std::move(node);
  return Status();
}

Status SchemaGraph::ReadKeyword(const std::string& key, const Json& value, const Json& schema, SchemaNode* node) {
  bool known = false;
  Status status = ReadScalarKeyword(key, value, schema, node, &known);
  if (!known) status = ReadArrayKeyword(key, value, schema, node, &known);
  if (!known) status = ReadObjectKeyword(key, value, schema, node, &known);
  if (!known) status = ReadApplicator(key, value, schema, node, &known);
  if (status.ok()) return status;
  // Messages of nested readers carry their pointer already.
  if (status.message().rfind("#", 0) == 0 || status.message().find("#/") != std::string::npos) return status;
  return status.In(node->pointer + "/" + EscapePointer(key));
}

Status SchemaGraph::ReadType(const Json& value, SchemaNode* node) {
  const auto bits = [](const Json& name, bool* integer) -> int {
    if (!name.IsString()) return -1;
    static constexpr std::pair<std::string_view, int> kNames[] = {{"null", kNull},       {"boolean", kBoolean},
                                                                  {"number", kNumber},   {"integer", kNumber},
                                                                  {"string", kString},   {"array", kArray},
                                                                  {"object", kObject},   {"any", kAnyType}};
    for (const auto& [text, bit] : kNames) {
      if (name.AsString() != text) continue;
      *integer = text == "integer";
      return bit;
    }
    return -1;
  };
  int types = 0;
  bool whole = false, any_number = false;
  const auto add = [&](const Json& name) {
    bool integer = false;
    const int bit = bits(name, &integer);
    if (bit < 0) return false;
    types |= bit;
    (integer ? whole : any_number) |= (bit & kNumber) != 0;
    return true;
  };
  bool fine = true;
  if (value.IsArray()) {
    for (const Json& item : value.Items()) fine &= add(item);
    fine &= !value.Items().empty();
  } else {
    fine = add(value);
  }
  if (!fine) return Error(Code::kInvalidArgument, "unknown type {}", WriteJson(value));
  node->types = static_cast<uint8_t>(types);
  node->integer_only = whole && !any_number;
  return Status();
}

Status SchemaGraph::ReadScalarKeyword(const std::string& key, const Json& value, const Json& schema, SchemaNode* node,
                                      bool* known) {
  *known = true;
  if (key == "type") return ReadType(value, node);
  if (key == "const" && draft_ != 4) {
    node->all_of.push_back(ConstNode(value));
    node->order.push_back('a');
    return Status();
  }
  if (key == "enum") {
    if (!value.IsArray()) return Error(Code::kInvalidArgument, "expected an array");
    node->has_enum = true;
    for (const Json& item : value.Items()) node->enumeration.push_back(ConstNode(item));
    return Status();
  }
  if (key == "minimum" || key == "maximum" || key == "exclusiveMinimum" || key == "exclusiveMaximum") {
    if (value.IsBool() && key[0] == 'e') return Status();  // draft 4: belongs to minimum and maximum
    if (!value.IsNumber()) return Error(Code::kInvalidArgument, "expected a number");
    NumberBound bound;
    bound.lower = key.back() == 'm' && key.find("Min") != std::string::npos ? true : key == "minimum";
    const Json* strict = schema.Find(bound.lower ? "exclusiveMinimum" : "exclusiveMaximum");
    bound.strict = key[0] == 'e' || (strict != nullptr && strict->IsBool() && strict->AsBool());
    DI_ASSIGN_OR_RETURN(bound.value, ParseDecimal(value.Literal()));
    node->bounds.push_back(std::move(bound));
    return Status();
  }
  if (key == "multipleOf" || key == "divisibleBy") {
    if (!value.IsNumber()) return Error(Code::kInvalidArgument, "expected a number");
    DI_ASSIGN_OR_RETURN(Decimal divisor, ParseDecimal(value.Literal()));
    if (divisor.negative || divisor.IsZero()) return Error(Code::kInvalidArgument, "must be above 0");
    if (!NumberMultipleOf(pool_, divisor).ok()) return Unsupported(key, node->pointer, "it has too many digits");
    node->multiple_of.push_back(std::move(divisor));
    return Status();
  }
  if (key == "pattern") {
    if (!value.IsString()) return Error(Code::kInvalidArgument, "expected a string");
    auto expr = ParseRegex(pool_, value.AsString(), RegexMatch::kSearch);
    if (!expr.ok()) return Unsupported(key, node->pointer, expr.status().message());
    node->strings.push_back(*expr);
    return Status();
  }
  if (key == "format" && value.IsString() && options_.assert_formats) {
    const FormatSupport support = SupportOfFormat(value.AsString());
    if (support == FormatSupport::kUnknown) return Status();
    if (support == FormatSupport::kRefused) return Unsupported(key, node->pointer, "format \"" + value.AsString() + "\"");
    auto [it, is_new] = formats_.try_emplace(value.AsString(), 0);
    if (is_new) {
      DI_ASSIGN_OR_RETURN(it->second, FormatExpr(pool_, value.AsString()));
    }
    node->strings.push_back(it->second);
    return Status();
  }
  *known = false;
  return Status();
}

Status SchemaGraph::ReadLengths(const Json& schema, SchemaNode* node) {
  uint64_t min = 0, max = kNoMax;
  for (const char* key : {"minLength", "maxLength"}) {
    const Json* value = schema.Find(key);
    if (value == nullptr) continue;
    auto count = CountOf(*value);
    if (!count.ok()) return count.status().In(node->pointer + "/" + key);
    (key[1] == 'i' ? min : max) = *count;
  }
  if (min == 0 && max == kNoMax) return Status();
  node->strings.push_back(pool_->Repeat(AnyChar(pool_), min, max));
  return Status();
}

Status SchemaGraph::ReadList(const Json& value, const std::string& pointer, std::vector<NodeId>* out) {
  if (!value.IsArray()) return Error(Code::kInvalidArgument, "{}: expected an array of schemas", pointer);
  for (size_t i = 0; i < value.Items().size(); ++i) {
    DI_ASSIGN_OR_RETURN(const NodeId node, NodeFor(value.Items()[i], fmt::format("{}/{}", pointer, i)));
    out->push_back(node);
  }
  return Status();
}

Status SchemaGraph::ReadArrayKeyword(const std::string& key, const Json& value, const Json& schema, SchemaNode* node,
                                     bool* known) {
  *known = true;
  const std::string pointer = node->pointer + "/" + EscapePointer(key);
  const auto count = [&](uint64_t* out) {
    auto number = CountOf(value);
    if (number.ok()) *out = *number;
    return number.status();
  };
  const Json* items = schema.Find("items");
  if (key == "minItems") return count(&node->min_items);
  if (key == "maxItems") return count(&node->max_items);
  if (key == "minContains" && (draft_ == 0 || draft_ >= 2019)) return count(&node->min_contains);
  if (key == "maxContains" && (draft_ == 0 || draft_ >= 2019)) return count(&node->max_contains);
  if (key == "uniqueItems") {
    node->unique_items = value.IsBool() && value.AsBool();
    return Status();
  }
  if (key == "prefixItems" && (draft_ == 0 || draft_ >= 2020)) return ReadList(value, pointer, &node->prefix_items);
  if (key == "items" && value.IsArray() && draft_ != 2020) return ReadList(value, pointer, &node->prefix_items);
  const bool additional = key == "additionalItems" && items != nullptr && items->IsArray() && draft_ != 2020;
  if (key == "items" || additional) {
    DI_ASSIGN_OR_RETURN(node->items, NodeFor(value, pointer));
    return Status();
  }
  if (key == "contains" && draft_ != 4) {
    DI_ASSIGN_OR_RETURN(node->contains, NodeFor(value, pointer));
    return Status();
  }
  if (key == "unevaluatedItems" && (draft_ == 0 || draft_ >= 2019)) {
    DI_ASSIGN_OR_RETURN(node->unevaluated_items, NodeFor(value, pointer));
    return Status();
  }
  *known = false;
  return Status();
}

Status SchemaGraph::ReadObjectKeyword(const std::string& key, const Json& value, const Json& schema, SchemaNode* node,
                                      bool* known) {
  *known = true;
  (void)schema;
  const std::string pointer = node->pointer + "/" + EscapePointer(key);
  const auto count = [&](uint64_t* out) {
    auto number = CountOf(value);
    if (number.ok()) *out = *number;
    return number.status();
  };
  if (key == "minProperties") return count(&node->min_properties);
  if (key == "maxProperties") return count(&node->max_properties);
  if (key == "required") {
    if (value.IsBool()) return Status();  // draft 3's spelling, without meaning since
    if (!value.IsArray()) return Error(Code::kInvalidArgument, "expected an array of strings");
    for (const Json& name : value.Items()) {
      if (!name.IsString()) return Error(Code::kInvalidArgument, "expected an array of strings");
      node->required.push_back(name.AsString());
    }
    return Status();
  }
  if (key == "properties" || key == "patternProperties") {
    if (!value.IsObject()) return Error(Code::kInvalidArgument, "expected an object");
    for (const Json::Member* place : LastMembers(value)) {
      const auto& [name, member] = *place;
      DI_ASSIGN_OR_RETURN(const NodeId child, NodeFor(member, pointer + "/" + EscapePointer(name)));
      if (key == "properties") {
        node->properties.emplace_back(name, child);
        continue;
      }
      auto expr = ParseRegex(pool_, name, RegexMatch::kSearch);
      if (!expr.ok()) return Unsupported(key, node->pointer, expr.status().message());
      node->pattern_properties.emplace_back(*expr, child);
    }
    if (key == "properties") node->order.push_back('p');
    return Status();
  }
  NodeId* slot = key == "additionalProperties"                            ? &node->additional
                 : key == "propertyNames" && draft_ != 4                  ? &node->property_names
                 : key == "unevaluatedProperties" && (draft_ == 0 || draft_ >= 2019) ? &node->unevaluated_properties
                                                                          : nullptr;
  if (slot != nullptr) {
    DI_ASSIGN_OR_RETURN(*slot, NodeFor(value, pointer));
    return Status();
  }
  const bool dependencies = key == "dependencies" && draft_ != 2020 && draft_ != 2019;
  const bool dependent = (key == "dependentRequired" || key == "dependentSchemas") && (draft_ == 0 || draft_ >= 2019);
  if (dependencies || dependent) return ReadDependencies(key, value, node);
  *known = false;
  return Status();
}

Status SchemaGraph::ReadDependencies(const std::string& key, const Json& value, SchemaNode* node) {
  if (!value.IsObject()) return Error(Code::kInvalidArgument, "expected an object");
  for (const auto& [name, member] : value.Members()) {
    if (member.IsArray() || member.IsString()) {
      std::vector<std::string> names;
      if (member.IsString()) names.push_back(member.AsString());
      if (member.IsArray()) {
        for (const Json& item : member.Items()) {
          if (!item.IsString()) return Error(Code::kInvalidArgument, "expected arrays of strings");
          names.push_back(item.AsString());
        }
      }
      node->dependent_required.emplace_back(name, std::move(names));
    } else {
      const std::string pointer = node->pointer + "/" + key + "/" + EscapePointer(name);
      DI_ASSIGN_OR_RETURN(const NodeId child, NodeFor(member, pointer));
      node->dependent_schemas.emplace_back(name, child);
    }
  }
  return Status();
}

Status SchemaGraph::ReadApplicator(const std::string& key, const Json& value, const Json& schema, SchemaNode* node,
                                   bool* known) {
  *known = true;
  const std::string pointer = node->pointer + "/" + EscapePointer(key);
  if (key == "allOf") {
    node->order.push_back('a');
    return ReadList(value, pointer, &node->all_of);
  }
  if (key == "anyOf" || key == "oneOf") {
    node->order.push_back(key[0] == 'a' ? 'n' : 'o');
    (key[0] == 'a' ? node->has_any_of : node->has_one_of) = true;
    return ReadList(value, pointer, key[0] == 'a' ? &node->any_of : &node->one_of);
  }
  if (key == "not") {
    DI_ASSIGN_OR_RETURN(node->negated, NodeFor(value, pointer));
    return Status();
  }
  const bool conditional = draft_ == 0 || draft_ >= 7;
  if (conditional && key == "if") {
    node->order.push_back('i');
    DI_ASSIGN_OR_RETURN(node->condition, NodeFor(value, pointer));
    return Status();
  }
  if (conditional && (key == "then" || key == "else") && schema.Find("if") != nullptr) {
    DI_ASSIGN_OR_RETURN(const NodeId child, NodeFor(value, pointer));
    (key == "then" ? node->then_node : node->else_node) = child;
    return Status();
  }
  if (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef") {
    if (value.IsString()) return ReadReference(key, value, node);
    return Error(Code::kInvalidArgument, "expected a string");
  }
  *known = false;
  return Status();
}

Status SchemaGraph::ReadReference(const std::string& key, const Json& value, SchemaNode* node) {
  if ((key == "$dynamicRef" && draft_ != 0 && draft_ < 2020) || (key == "$recursiveRef" && draft_ != 2019)) return Status();
  const auto here = locations_.find(reading_);
  const uint32_t base = here == locations_.end() ? static_cast<uint32_t>(bases_.size() - 1) : here->second.base;
  const std::string where = node->pointer + "/" + key;
  auto target = key == "$ref" ? Resolve(value.AsString(), base, where) : ResolveDynamic(value.AsString(), base, where);
  if (!target.ok()) return target.status();
  if (*target == nullptr) return Unsupported(key, node->pointer, "its target depends on the dynamic scope");
  const auto at = locations_.find(*target);
  DI_ASSIGN_OR_RETURN(const NodeId child, NodeFor(**target, at == locations_.end() ? where : at->second.pointer));
  if (node->ref != kNoNode || key != "$ref") {
    node->all_of.push_back(child);
    node->order.push_back('a');
  } else {
    node->ref = child;
    node->order.push_back('r');
  }
  return Status();
}

Result<const Json*> SchemaGraph::Resolve(const std::string& reference, uint32_t base, const std::string& where) {
  const std::string uri = ResolveUri(bases_[base], reference);
  const size_t hash = uri.find('#');
  const std::string stem = uri.substr(0, hash);
  const std::string fragment = hash == std::string::npos ? "" : UnescapePercent(uri.substr(hash + 1));
  const auto missing = [&]() { return Error(Code::kInvalidArgument, "{}: nothing at \"{}\"", where, reference.substr(0, 200)); };
  if (!fragment.empty() && fragment[0] != '/') {
    const auto anchor = resources_.find(stem + "#" + fragment);
    if (anchor == resources_.end()) return missing();
    return anchor->second;
  }
  const auto resource = resources_.find(stem);
  if (resource == resources_.end()) return missing();
  const Json* target = FollowPointer(resource->second, fragment);
  if (target == nullptr) return missing();
  return target;
}

Result<const Json*> SchemaGraph::ResolveDynamic(const std::string& reference, uint32_t base, const std::string& where) {
  DI_ASSIGN_OR_RETURN(const Json* target, Resolve(reference, base, where));
  if (reference == "#") {  // $recursiveRef
    const Json* recursive = target->Find("$recursiveAnchor");
    const bool dynamic = recursive != nullptr && recursive->IsBool() && recursive->AsBool();
    return dynamic && recursive_anchors_.size() > 1 ? nullptr : target;
  }
  const Json* anchor = target->Find("$dynamicAnchor");
  const size_t hash = reference.find('#');
  const bool dynamic = anchor != nullptr && anchor->IsString() && hash != std::string::npos &&
                       reference.substr(hash + 1) == anchor->AsString();
  return dynamic && dynamic_anchors_[anchor->AsString()].size() > 1 ? nullptr : target;
}

}  // namespace deepinfer::grammar
