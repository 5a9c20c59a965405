// SPDX-License-Identifier: Apache-2.0
#include "recipe/constraint/output_grammar.h"

#include <array>
#include <utility>

#include "recipe/control.h"
#include "recipe/prompt_json.h"

namespace deepinfer::recipe {
namespace {

using grammar::Constraint;
using Kind = ContentConstraint::Kind;

// Tokens that the model writes as such in ordinary text.
constexpr std::array kTextTokens = {Control::kRef,      Control::kRefEnd,   Control::kBox,     Control::kBoxEnd,
                                    Control::kPoint,    Control::kPointEnd, Control::kPolygon, Control::kPolygonEnd};

Result<int32_t> Need(Control control, const TokenLookup& lookup) {
  if (const auto id = lookup(Spelling(control))) return *id;
  return Error(Code::kFailedPrecondition, "the tokenizer has no added token \"{}\", which the grammar of this output needs",
               Spelling(control));
}

// The schema as it is enforced. What is no JSON is left for the compiler to refuse.
std::string Enforced(const std::string& schema, const SchemaForm& form) {
  if (form == SchemaForm()) return schema;
  const Result<Json> json = ParseJson(schema);
  return json.ok() ? WriteJson(FormedSchema(Field(*json), form)) : schema;
}

// What the tool's arguments must be. A tool without parameters takes none, strict or not.
grammar::ToolConstraint ToolOf(const ToolDefinition& tool, bool by_schema, const SchemaForm& form) {
  if (tool.parameters.IsNull()) {
    return {.name = tool.name, .parameters = R"({"type":"object","additionalProperties":false})", .strict = true};
  }
  return {.name = tool.name,
          .parameters = Enforced(WritePromptJson(tool.parameters, JsonForm::kCompact), form),
          .strict = by_schema || tool.strict.value_or(false)};
}

std::vector<grammar::ToolConstraint> ToolsOf(const std::vector<ToolDefinition>& tools, bool by_schema, const SchemaForm& form) {
  std::vector<grammar::ToolConstraint> list;
  for (const ToolDefinition& tool : tools) list.push_back(ToolOf(tool, by_schema, form));
  return list;
}

// The content where no call comes, beside the calls.
Status AddContent(const ContentConstraint& content, const SchemaForm& form, grammar::DsmlOptions* options) {
  switch (content.kind) {
    case Kind::kJsonObject:
      options->text_schema = R"({"type":"object"})";
      return {};
    case Kind::kJsonSchema:
      options->text_schema = Enforced(content.text, form);
      return {};
    case Kind::kRegex:
      options->text_regex = content.text;
      return {};
    case Kind::kChoice:
    case Kind::kGrammar:
    case Kind::kStructuralTag:
      break;
  }
  return Error(Code::kInvalidArgument, "{}: cannot be used together with tools that may be called; set tool_choice to none",
               content.field);
}

Result<OutputGrammar> CallsGrammar(const Request& request, const TokenLookup& lookup, const SchemaForm& form) {
  const Conversation& conversation = request.conversation;
  grammar::DsmlOptions options;
  DI_ASSIGN_OR_RETURN(const int32_t dsml, Need(Control::kDsml, lookup));
  options.dsml_token = static_cast<uint32_t>(dsml);
  options.required = conversation.tool_choice == ToolChoice::kRequired;
  options.parallel = !request.parsing.one_call_only;
  options.v41 = request.version == ModelVersion::kV41;
  options.opener_in_prompt = request.parsing.starts_in_tool_calls;
  for (const Control control : kTextTokens) {
    if (const auto id = lookup(Spelling(control))) options.free_tokens.push_back(static_cast<uint32_t>(*id));
  }
  if (request.content && !options.required) DI_RETURN_IF_ERROR(AddContent(*request.content, form, &options));
  // A call that must come follows its schema as far as that can be enforced; a strict tool's always does.
  OutputGrammar output{.constraint = Constraint::Dsml(ToolsOf(conversation.tools, options.required, form), options), .field = "/tools"};
  if (options.required) output.lenient = Constraint::Dsml(ToolsOf(conversation.tools, false, form), options);
  return output;
}

}  // namespace

Constraint ContentGrammar(const ContentConstraint& content, const SchemaForm& form) {
  switch (content.kind) {
    case Kind::kJsonObject:
      return Constraint::JsonObject();
    case Kind::kJsonSchema:
      return Constraint::JsonSchema(Enforced(content.text, form));
    case Kind::kRegex:
      return Constraint::Regex(content.text);
    case Kind::kChoice:
      return Constraint::Choice(content.choices);
    case Kind::kGrammar:
      // GBNF writes rules with "::=", Lark with ":".
      return content.text.find("::=") != std::string::npos ? Constraint::Grammar(content.text) : Constraint::Lark(content.text);
    case Kind::kStructuralTag:
      return Constraint::StructuralTag(content.text);
  }
  return Constraint::JsonObject();
}

Result<std::optional<OutputGrammar>> MakeOutputGrammar(const Request& request, const TokenLookup& lookup,
                                                         const OutputDefaults& defaults) {
  std::optional<OutputGrammar> output;
  const SchemaForm form{.closed = request.form.closed.value_or(defaults.schema.closed),
                        .max_length = request.form.max_length.value_or(defaults.schema.max_length),
                        .max_items = request.form.max_items.value_or(defaults.schema.max_items)};
  if (request.parsing.parse_tool_calls) {
    DI_ASSIGN_OR_RETURN(output, CallsGrammar(request, lookup, form));
  } else if (request.content) {
    output = OutputGrammar{.constraint = ContentGrammar(*request.content, form), .field = request.content->field};
  } else {
    return output;
  }
  output->compact = request.form.compact.value_or(defaults.compact);
  switch (request.parsing.stage) {
    case ThinkingStage::kReasoningStart:
    case ThinkingStage::kReasoningContinuation: {
      DI_ASSIGN_OR_RETURN(output->begins_after, Need(Control::kThinkEnd, lookup));
      break;
    }
    case ThinkingStage::kContentContinuation:
      output->text_in_prompt = request.conversation.messages.back().content.text;
      break;
    case ThinkingStage::kNone:
      if (!request.conversation.messages.empty() && request.conversation.messages.back().prefix) {
        output->text_in_prompt = request.conversation.messages.back().content.text;
      }
      break;
  }
  return output;
}

Result<grammar::CompiledGrammar> CompileOutputGrammar(const OutputGrammar& output, grammar::CompileCache* cache,
                                                      const std::shared_ptr<const grammar::Vocabulary>& vocabulary,
                                                      const grammar::CompileOptions& options) {
  Result<grammar::CompiledGrammar> compiled = cache->Get(output.constraint, vocabulary, options);
  if (!compiled.ok() && compiled.status().code() == Code::kUnimplemented && output.lenient) {
    compiled = cache->Get(*output.lenient, vocabulary, options);
  }
  if (compiled.ok() || compiled.status().code() == Code::kCancelled) return compiled;
  const bool limit = compiled.status().code() == Code::kResourceExhausted;
  return Error(limit ? Code::kResourceExhausted : Code::kInvalidArgument, "{}: {}", output.field, compiled.status().message());
}

}  // namespace deepinfer::recipe
