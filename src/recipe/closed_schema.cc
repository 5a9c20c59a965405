// SPDX-License-Identifier: Apache-2.0
// Schemas with something added where they leave it open: strict mode, and SchemaForm. A schema that lies *in place* within
// another (allOf, if, not ...) speaks of the same value as that one does, so what is added would forbid what the other
// allows: those stay as they are.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "recipe/schema.h"

namespace deepinfer::recipe {
namespace {

using Words = std::initializer_list<std::string_view>;

bool IsOneOf(std::string_view word, Words words) { return std::find(words.begin(), words.end(), word) != words.end(); }

bool HasAny(const Field& schema, Words keywords) {
  return std::any_of(keywords.begin(), keywords.end(),
                     [&](std::string_view word) { return schema.Member(word).present(); });
}

bool HasType(const Field& schema, std::string_view name) {
  const Field type = schema.Member("type");
  if (type.IsString()) return type.json().AsString() == name;
  for (size_t i = 0; i < type.size(); ++i) {
    if (type.Item(i).IsString() && type.Item(i).json().AsString() == name) return true;
  }
  return false;
}

class Closer {
 public:
  // Strict mode.
  explicit Closer(bool empty_top_allowed) : strict_(true), empty_allowed_(empty_top_allowed) {}
  explicit Closer(const SchemaForm& form) : form_(form) {}

  // `shared`: another schema speaks of the same value.
  Result<Json> Close(const Field& schema, bool shared) {
    const bool empty_allowed = std::exchange(empty_allowed_, false);  // of the top only
    const bool one_of = std::exchange(one_of_, false);
    if (!schema.IsObject()) {
      if (strict_ && !shared) return schema.BadKind("a schema with a \"type\" in strict mode");
      return schema.json();
    }
    Json::Object out;
    for (const auto& [name, value] : schema.json().Members()) {
      DI_ASSIGN_OR_RETURN(Json closed, Keyword(schema, name, schema.Member(name), shared));
      out.emplace_back(name, std::move(closed));
    }
    if (!shared && strict_) DI_RETURN_IF_ERROR(CloseStrictly(schema, empty_allowed, &out));
    if (!shared && !strict_) Add(schema, one_of, &out);
    return Json(std::move(out));
  }

 private:
  Result<Json> Keyword(const Field& schema, std::string_view name, const Field& value, bool shared) {
    if (IsOneOf(name, {"properties", "patternProperties", "$defs", "$def", "definitions"})) return Each(value, false);
    if (IsOneOf(name, {"dependentSchemas", "dependencies"})) return Each(value, true);
    if (IsOneOf(name, {"allOf", "not", "if", "then", "else"})) return One(value, true);
    if (IsOneOf(name, {"anyOf", "oneOf"})) {
      return One(value, shared || HasAny(schema, {"properties", "patternProperties"}), name == "oneOf");
    }
    if (IsOneOf(name, {"items", "prefixItems", "additionalItems", "unevaluatedItems"})) return One(value, false);
    if (name == "additionalProperties" && !strict_) return One(value, false);
    return value.json();
  }

  // A schema, or an array of them. All else is for others to judge. `one_of`: branches of oneOf.
  Result<Json> One(const Field& value, bool shared, bool one_of = false) {
    if (value.IsObject()) return Close(value, shared);
    if (!value.IsArray()) return value.json();
    Json::Array items;
    for (size_t i = 0; i < value.size(); ++i) {
      one_of_ = one_of;
      DI_ASSIGN_OR_RETURN(Json item, Close(value.Item(i), shared));
      items.push_back(std::move(item));
    }
    return Json(std::move(items));
  }

  // An object whose members are schemas (or, of dependencies, lists of names).
  Result<Json> Each(const Field& value, bool shared) {
    if (!value.IsObject()) return value.json();
    Json::Object members;
    for (const auto& [name, unused] : value.json().Members()) {
      const Field member = value.Member(name);
      if (member.IsArray()) {
        members.emplace_back(name, member.json());
        continue;
      }
      DI_ASSIGN_OR_RETURN(Json closed, Close(member, shared));
      members.emplace_back(name, std::move(closed));
    }
    return Json(std::move(members));
  }

  // `one_of`: it is a branch of oneOf.
  void Add(const Field& schema, bool one_of, Json::Object* out) const {
    const bool declares = HasAny(schema, {"properties", "patternProperties"});
    const bool said = HasAny(schema, {"additionalProperties", "unevaluatedProperties"});
    const bool joined = HasAny(schema, {"allOf", "anyOf", "oneOf", "if", "$ref", "dependentSchemas", "dependencies"});
    if (form_.closed && declares && !said && !joined) out->emplace_back("additionalProperties", Json(false));
    if (HasAny(schema, {"enum", "const"})) return;
    // Patterns that exclude each other make large automata, and a count would multiply them: those stay open.
    if (!HasAny(schema, {"oneOf", "not", "if"}) && !(one_of && HasAny(schema, {"pattern", "allOf", "anyOf"}))) {
      AddMost(schema, "string", "minLength", "maxLength", form_.max_length, out);
    }
    if (!HasAny(schema, {"contains"})) AddMost(schema, "array", "minItems", "maxItems", form_.max_items, out);
  }

  static void AddMost(const Field& schema, std::string_view type, std::string_view least, std::string_view most,
                      int64_t limit, Json::Object* out) {
    if (limit == 0 || HasAny(schema, {most})) return;
    if (schema.Member("type").present() && !HasType(schema, type)) return;
    const Field min = schema.Member(least);
    if (min.present() && min.json().ToDouble().value_or(0) > static_cast<double>(limit)) return;
    out->emplace_back(most, Json::Integer(limit));
  }

  static Status CloseStrictly(const Field& schema, bool empty_allowed, Json::Object* out) {
    if (!HasAny(schema, {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"})) {
      return schema.Bad("strict mode needs one of \"type\", \"anyOf\", \"$ref\"");
    }
    if (HasType(schema, "array") && !HasAny(schema, {"items", "prefixItems"}))
      return schema.Member("items").BadKind("a schema");
    const Field properties = schema.Member("properties");
    if (!HasType(schema, "object") && !properties.given()) return {};
    const Json::Object none;
    const Json::Object& declared = properties.IsObject() ? properties.json().Members() : none;
    if (declared.empty() && !empty_allowed) return schema.Bad("strict mode allows no object without properties");
    const Field additional = schema.Member("additionalProperties");
    if (additional.given() && !(additional.json() == Json(false)))
      return additional.Bad("strict mode allows no additional properties");
    std::erase_if(*out, [](const Json::Member& member) {
      return IsOneOf(member.first, {"additionalProperties", "required"});
    });
    out->emplace_back("additionalProperties", Json(false));
    DI_ASSIGN_OR_RETURN(Json required, Required(schema.Member("required"), declared));
    out->emplace_back("required", std::move(required));
    return {};
  }

  // All names, which is also what the schema has to say where it says anything.
  static Result<Json> Required(const Field& required, const Json::Object& declared) {
    Json::Array names;
    for (const auto& [name, unused] : declared) names.emplace_back(name);
    if (!required.given()) return Json(std::move(names));
    DI_RETURN_IF_ERROR(ExpectArray(required));
    for (size_t i = 0; i < required.size(); ++i) {
      DI_ASSIGN_OR_RETURN(const std::string name, ReadString(required.Item(i)));
      if (std::find(names.begin(), names.end(), Json(name)) == names.end())
        return required.Item(i).Bad("no property has that name");
    }
    if (required.size() != declared.size()) return required.Bad("strict mode requires every property");
    return Json(std::move(names));
  }

  const bool strict_ = false;
  bool empty_allowed_ = false;
  bool one_of_ = false;  // of the next schema
  const SchemaForm form_;
};

// Whether `less` says what `full` says, but for keywords that say nothing about values.
bool SaysTheSame(const Json& full, const Json& less, bool keywords) {
  if (full.IsArray() && less.IsArray()) {
    return std::equal(full.Items().begin(), full.Items().end(), less.Items().begin(), less.Items().end(),
                      [](const Json& a, const Json& b) { return SaysTheSame(a, b, true); });
  }
  if (!full.IsObject() || !less.IsObject()) return full == less;
  for (const auto& [name, value] : full.Members()) {
    const Json* other = less.Find(name);
    if (other == nullptr) {
      if (keywords &&
          IsOneOf(name, {"title", "description", "default", "examples", "$schema", "$comment", "deprecated"}))
        continue;
      return false;
    }
    if (!SaysTheSame(value, *other, name != "properties")) return false;
  }
  return true;
}

Status CheckTop(const Field& schema, StrictUse use) {
  const Field type = schema.Member("type");
  if (use == StrictUse::kResponse && !(type.IsString() && type.json().AsString() == "object")) {
    return schema.Bad("in strict mode the schema's type must be \"object\"");
  }
  return {};
}

}  // namespace

Json FormedSchema(const Field& schema, const SchemaForm& form) {
  if (form == SchemaForm()) return schema.json();
  return *Closer(form).Close(schema, false);
}

Result<Json> StrictSchemaInFull(const Field& schema, StrictUse use) {
  DI_RETURN_IF_ERROR(CheckTop(schema, use));
  DI_ASSIGN_OR_RETURN(Json full, Closer(use == StrictUse::kTool).Close(schema, false));
  // The spelling that the model was trained with, where nothing gets lost by it.
  const Result<Json> usual = StrictSchema(schema, use);
  return usual.ok() && SaysTheSame(full, *usual, true) ? *usual : full;
}

}  // namespace deepinfer::recipe
