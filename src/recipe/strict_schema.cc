// SPDX-License-Identifier: Apache-2.0
// Strict mode's form of a schema. It knows a fixed set of keywords for each type and writes them in a fixed order;
// what it does not know is left out, and what contradicts "all properties required, no others" is refused.
#include <array>
#include <string_view>
#include <utility>

#include "recipe/schema.h"

namespace deepinfer::recipe {
namespace {

constexpr std::array<std::string_view, 5> kFormats = {"email", "hostname", "ipv4", "ipv6", "uuid"};
constexpr std::array<std::string_view, 7> kNumberKeywords = {
    "const", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
constexpr std::array<std::string_view, 5> kScalarTypes = {"string", "number", "integer", "boolean", "null"};

template <size_t n>
bool Contains(const std::array<std::string_view, n>& words, std::string_view word) {
  for (const std::string_view each : words) {
    if (each == word) return true;
  }
  return false;
}

class StrictWriter {
 public:
  explicit StrictWriter(bool empty_top_allowed) : empty_allowed_(empty_top_allowed) {}

  Result<Json> Write(const Field& schema) {
    if (schema.Member("type").present()) return Typed(schema);
    empty_allowed_ = false;
    if (const Field any_of = schema.Member("anyOf"); any_of.present()) return AnyOf(schema, any_of);
    if (const Field ref = schema.Member("$ref"); ref.present()) {
      DI_ASSIGN_OR_RETURN(std::string target, ReadString(ref));
      return Json(Json::Object{{"$ref", Json(std::move(target))}});
    }
    return schema.Bad("strict mode needs one of \"type\", \"anyOf\", \"$ref\"");
  }

 private:
  Result<Json> Typed(const Field& schema) {
    const bool empty_allowed = std::exchange(empty_allowed_, false);  // of the top only
    const Field type = schema.Member("type");
    if (type.IsArray()) return Scalars(schema, type);
    DI_ASSIGN_OR_RETURN(const std::string name, ReadString(type));
    Json::Object out = {{"type", Json(name)}};
    if (name == "object") return ObjectSchema(schema, std::move(out), empty_allowed);
    if (name == "array") return ArraySchema(schema, std::move(out));
    if (!Contains(kScalarTypes, name)) return type.Bad("not a type of strict mode");
    DI_RETURN_IF_ERROR(CopyString(schema, "description", &out));
    if (name == "string") DI_RETURN_IF_ERROR(StringKeywords(schema, &out));
    if (name == "number" || name == "integer") {
      for (const std::string_view keyword : kNumberKeywords) {
        DI_RETURN_IF_ERROR(CopyNumber(schema.Member(keyword), keyword, name == "integer", &out));
      }
    }
    return Json(std::move(out));
  }

  static Result<Json> Scalars(const Field& schema, const Field& type) {
    for (size_t i = 0; i < type.size(); ++i) {
      const Field item = type.Item(i);
      if (!item.IsString() || !Contains(kScalarTypes, item.json().AsString())) {
        return item.Bad("strict mode allows only string, number, integer, boolean and null in a list of types");
      }
    }
    Json::Object out = {{"type", type.json()}};
    DI_RETURN_IF_ERROR(CopyString(schema, "description", &out));
    return Json(std::move(out));
  }

  static Status CopyString(const Field& schema, std::string_view keyword, Json::Object* out) {
    DI_ASSIGN_OR_RETURN(auto text, ReadOptionalString(schema.Member(keyword)));
    if (text) out->emplace_back(keyword, Json(*std::move(text)));
    return {};
  }

  static Status CopyNumber(const Field& value, std::string_view keyword, bool integer, Json::Object* out) {
    if (!value.given()) return {};
    if (integer) {
      DI_RETURN_IF_ERROR(ReadInteger(value, INT64_MIN, INT64_MAX).status());
    } else {
      DI_RETURN_IF_ERROR(ReadNumber(value).status());
    }
    out->emplace_back(keyword, value.json());
    return {};
  }

  static Status StringKeywords(const Field& schema, Json::Object* out) {
    DI_RETURN_IF_ERROR(CopyString(schema, "pattern", out));
    const Field format = schema.Member("format");
    DI_RETURN_IF_ERROR(CopyString(schema, "format", out));
    if (format.IsString() && !Contains(kFormats, format.json().AsString())) {
      return format.Bad("not a format of strict mode (email, hostname, ipv4, ipv6, uuid)");
    }
    const Field values = schema.Member("enum");
    if (!values.given()) return {};
    DI_RETURN_IF_ERROR(ExpectArray(values));
    for (size_t i = 0; i < values.size(); ++i) DI_RETURN_IF_ERROR(ReadString(values.Item(i)).status());
    out->emplace_back("enum", values.json());
    return {};
  }

  Result<Json> ArraySchema(const Field& schema, Json::Object out) {
    const Field items = schema.Member("items");
    if (!items.present()) return items.BadKind("a schema");
    DI_ASSIGN_OR_RETURN(Json item, Write(items));
    out.emplace_back("items", std::move(item));
    DI_RETURN_IF_ERROR(CopyString(schema, "description", &out));
    return Json(std::move(out));
  }

  Result<Json> ObjectSchema(const Field& schema, Json::Object out, bool empty_allowed) {
    const Field properties = schema.Member("properties");
    Json::Object written;
    Json::Array required;
    if (properties.given()) {
      DI_RETURN_IF_ERROR(ExpectObject(properties));
      for (const auto& [name, unused] : properties.json().Members()) {
        DI_ASSIGN_OR_RETURN(Json property, Write(properties.Member(name)));
        written.emplace_back(name, std::move(property));
        required.emplace_back(name);
      }
    }
    if (written.empty() && !empty_allowed) return schema.Bad("strict mode allows no object without properties");
    DI_ASSIGN_OR_RETURN(const auto additional, ReadOptionalBool(schema.Member("additionalProperties")));
    if (additional.value_or(false)) {
      return schema.Member("additionalProperties").Bad("strict mode allows no additional properties");
    }
    DI_RETURN_IF_ERROR(CheckRequired(schema.Member("required"), written));
    out.emplace_back("properties", Json(std::move(written)));
    out.emplace_back("additionalProperties", Json(false));
    out.emplace_back("required", Json(std::move(required)));
    DI_RETURN_IF_ERROR(CopyString(schema, "description", &out));
    if (const Field defs = schema.Member("$def"); defs.given()) {
      DI_RETURN_IF_ERROR(ExpectObject(defs));
      Json::Object definitions;
      for (const auto& [name, unused] : defs.json().Members()) {
        DI_ASSIGN_OR_RETURN(Json definition, Write(defs.Member(name)));
        definitions.emplace_back(name, std::move(definition));
      }
      out.emplace_back("$def", Json(std::move(definitions)));
    }
    return Json(std::move(out));
  }

  static Status CheckRequired(const Field& required, const Json::Object& properties) {
    if (!required.given()) return {};
    DI_RETURN_IF_ERROR(ExpectArray(required));
    for (size_t i = 0; i < required.size(); ++i) {
      DI_ASSIGN_OR_RETURN(const std::string name, ReadString(required.Item(i)));
      bool found = false;
      for (const auto& [property, unused] : properties) found = found || property == name;
      if (!found) return required.Item(i).Bad("no property has that name");
    }
    if (required.size() != properties.size()) return required.Bad("strict mode requires every property");
    return {};
  }

  Result<Json> AnyOf(const Field& schema, const Field& any_of) {
    DI_RETURN_IF_ERROR(ExpectArray(any_of));
    Json::Array items;
    for (size_t i = 0; i < any_of.size(); ++i) {
      const Field item = any_of.Item(i);
      if (!item.Member("type").IsString()) return item.Bad("strict mode needs a \"type\" here");
      DI_ASSIGN_OR_RETURN(Json written, Write(item));
      items.push_back(std::move(written));
    }
    Json::Object out = {{"anyOf", Json(std::move(items))}};
    DI_RETURN_IF_ERROR(CopyString(schema, "description", &out));
    return Json(std::move(out));
  }

  bool empty_allowed_;
};

}  // namespace

Json NoParameters() {
  return Json(Json::Object{{"type", Json("object")},
                           {"properties", Json(Json::Object())},
                           {"additionalProperties", Json(false)},
                           {"required", Json(Json::Array())}});
}

Result<Json> StrictSchema(const Field& schema, StrictUse use) {
  const Field type = schema.Member("type");
  if (use == StrictUse::kResponse && !(type.IsString() && type.json().AsString() == "object")) {
    return schema.Bad("in strict mode the schema's type must be \"object\"");
  }
  return StrictWriter(use == StrictUse::kTool).Write(schema);
}

}  // namespace deepinfer::recipe
