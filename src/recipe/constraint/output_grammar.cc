// SPDX-License-Identifier: Apache-2.0
#include "recipe/constraint/output_grammar.h"

#include <array>
#include <utility>

#include "recipe/control.h"
#include "recipe/prompt_json.h"
#include "recipe/schema.h"

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
Result<std::string> Enforced(const std::string& schema, bool closed) {
  if (!closed) return schema;
  const Result<Json> json = ParseJson(schema);
  if (!json.ok()) return schema;
  DI_ASSIGN_OR_RETURN(const Json form, ClosedSchema(Field(*json)));
  return WriteJson(form);
}

// What the tool's arguments must be. A tool without parameters takes none, strict or not.
Result<grammar::ToolConstraint> ToolOf(const ToolDefinition& tool, bool by_schema, bool closed) {
  if (tool.parameters.IsNull()) {
    return grammar::ToolConstraint{.name = tool.name, .parameters = R"({"type":"object","additionalProperties":false})", .strict = true};
  }
  DI_ASSIGN_OR_RETURN(std::string parameters, Enforced(WritePromptJson(tool.parameters, JsonForm::kCompact), closed));
  return grammar::ToolConstraint{
      .name = tool.name, .parameters = std::move(parameters), .strict = by_schema || tool.strict.value_or(false)};
}

Result<std::vector<grammar::ToolConstraint>> ToolsOf(const std::vector<ToolDefinition>& tools, bool by_schema, bool closed) {
  std::vector<grammar::ToolConstraint> list;
  for (const ToolDefinition& tool : tools) {
    DI_ASSIGN_OR_RETURN(grammar::ToolConstraint constraint, ToolOf(tool, by_schema, closed));
    list.push_back(std::move(constraint));
  }
  return list;
}

// The content where no call comes, beside the calls.
Status AddContent(const ContentConstraint& content, bool closed, grammar::DsmlOptions* options) {
  switch (content.kind) {
    case Kind::kJsonObject:
      options->text_schema = R"({"type":"object"})";
      return {};
    case Kind::kJsonSchema: {
      DI_ASSIGN_OR_RETURN(options->text_schema, Enforced(content.text, closed));
      return {};
    }
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

Result<OutputGrammar> CallsGrammar(const Request& request, const TokenLookup& lookup, bool closed) {
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
  if (request.content && !options.required) DI_RETURN_IF_ERROR(AddContent(*request.content, closed, &options));
  // A call that must come follows its schema as far as that can be enforced; a strict tool's always does.
  DI_ASSIGN_OR_RETURN(std::vector<grammar::ToolConstraint> tools, ToolsOf(conversation.tools, options.required, closed));
  OutputGrammar output{.constraint = Constraint::Dsml(std::move(tools), options), .field = "/tools"};
  if (options.required) {
    DI_ASSIGN_OR_RETURN(tools, ToolsOf(conversation.tools, false, closed));
    output.lenient = Constraint::Dsml(std::move(tools), options);
  }
  return output;
}

}  // namespace

Result<Constraint> ContentGrammar(const ContentConstraint& content, bool closed) {
  switch (content.kind) {
    case Kind::kJsonObject:
      return Constraint::JsonObject();
    case Kind::kJsonSchema: {
      DI_ASSIGN_OR_RETURN(std::string schema, Enforced(content.text, closed));
      return Constraint::JsonSchema(std::move(schema));
    }
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
  const bool closed = request.form.closed.value_or(defaults.closed);
  if (request.parsing.parse_tool_calls) {
    DI_ASSIGN_OR_RETURN(output, CallsGrammar(request, lookup, closed));
  } else if (request.content) {
    DI_ASSIGN_OR_RETURN(grammar::Constraint constraint, ContentGrammar(*request.content, closed));
    output = OutputGrammar{.constraint = std::move(constraint), .field = request.content->field};
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
  return Error(Code::kInvalidArgument, "{}: {}", output.field, compiled.status().message());
}

}  // namespace deepinfer::recipe
