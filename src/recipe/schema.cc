// SPDX-License-Identifier: Apache-2.0
#include "recipe/schema.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace deepinfer::recipe {
namespace {

enum class Draft { k4, k6, k7, k2019, k2020 };

// What the value of a keyword has to be.
enum class Shape {
  kSchema,
  kSchemaOrBool,    // what draft 4, too, has booleans for
  kSchemas,         // array of at least one
  kSchemaMap,       // object of schemas
  kPatternMap,      // the same, keys are patterns
  kItems,           // a schema, or an array of them before 2020-12
  kType,            // a type's name, or an array of at least one
  kString,
  kStringSet,       // array of different strings
  kStringSetMap,    // object of those
  kDependencies,    // object of schemas and string sets
  kCount,           // integer, at least 0
  kNumber,
  kPositive,        // number above 0
  kLimit,           // number; draft 4: boolean
  kBool,
  kArray,
  kObject,
  kPattern,
  kId,
  kAnchor,
  kReference,
};

struct Keyword {
  std::string_view name;
  Shape shape;
};

constexpr Keyword kKeywords[] = {
    {"$anchor", Shape::kAnchor},
    {"$comment", Shape::kString},
    {"$defs", Shape::kSchemaMap},
    {"$dynamicAnchor", Shape::kAnchor},
    {"$dynamicRef", Shape::kReference},
    {"$id", Shape::kId},
    {"$ref", Shape::kReference},
    {"$schema", Shape::kString},
    {"$vocabulary", Shape::kObject},
    {"additionalProperties", Shape::kSchemaOrBool},
    {"allOf", Shape::kSchemas},
    {"anyOf", Shape::kSchemas},
    {"contains", Shape::kSchema},
    {"contentEncoding", Shape::kString},
    {"contentMediaType", Shape::kString},
    {"contentSchema", Shape::kSchema},
    {"definitions", Shape::kSchemaMap},
    {"dependencies", Shape::kDependencies},
    {"dependentRequired", Shape::kStringSetMap},
    {"dependentSchemas", Shape::kSchemaMap},
    {"deprecated", Shape::kBool},
    {"description", Shape::kString},
    {"else", Shape::kSchema},
    {"enum", Shape::kArray},
    {"examples", Shape::kArray},
    {"exclusiveMaximum", Shape::kLimit},
    {"exclusiveMinimum", Shape::kLimit},
    {"format", Shape::kString},
    {"if", Shape::kSchema},
    {"items", Shape::kItems},
    {"maxContains", Shape::kCount},
    {"maxItems", Shape::kCount},
    {"maxLength", Shape::kCount},
    {"maxProperties", Shape::kCount},
    {"maximum", Shape::kNumber},
    {"minContains", Shape::kCount},
    {"minItems", Shape::kCount},
    {"minLength", Shape::kCount},
    {"minProperties", Shape::kCount},
    {"minimum", Shape::kNumber},
    {"multipleOf", Shape::kPositive},
    {"not", Shape::kSchema},
    {"oneOf", Shape::kSchemas},
    {"pattern", Shape::kPattern},
    {"patternProperties", Shape::kPatternMap},
    {"prefixItems", Shape::kSchemas},
    {"properties", Shape::kSchemaMap},
    {"propertyNames", Shape::kSchema},
    {"readOnly", Shape::kBool},
    {"required", Shape::kStringSet},
    {"then", Shape::kSchema},
    {"title", Shape::kString},
    {"type", Shape::kType},
    {"unevaluatedItems", Shape::kSchema},
    {"unevaluatedProperties", Shape::kSchema},
    {"uniqueItems", Shape::kBool},
    {"writeOnly", Shape::kBool},
};

constexpr std::string_view kTypes[] = {"array", "boolean", "integer", "null", "number", "object", "string"};

// A regular expression of the kind that JSON Schema means (ECMA 262).
bool IsPattern(const std::string& pattern) {
  // Escapes that PCRE2 knows and ECMA 262 does not.
  for (size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] != '\\') continue;
    if (std::string_view("AzZGQEKRXk").find(pattern[++i]) != std::string_view::npos) return false;
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_ALT_BSUX, &error,
                    &offset, nullptr),
      pcre2_code_free);
  return code != nullptr;
}

bool IsAnchor(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    const bool later = (c >= '0' && c <= '9') || c == '-' || c == '.';
    if (!letter && (i == 0 || !later)) return false;
  }
  return !text.empty();
}

class SchemaChecker {
 public:
  explicit SchemaChecker(const Field& root) : root_(root) {}

  Status Check() {
    DI_RETURN_IF_ERROR(ChooseDraft());
    DI_RETURN_IF_ERROR(Schema(root_));
    for (const Field& reference : references_) DI_RETURN_IF_ERROR(Resolve(reference));
    return {};
  }

 private:
  Status ChooseDraft() {
    const Field schema = root_.Member("$schema");
    if (!schema.IsString()) return {};
    std::string uri = schema.json().AsString();
    if (uri.ends_with('#')) uri.pop_back();
    if (uri == "https://json-schema.org/draft/2020-12/schema") return {};
    if (uri == "https://json-schema.org/draft/2019-09/schema") {
      draft_ = Draft::k2019;
    } else if (uri == "http://json-schema.org/draft-07/schema") {
      draft_ = Draft::k7;
    } else if (uri == "http://json-schema.org/draft-06/schema") {
      draft_ = Draft::k6;
    } else if (uri == "http://json-schema.org/draft-04/schema") {
      draft_ = Draft::k4;
    } else {
      return schema.Bad("unknown JSON Schema draft");
    }
    return {};
  }

  Status Schema(const Field& schema) {
    if (schema.present() && schema.json().IsBool() && draft_ != Draft::k4) return {};
    if (!schema.IsObject()) return schema.BadKind("a JSON Schema (an object or a boolean)");
    if (const Field id = schema.Member("id"); draft_ == Draft::k4 && id.IsString()) DI_RETURN_IF_ERROR(String(id, Shape::kId));
    for (const auto& [name, shape] : kKeywords) {
      if (const Field keyword = schema.Member(name); keyword.present()) DI_RETURN_IF_ERROR(CheckShape(keyword, shape));
    }
    return {};
  }

  Status CheckShape(const Field& value, Shape shape) {
    switch (shape) {
      case Shape::kSchema:
        return Schema(value);
      case Shape::kSchemaOrBool:
        return value.json().IsBool() ? Status() : Schema(value);
      case Shape::kSchemas:
        return Schemas(value);
      case Shape::kSchemaMap:
      case Shape::kPatternMap:
        return SchemaMap(value, shape == Shape::kPatternMap);
      case Shape::kItems:
        return value.IsArray() && draft_ != Draft::k2020 ? Schemas(value) : Schema(value);
      case Shape::kType:
        return Type(value);
      case Shape::kStringSet:
        return StringSet(value);
      case Shape::kStringSetMap:
      case Shape::kDependencies:
        return Dependencies(value, shape == Shape::kDependencies);
      case Shape::kArray:
        return ExpectArray(value);
      case Shape::kObject:
        return ExpectObject(value);
      case Shape::kBool:
        return value.json().IsBool() ? Status() : value.BadKind("a boolean");
      case Shape::kCount:
      case Shape::kNumber:
      case Shape::kPositive:
      case Shape::kLimit:
        return Number(value, shape);
      case Shape::kString:
      case Shape::kPattern:
      case Shape::kId:
      case Shape::kAnchor:
      case Shape::kReference:
        return String(value, shape);
    }
    return {};
  }

  Status Schemas(const Field& value) {
    DI_RETURN_IF_ERROR(ExpectArray(value));
    if (value.size() == 0) return value.Bad("expected at least one schema");
    for (size_t i = 0; i < value.size(); ++i) DI_RETURN_IF_ERROR(Schema(value.Item(i)));
    return {};
  }

  Status SchemaMap(const Field& value, bool keys_are_patterns) {
    DI_RETURN_IF_ERROR(ExpectObject(value));
    for (const auto& [key, unused] : value.json().Members()) {
      const Field schema = value.Member(key);
      if (keys_are_patterns && !IsPattern(key)) return schema.Bad("its name is not a regular expression");
      DI_RETURN_IF_ERROR(Schema(schema));
    }
    return {};
  }

  static bool IsType(const Json& value) {
    if (!value.IsString()) return false;
    for (const std::string_view type : kTypes) {
      if (value.AsString() == type) return true;
    }
    return false;
  }

  static Status Type(const Field& value) {
    if (IsType(value.json())) return {};
    bool good = value.size() > 0;
    std::set<std::string_view> seen;
    for (size_t i = 0; i < value.size(); ++i) {
      const Json& item = value.json().Items()[i];
      good = good && IsType(item) && seen.insert(item.AsString()).second;
    }
    return good ? Status() : value.Bad("expected the name of a JSON type, or an array of different ones");
  }

  static Status StringSet(const Field& value) {
    DI_RETURN_IF_ERROR(ExpectArray(value));
    std::unordered_set<std::string_view> seen;
    for (size_t i = 0; i < value.size(); ++i) {
      const Field item = value.Item(i);
      if (!item.IsString()) return item.BadKind("a string");
      if (!seen.insert(item.json().AsString()).second) return item.Bad("stands there twice");
    }
    return {};
  }

  Status Dependencies(const Field& value, bool schemas_allowed) {
    DI_RETURN_IF_ERROR(ExpectObject(value));
    for (const auto& [key, unused] : value.json().Members()) {
      const Field item = value.Member(key);
      DI_RETURN_IF_ERROR(schemas_allowed && !item.IsArray() ? Schema(item) : StringSet(item));
    }
    return {};
  }

  Status Number(const Field& value, Shape shape) const {
    if (shape == Shape::kLimit && draft_ == Draft::k4) {
      return value.json().IsBool() ? Status() : value.BadKind("a boolean");
    }
    DI_ASSIGN_OR_RETURN(const double number, ReadNumber(value));
    if (shape == Shape::kCount && (number < 0 || number != std::floor(number))) {
      return value.Bad("expected an integer of at least 0");
    }
    if (shape == Shape::kPositive && number <= 0) return value.Bad("expected a number above 0");
    return {};
  }

  Status String(const Field& value, Shape shape) {
    DI_ASSIGN_OR_RETURN(const std::string text, ReadString(value));
    if (shape == Shape::kPattern && !IsPattern(text)) return value.Bad("not a regular expression");
    if (shape == Shape::kAnchor && !IsAnchor(text)) return value.Bad("not an anchor");
    if (shape == Shape::kId && draft_ >= Draft::k2019 && text.find('#') < text.size() - 1) {
      return value.Bad("an id has no fragment");
    }
    if (shape == Shape::kAnchor) anchors_.insert(text);
    // How anchors were spelled before they had a keyword.
    if (shape == Shape::kId && draft_ < Draft::k2019 && text.starts_with('#')) anchors_.insert(text.substr(1));
    if (shape == Shape::kReference) references_.push_back(value);
    return {};
  }

  // References into the schema itself: "#", "#/a/b", "#anchor". All others would have to be fetched.
  Status Resolve(const Field& reference) const {
    const std::string& text = reference.json().AsString();
    if (text.empty() || text == "#") return {};
    if (text[0] != '#') return reference.Bad("refers to another document, which is not supported");
    if (text[1] != '/') {
      return anchors_.contains(text.substr(1)) ? Status() : reference.Bad("there is no anchor \"{}\"", text.substr(1));
    }
    const Json* at = &root_.json();
    for (size_t begin = 2; begin <= text.size() && at != nullptr;) {
      const size_t end = std::min(text.find('/', begin), text.size());
      at = Step(*at, Unescape(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    return at != nullptr ? Status() : reference.Bad("{} points at nothing", text);
  }

  static const Json* Step(const Json& value, const std::string& token) {
    if (value.IsObject()) return value.Find(token);
    if (!value.IsArray() || token.empty() || token.size() > 9) return nullptr;
    size_t index = 0;
    for (const char c : token) {
      if (c < '0' || c > '9') return nullptr;
      index = index * 10 + static_cast<size_t>(c - '0');
    }
    return index < value.Items().size() ? &value.Items()[index] : nullptr;
  }

  // %XX of the URI fragment, then ~1 and ~0 of the JSON pointer.
  static std::string Unescape(std::string_view token) {
    std::string decoded;
    for (size_t i = 0; i < token.size(); ++i) {
      const auto digit = [&](size_t at) -> int {
        const char c = at < token.size() ? token[at] : '?';
        if (c >= '0' && c <= '9') return c - '0';
        if (c >= 'a' && c <= 'f') return c - 'a' + 10;
        return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      };
      if (token[i] == '%' && digit(i + 1) >= 0 && digit(i + 2) >= 0) {
        decoded += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
        i += 2;
      } else {
        decoded += token[i];
      }
    }
    std::string plain;
    for (size_t i = 0; i < decoded.size(); ++i) {
      if (decoded[i] == '~' && i + 1 < decoded.size() && (decoded[i + 1] == '0' || decoded[i + 1] == '1')) {
        plain += decoded[++i] == '0' ? '~' : '/';
      } else {
        plain += decoded[i];
      }
    }
    return plain;
  }

  const Field& root_;
  Draft draft_ = Draft::k2020;
  std::vector<Field> references_;
  std::unordered_set<std::string> anchors_;
};

}  // namespace

Status CheckSchema(const Field& schema) { return SchemaChecker(schema).Check(); }

Status CheckParameters(const Field& schema) {
  DI_RETURN_IF_ERROR(CheckSchema(schema));
  const Field type = schema.Member("type");
  if (!type.IsString() || type.json().AsString() != "object") {
    return schema.Bad("the parameters of a tool must be a schema with \"type\": \"object\"");
  }
  return {};
}

}  // namespace deepinfer::recipe
