// SPDX-License-Identifier: Apache-2.0
// JSON Schemas in requests: of a tool's parameters and of a response format.
// Thread-safe: functions of their arguments. Recursion is bounded by the depth that the request was parsed with.
#pragma once

#include "core/json.h"
#include "core/status.h"
#include "recipe/fields.h"

namespace deepinfer::recipe {

// Whether `schema` is a valid JSON Schema: keywords have values of the right kind (draft 2020-12, or the draft that
// "$schema" names), patterns are regular expressions, references point at something. Errors name the keyword.
Status CheckSchema(const Field& schema);

// The same, and that it describes an object, as the parameters of a tool have to.
Status CheckParameters(const Field& schema);

enum class StrictUse {
  kTool,      // the object at the top may have no properties
  kResponse,  // no object may be without properties
};
// The strict form of a schema: only the keywords that strict mode knows, in a fixed order, every property required and
// no others allowed. Errors where the schema says otherwise.
Result<Json> StrictSchema(const Field& schema, StrictUse use);
// The same for the default profile: every keyword stays in force, $defs, references and unions included. Objects that say
// nothing of it require all their properties and take no others; those that say otherwise are refused.
Result<Json> StrictSchemaInFull(const Field& schema, StrictUse use);

// What is added to a schema that leaves it open. The result allows less than the schema, never more.
struct SchemaForm {
  bool closed = false;     // "additionalProperties": false in each object that one schema alone describes
  int64_t max_length = 0;  // "maxLength" of strings that have none, are no enumeration and whose minLength is not above it; 0: none
  int64_t max_items = 0;   // the same of arrays

  bool operator==(const SchemaForm&) const = default;
};
Json FormedSchema(const Field& schema, const SchemaForm& form);
// That of a tool without parameters.
Json NoParameters();

}  // namespace deepinfer::recipe
