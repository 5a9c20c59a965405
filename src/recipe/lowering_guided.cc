// SPDX-License-Identifier: Apache-2.0
// Fields that guide decoding: what vLLM (guided_*, structured_outputs) and SGLang (regex, ebnf) call them.
#include <utility>

#include "recipe/lowering.h"

namespace deepinfer::recipe {
namespace {

using Kind = ContentConstraint::Kind;

class GuidedReader {
 public:
  explicit GuidedReader(Request* request) : request_(request) {}

  Status Json(const Field& field) {
    if (!field.given()) return {};
    // A schema, or the text of one.
    return Take(field, {.kind = Kind::kJsonSchema,
                        .text = field.IsString() ? field.json().AsString() : WriteJson(field.json())});
  }

  Status JsonObject(const Field& field) {
    DI_ASSIGN_OR_RETURN(const auto on, ReadOptionalBool(field));
    return on.value_or(false) ? Take(field, {.kind = Kind::kJsonObject}) : Status();
  }

  Status Text(const Field& field, Kind kind) {
    DI_ASSIGN_OR_RETURN(auto text, ReadOptionalString(field));
    return text ? Take(field, {.kind = kind, .text = *std::move(text)}) : Status();
  }

  Status Choice(const Field& field) {
    if (!field.given()) return {};
    DI_RETURN_IF_ERROR(ExpectArray(field));
    ContentConstraint constraint{.kind = Kind::kChoice};
    for (size_t i = 0; i < field.size(); ++i) {
      DI_ASSIGN_OR_RETURN(std::string choice, ReadString(field.Item(i)));
      constraint.choices.push_back(std::move(choice));
    }
    return Take(field, std::move(constraint));
  }

  // An object, or the text of one.
  Status StructuralTag(const Field& field) {
    if (!field.given()) return {};
    return Take(field, {.kind = Kind::kStructuralTag,
                        .text = field.IsString() ? field.json().AsString() : WriteJson(field.json())});
  }

 private:
  Status Take(const Field& field, ContentConstraint constraint) {
    if (request_->content) return field.Bad("cannot be used together with {}", request_->content->field);
    if (request_->conversation.format.kind != FormatKind::kText) return field.Bad("cannot be used together with a response format");
    constraint.field = field.pointer();
    request_->content = std::move(constraint);
    return {};
  }

  Request* request_;
};

}  // namespace

Status ReadGuidedOutput(const Field& root, Request* request) {
  GuidedReader reader(request);
  if (const Field blanks = root.Member("guided_whitespace_pattern"); blanks.given()) {
    return blanks.Bad("cannot be enforced; disable_any_whitespace of structured_outputs leaves all blanks out");
  }
  DI_RETURN_IF_ERROR(reader.Json(root.Member("guided_json")));
  DI_RETURN_IF_ERROR(reader.Text(root.Member("guided_regex"), Kind::kRegex));
  DI_RETURN_IF_ERROR(reader.Choice(root.Member("guided_choice")));
  DI_RETURN_IF_ERROR(reader.Text(root.Member("guided_grammar"), Kind::kGrammar));
  DI_RETURN_IF_ERROR(reader.Text(root.Member("regex"), Kind::kRegex));
  DI_RETURN_IF_ERROR(reader.Text(root.Member("ebnf"), Kind::kGrammar));
  const Field outputs = root.Member("structured_outputs");
  if (!outputs.given()) return {};
  DI_RETURN_IF_ERROR(ExpectObject(outputs));
  DI_RETURN_IF_ERROR(reader.Json(outputs.Member("json")));
  DI_RETURN_IF_ERROR(reader.Text(outputs.Member("regex"), Kind::kRegex));
  DI_RETURN_IF_ERROR(reader.Choice(outputs.Member("choice")));
  DI_RETURN_IF_ERROR(reader.Text(outputs.Member("grammar"), Kind::kGrammar));
  DI_RETURN_IF_ERROR(reader.JsonObject(outputs.Member("json_object")));
  DI_ASSIGN_OR_RETURN(request->form.compact, ReadOptionalBool(outputs.Member("disable_any_whitespace")));
  DI_ASSIGN_OR_RETURN(request->form.closed, ReadOptionalBool(outputs.Member("disable_additional_properties")));
  DI_ASSIGN_OR_RETURN(request->form.max_length, ReadOptionalInteger(outputs.Member("default_max_length"), 0, INT32_MAX));
  DI_ASSIGN_OR_RETURN(request->form.max_items, ReadOptionalInteger(outputs.Member("default_max_items"), 0, INT32_MAX));
  if (const Field blanks = outputs.Member("whitespace_pattern"); blanks.given()) {
    return blanks.Bad("cannot be enforced; \"disable_any_whitespace\": true leaves all blanks out");
  }
  return reader.StructuralTag(outputs.Member("structural_tag"));
}

}  // namespace deepinfer::recipe
