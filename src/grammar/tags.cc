// SPDX-License-Identifier: Apache-2.0
// Structural tags: free text that turns into a constrained part at a marker. The marker of DSML is a special token, so
// it can't be confused with text; string parameters additionally exclude the closing marker as text.
#include <algorithm>

#include "core/json.h"
#include "grammar/ebnf.h"
#include "grammar/regex.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {
namespace {

constexpr std::string_view kMarkerText = "</\xEF\xBD\x9C" "DSML\xEF\xBD\x9C";  // how the closing marker reads

Status Bad(std::string_view what) { return Error(Code::kInvalidArgument, "structural tag: {}", what); }

// Text in which none of the strings occurs.
ExprId TextWithout(ExprPool* pool, const std::vector<std::string>& strings) {
  const ExprId text = AnyText(pool);
  std::vector<ExprId> options;
  for (const std::string& one : strings) options.push_back(pool->Concat({text, pool->Literal(one), text}));
  return pool->And(text, pool->Not(pool->Or(std::move(options))));
}

struct Tag {
  std::string begin, end;
  GoalId goal = kAnyGoal;
};

class DsmlBuilder {
 public:
  DsmlBuilder(Engine* engine, const DsmlOptions& options, Program* program)
      : engine_(engine), pool_(engine->pool()), options_(options), program_(program),
        marker_(SpecialSpelling(options.dsml_token)), blank_(options.v41 ? " " : "") {}

  Status Build(const std::vector<ToolConstraint>& tools, std::vector<GoalId>* roots) {
    if (tools.empty()) return Error(Code::kInvalidArgument, "tools: the list is empty");
    const uint32_t end = program_->AddState();
    program_->states[end].returns = true;
    program_->start = program_->AddState();
    const uint32_t calls = program_->AddState(), after_call = program_->AddState();
    DI_RETURN_IF_ERROR(AddOpener(calls, end, roots));
    for (const ToolConstraint& tool : tools) {
      if (tool.name.empty() || tool.name.find_first_of("\"<>\n") != std::string::npos) {
        return Error(Code::kInvalidArgument, "tools: \"{}\" cannot be a tool's name", tool.name);
      }
      DI_RETURN_IF_ERROR(AddCall(tool, calls, after_call, roots));
    }
    if (options_.parallel) Text("\n", after_call, calls);
    Text("\n" + Close(options_.v41 ? "calls" : "tool_calls"), after_call, end);
    return Status();
  }

 private:
  std::string Open(const std::string& name) const { return "<" + marker_ + blank_ + name; }
  std::string Close(const std::string& name) const { return "</" + marker_ + blank_ + name + ">"; }
  void Text(const std::string& text, uint32_t from, uint32_t to) {
    program_->AddEdge(from, ProgramEdge::kLexeme, pool_->Literal(text), to);
  }

  Status AddOpener(uint32_t calls, uint32_t end, std::vector<GoalId>* roots) {
    const std::string opener = Open(options_.v41 ? "calls" : "tool_calls") + ">\n";
    if (options_.opener_in_prompt) {
      program_->AddEdge(program_->start, ProgramEdge::kNothing, 0, calls);
      return Status();
    }
    if (options_.required) {
      Text("\n\n" + opener, program_->start, calls);
      return Status();
    }
    if (!options_.text_schema.empty() || !options_.text_regex.empty()) {
      Text("\n\n" + opener, program_->start, calls);
      return AddContent(end, roots);
    }
    std::vector<ExprId> units{AnyChar(pool_)};
    for (uint32_t token : options_.free_tokens) {
      if (token != options_.dsml_token) units.push_back(pool_->Literal(SpecialSpelling(token)));
    }
    const uint32_t text_end = program_->AddState();
    program_->AddEdge(program_->start, ProgramEdge::kLexeme, pool_->Star(pool_->Or(std::move(units))), text_end);
    program_->AddEdge(text_end, ProgramEdge::kNothing, 0, end);
    Text(opener, text_end, calls);
    return Status();
  }

  Status AddContent(uint32_t end, std::vector<GoalId>* roots) {
    if (!options_.text_regex.empty()) {
      DI_ASSIGN_OR_RETURN(const ExprId expr, ParseRegex(pool_, options_.text_regex, RegexMatch::kWhole));
      if (pool_->IsEmpty(expr)) return Error(Code::kInvalidArgument, "regex: unsatisfiable: it matches no text");
      program_->AddEdge(program_->start, ProgramEdge::kLexeme, expr, end);
      return Status();
    }
    DI_ASSIGN_OR_RETURN(const GoalId goal, engine_->LoadSchema(options_.text_schema));
    program_->AddEdge(program_->start, ProgramEdge::kValue, goal, end);
    roots->push_back(goal);
    return Status();
  }

  Status AddCall(const ToolConstraint& tool, uint32_t from, uint32_t to, std::vector<GoalId>* roots) {
    const std::string schema = !tool.strict || tool.parameters.empty() ? R"({"type":"object"})" : tool.parameters;
    auto loaded = engine_->LoadSchema(schema);
    if (!loaded.ok()) return loaded.status().In("tool \"" + tool.name + "\"");
    Goals* goals = engine_->goals();
    const std::vector<uint32_t> shapes = goals->Objects(*loaded);
    const uint32_t opened = program_->AddState(), closing = program_->AddState();
    bool any = false;
    for (uint32_t shape : shapes) {
      if (!goals->ObjectUsable(shape)) continue;
      const ObjectShape& object = goals->Object(shape);
      if (!object.simple) {
        return Error(Code::kUnimplemented, "tool \"{}\": #: counts and dependencies of parameters cannot be enforced in DSML", tool.name);
      }
      AddParameters(object, tool.strict, opened, closing, roots);
      any = true;
    }
    if (!goals->error().ok()) return goals->error().In("tool \"" + tool.name + "\"");
    if (!any) return Error(Code::kInvalidArgument, "tool \"{}\": #: unsatisfiable: no arguments can be valid", tool.name);
    Text(Open("invoke name=\"") + tool.name + "\">\n", from, opened);
    Text(Close("invoke"), closing, to);
    return Status();
  }

  // Parameters in the order of the schema: from each place on to any later one, but not past a required one. Each
  // parameter ends with its line feed.
  void AddParameters(const ObjectShape& shape, bool strict, uint32_t from, uint32_t to, std::vector<GoalId>* roots) {
    const size_t count = shape.names.size();
    // places[i]: names before i are done, and something was written; before[i]: nothing was written yet.
    std::vector<uint32_t> places, before;
    for (size_t i = 0; i <= count; ++i) {
      places.push_back(program_->AddState());
      before.push_back(program_->AddState());
    }
    program_->AddEdge(from, ProgramEdge::kNothing, 0, before[0]);
    for (size_t i = 0; i <= count; ++i) {
      const bool at_end = i == count;
      if (!at_end) {
        const ObjectName& name = shape.names[i];
        const std::string& text = engine_->goals()->Name(name.name);
        if (!engine_->goals()->IsEmpty(name.goal)) {
          AddParameter(pool_->Literal(text), name.goal, places[i], places[i + 1], roots);
          AddParameter(pool_->Literal(text), name.goal, before[i], places[i + 1], roots);
        }
        if (name.required) continue;
        program_->AddEdge(places[i], ProgramEdge::kNothing, 0, places[i + 1]);
        program_->AddEdge(before[i], ProgramEdge::kNothing, 0, before[i + 1]);
        continue;
      }
      for (const ObjectOther& other : shape.others) {
        if (engine_->goals()->IsEmpty(other.goal)) continue;
        ByteSet letters;
        for (int c = 0x21; c < 0x7F; ++c) letters.set(static_cast<size_t>(c), c != '"' && c != '<' && c != '>' && c != '\\');
        const ExprId keys = pool_->And(other.keys, pool_->Repeat(pool_->Bytes(letters), 1, kNoMax));
        if (pool_->IsEmpty(keys)) continue;
        // Names that came are not remembered here, so a strict call has one such parameter at most: none comes twice.
        AddParameter(keys, other.goal, places[i], strict ? to : places[i], roots);
        AddParameter(keys, other.goal, before[i], strict ? to : places[i], roots);
      }
      program_->AddEdge(places[i], ProgramEdge::kNothing, 0, to);
      // No argument at all: V4.1 has an empty line there.
      if (options_.v41) {
        Text("\n", before[i], to);
      } else {
        program_->AddEdge(before[i], ProgramEdge::kNothing, 0, to);
      }
    }
  }

  void AddParameter(ExprId name, GoalId goal, uint32_t from, uint32_t to, std::vector<GoalId>* roots) {
    const uint32_t named = program_->AddState(), closing = program_->AddState();
    const ExprId open = pool_->Concat(pool_->Literal(Open("parameter name=\"")), name);
    program_->AddEdge(from, ProgramEdge::kLexeme, open, named);
    Goals* goals = engine_->goals();
    const ExprId raw = pool_->And(goals->Strings(goal), TextWithout(pool_, {std::string(kMarkerText)}));
    if (!pool_->IsEmpty(raw)) {
      program_->AddEdge(named, ProgramEdge::kLexeme, pool_->Concat(pool_->Literal("\" string=\"true\">"), raw), closing);
    }
    const GoalId other = goals->Join(goal, goals->Of(goals->graph()->NonStringNode()));
    if (!goals->IsEmpty(other)) {
      const uint32_t value = program_->AddState();
      Text("\" string=\"false\">", named, value);
      program_->AddEdge(value, ProgramEdge::kValue, other, closing);
      roots->push_back(other);
    }
    Text(Close("parameter") + "\n", closing, to);
  }

  Engine* engine_;
  ExprPool* pool_;
  DsmlOptions options_;
  Program* program_;
  std::string marker_, blank_;
};

}  // namespace

Status BuildStructuralTag(Engine* engine, const std::string& text, Program* program, std::vector<GoalId>* roots) {
  DI_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  const Json* structures = json.Find("structures");
  const Json* triggers = json.Find("triggers");
  if (structures == nullptr || !structures->IsArray() || structures->Items().empty()) return Bad("\"structures\" must be a list");
  if (triggers == nullptr || !triggers->IsArray() || triggers->Items().empty()) return Bad("\"triggers\" must be a list");
  std::vector<std::string> markers;
  for (const Json& trigger : triggers->Items()) {
    if (!trigger.IsString() || trigger.AsString().empty()) return Bad("a trigger must be a text");
    markers.push_back(trigger.AsString());
  }
  const uint32_t end = program->AddState();
  program->states[end].returns = true;
  program->start = program->AddState();
  const uint32_t after_text = program->AddState();
  ExprPool* pool = engine->pool();
  program->AddEdge(program->start, ProgramEdge::kLexeme, TextWithout(pool, markers), after_text);
  program->AddEdge(after_text, ProgramEdge::kNothing, 0, end);
  for (const Json& structure : structures->Items()) {
    const Json *begin = structure.Find("begin"), *close = structure.Find("end"), *schema = structure.Find("schema");
    if (begin == nullptr || !begin->IsString() || close == nullptr || !close->IsString()) return Bad("\"begin\" and \"end\" must be texts");
    const bool known = std::any_of(markers.begin(), markers.end(), [&](const std::string& marker) {
      return begin->AsString().rfind(marker, 0) == 0;
    });
    if (!known) return Bad("no trigger begins \"" + begin->AsString() + "\"");
    auto goal = engine->LoadSchema(schema == nullptr ? "true" : WriteJson(*schema));
    if (!goal.ok()) return goal.status().In("structural tag");
    roots->push_back(*goal);
    const uint32_t opened = program->AddState(), filled = program->AddState();
    program->AddEdge(after_text, ProgramEdge::kLexeme, pool->Literal(begin->AsString()), opened);
    program->AddEdge(opened, ProgramEdge::kValue, *goal, filled);
    program->AddEdge(filled, ProgramEdge::kLexeme, pool->Literal(close->AsString()), program->start);
  }
  return Status();
}

Status BuildDsml(Engine* engine, const Constraint& constraint, Program* program, std::vector<GoalId>* roots) {
  return DsmlBuilder(engine, constraint.dsml, program).Build(constraint.tools, roots);
}

}  // namespace deepinfer::grammar
