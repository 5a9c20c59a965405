// SPDX-License-Identifier: Apache-2.0
#include "cli/constraint.h"

#include "cli/common.h"
#include "recipe/constraint/output_grammar.h"
#include "serving/request_builder.h"

namespace deepinfer::cli {
namespace {

using Kind = recipe::ContentConstraint::Kind;

// A schema is an object or a boolean: what begins like one, or like an array, is taken as JSON, all else as a file's name.
Result<std::string> SchemaText(const std::string& argument) {
  const size_t first = argument.find_first_not_of(" \t\r\n");
  const bool inline_text = first != std::string::npos && (argument[first] == '{' || argument[first] == '[');
  if (inline_text || argument == "true" || argument == "false") return argument;
  Result<std::string> text = ReadText(argument);
  return text.ok() ? text : text.status().In("--json-schema");
}

}  // namespace

Result<std::optional<recipe::ContentConstraint>> ReadConstraint(const ConstraintOptions& options) {
  std::optional<recipe::ContentConstraint> content;
  const auto take = [&content](const char* flag, recipe::ContentConstraint next) {
    if (content) return Error(Code::kInvalidArgument, "{} and {}: only one of them, please", content->field, flag);
    next.field = flag;
    content = std::move(next);
    return Status();
  };
  if (options.json_schema) {
    DI_ASSIGN_OR_RETURN(std::string text, SchemaText(*options.json_schema));
    DI_RETURN_IF_ERROR(take("--json-schema", {.kind = Kind::kJsonSchema, .text = std::move(text)}));
  }
  if (options.json_object) DI_RETURN_IF_ERROR(take("--json-object", {.kind = Kind::kJsonObject}));
  if (options.regex) DI_RETURN_IF_ERROR(take("--regex", {.kind = Kind::kRegex, .text = *options.regex}));
  if (!options.choices.empty())
    DI_RETURN_IF_ERROR(take("--choice", {.kind = Kind::kChoice, .choices = options.choices}));
  if (options.grammar_file) {
    Result<std::string> text = ReadText(*options.grammar_file);
    if (!text.ok()) return text.status().In("--grammar");
    DI_RETURN_IF_ERROR(take("--grammar", {.kind = Kind::kGrammar, .text = *std::move(text)}));
  }
  return content;
}

Result<std::shared_ptr<const grammar::CompiledGrammar>> CompileConstraint(const recipe::ContentConstraint& content,
                                                                          const Engine& engine) {
  const recipe::OutputGrammar output{.constraint = recipe::ContentGrammar(content), .field = content.field};
  grammar::CompileCache cache(1);
  DI_ASSIGN_OR_RETURN(grammar::CompiledGrammar compiled,
                      recipe::CompileOutputGrammar(output, &cache, engine.grammar_vocabulary(),
                                                   serving::RequestBuilderOptions{}.grammar));
  return std::make_shared<const grammar::CompiledGrammar>(std::move(compiled));
}

Result<recipe::ResponseFormat> FormatOf(const recipe::ContentConstraint& content) {
  recipe::ResponseFormat format;
  if (content.kind == Kind::kJsonObject) format.kind = recipe::FormatKind::kJsonObject;
  if (content.kind != Kind::kJsonSchema) return format;
  format.kind = recipe::FormatKind::kJsonSchema;
  Result<Json> schema = ParseJson(content.text);
  if (!schema.ok()) return schema.status().In(content.field);
  format.schema = *std::move(schema);
  return format;
}

}  // namespace deepinfer::cli
