// SPDX-License-Identifier: Apache-2.0
#include "grammar/engine.h"

#include <algorithm>

#include "core/utf8.h"
#include "grammar/ebnf.h"
#include "grammar/regex.h"

namespace deepinfer::grammar {
namespace {

constexpr size_t kMasksMax = 1024;          // kept masks of one engine: 16 MB at 128k tokens

}  // namespace

Engine::Engine(const CompileOptions& options, std::shared_ptr<const VocabularyImpl> vocabulary)
    : options_(options),
      vocabulary_(std::move(vocabulary)),
      pool_(&budget_),
      graph_(&pool_, &budget_),
      goals_(&pool_, &graph_, &budget_),
      lexer_(&pool_, &budget_, options.spelling),
      machine_(&pool_, &lexer_, &goals_, &budget_,
               MachineOptions{options.key_order == KeyOrder::kFree, options.spelling, options.whitespace_max}) {
  budget_.SetMeter([this] { return bytes(); });
}

Result<std::unique_ptr<Engine>> Engine::Create(const Constraint& constraint, const CompileOptions& options,
                                               std::shared_ptr<const VocabularyImpl> vocabulary) {
  std::unique_ptr<Engine> engine(new Engine(options, std::move(vocabulary)));
  const CompileLimits& limits = options.limits;
  engine->budget_.Start(limits.steps, limits.time, limits.memory_bytes, options.cancel);
  Status status = engine->Build(constraint);
  engine->budget_.Holds(engine->bytes());
  if (!engine->budget_.ok()) return engine->budget_.failure();
  if (!engine->goals_.error().ok()) return engine->goals_.error();
  if (!status.ok()) return status;
  engine->goals_.SetRunning();
  return engine;
}

size_t Engine::bytes() const {
  return pool_.bytes() + goals_.bytes() + lexer_.bytes() + machine_.bytes() + graph_.size() * 1000 +
         masks_.size() * vocabulary_->mask_words() * 4;
}

void Engine::StartCall(uint64_t steps) { budget_.Start(steps, std::nullopt, options_.limits.memory_bytes, nullptr); }

Status Engine::Failure() { return budget_.failure(); }

Result<GoalId> Engine::LoadSchema(std::string_view text) {
  if (text.size() > options_.limits.source_bytes) {
    return Error(Code::kResourceExhausted, "schema: longer than {} bytes", options_.limits.source_bytes);
  }
  DI_ASSIGN_OR_RETURN(Json json, ParseJson(text));
  if (!json.IsObject() && !json.IsBool()) {
    return Error(Code::kInvalidArgument, "#: a schema must be an object or a boolean, found {}", json.KindName());
  }
  schemas_.push_back(std::make_unique<Json>(std::move(json)));
  SchemaOptions options;
  options.assert_formats = options_.assert_formats;
  options.allow_unsupported = options_.allow_unsupported;
  options.documents = options_.documents;
  DI_ASSIGN_OR_RETURN(const NodeId node, graph_.Load(schemas_.back().get(), options));
  return goals_.Of(node);
}

std::string Engine::WhyEmpty(GoalId goal) {
  for (int depth = 0; depth < 100; ++depth) {
    GoalId next = goal;
    for (uint32_t shape : goals_.Objects(goal)) {
      for (const ObjectName& name : goals_.Object(shape).names) {
        if (name.required && goals_.IsEmpty(name.goal)) next = name.goal;
      }
    }
    for (uint32_t shape : goals_.Arrays(goal)) {
      const ArrayShape& array = goals_.Array(shape);
      if (array.min > 0 && goals_.IsEmpty(array.At(0))) next = array.At(0);
    }
    if (next == goal || next == kNoGoal) break;
    goal = next;
  }
  return goals_.PointerOf(goal);
}

// Takes apart every goal that can be reached, so that whatever cannot be enforced is refused now and not in mid-output.
Status Engine::Explore(const std::vector<GoalId>& roots) {
  std::vector<GoalId> todo = roots;
  std::vector<bool> seen;
  const auto visit = [&](GoalId goal) {
    if (goal >= seen.size()) seen.resize(goal + 1, false);
    if (seen[goal]) return;
    seen[goal] = true;
    todo.push_back(goal);
  };
  while (!todo.empty()) {
    if (!budget_.Spend() || !goals_.error().ok()) return Status();  // told by the caller
    const GoalId goal = todo.back();
    todo.pop_back();
    if (goals_.IsEmpty(goal)) continue;
    for (uint32_t id : goals_.Arrays(goal)) {
      const ArrayShape& shape = goals_.Array(id);
      std::vector<GoalId> elements = shape.prefix;
      elements.push_back(shape.rest);
      for (GoalId element : elements) {
        visit(element);
        for (const Obligation& obligation : shape.obligations) {
          visit(goals_.Join(element, obligation.goal));
          if (obligation.hi != kNoMax) visit(goals_.Join(element, obligation.denied));
        }
      }
    }
    for (uint32_t id : goals_.Objects(goal)) {
      const ObjectShape& shape = goals_.Object(id);
      const auto visit_member = [&](GoalId member, uint32_t obligations) {
        visit(member);
        for (size_t i = 0; i < shape.obligations.size(); ++i) {
          if ((obligations >> i & 1) != 0) visit(goals_.Join(member, shape.obligations[i].goal));
        }
      };
      for (const ObjectName& name : shape.names) visit_member(name.goal, name.obligations);
      for (const ObjectOther& other : shape.others) visit_member(other.goal, other.obligations);
    }
  }
  for (GoalId root : roots) {
    if (goals_.IsEmpty(root) && goals_.error().ok() && budget_.ok()) {
      return Error(Code::kInvalidArgument, "{}: unsatisfiable: no value can be valid", WhyEmpty(root));
    }
  }
  return Status();
}

Status BuildRegex(Engine* engine, const std::string& pattern, Program* program) {
  DI_ASSIGN_OR_RETURN(const ExprId expr, ParseRegex(engine->pool(), pattern, RegexMatch::kWhole));
  if (engine->pool()->IsEmpty(expr)) return Error(Code::kInvalidArgument, "regex: unsatisfiable: it matches no text");
  const uint32_t end = program->AddState();
  program->states[end].returns = true;
  program->start = program->AddState();
  program->AddEdge(program->start, ProgramEdge::kLexeme, expr, end);
  return Status();
}

Status BuildChoice(Engine* engine, const std::vector<std::string>& choices, Program* program) {
  if (choices.empty()) return Error(Code::kInvalidArgument, "choice: the list is empty");
  std::vector<ExprId> options;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].empty()) return Error(Code::kInvalidArgument, "choice {}: the text is empty", i);
    // Its bytes might be those of no token.
    if (FindInvalidUtf8(choices[i]) != std::string_view::npos) return Error(Code::kInvalidArgument, "choice {}: invalid UTF-8", i);
    options.push_back(engine->pool()->Literal(choices[i]));
  }
  const uint32_t end = program->AddState();
  program->states[end].returns = true;
  program->start = program->AddState();
  program->AddEdge(program->start, ProgramEdge::kLexeme, engine->pool()->Or(std::move(options)), end);
  return Status();
}

Status BuildSchema(Engine* engine, const std::string& schema, Program* program, std::vector<GoalId>* roots) {
  DI_ASSIGN_OR_RETURN(const GoalId goal, engine->LoadSchema(schema));
  const uint32_t end = program->AddState();
  program->states[end].returns = true;
  program->start = program->AddState();
  program->AddEdge(program->start, ProgramEdge::kValue, goal, end);
  roots->push_back(goal);
  return Status();
}

Status Engine::Build(const Constraint& constraint) {
  std::vector<GoalId> roots;
  if (constraint.text.size() > options_.limits.source_bytes) {
    return Error(Code::kResourceExhausted, "constraint: longer than {} bytes", options_.limits.source_bytes);
  }
  switch (constraint.kind) {
    case Constraint::Kind::kRegex:
      DI_RETURN_IF_ERROR(BuildRegex(this, constraint.text, &program_));
      break;
    case Constraint::Kind::kChoice:
      DI_RETURN_IF_ERROR(BuildChoice(this, constraint.choices, &program_));
      break;
    case Constraint::Kind::kJsonSchema:
      DI_RETURN_IF_ERROR(BuildSchema(this, constraint.text, &program_, &roots));
      break;
    case Constraint::Kind::kGrammar: {
      DI_ASSIGN_OR_RETURN(GrammarRules rules, ParseGbnf(this, constraint.text));
      DI_RETURN_IF_ERROR(BuildRules(this, std::move(rules), &program_));
      break;
    }
    case Constraint::Kind::kLark: {
      DI_ASSIGN_OR_RETURN(GrammarRules rules, ParseLark(this, constraint.text, &roots));
      DI_RETURN_IF_ERROR(BuildRules(this, std::move(rules), &program_));
      break;
    }
    case Constraint::Kind::kStructuralTag:
      DI_RETURN_IF_ERROR(BuildStructuralTag(this, constraint.text, &program_, &roots));
      break;
    case Constraint::Kind::kDsml:
      DI_RETURN_IF_ERROR(BuildDsml(this, constraint, &program_, &roots));
      break;
  }
  DI_RETURN_IF_ERROR(Explore(roots));
  start_ = machine_.Start(&program_);
  if (start_ == kDeadState && budget_.ok() && goals_.error().ok()) {
    return Error(Code::kInvalidArgument, "constraint: unsatisfiable: no text can be valid");
  }
  return Status();
}

StateId Engine::Run(StateId state, std::string_view bytes, std::string* text) {
  for (char c : bytes) {
    state = machine_.Next(state, static_cast<uint8_t>(c));
    if (state == kDeadState) return kDeadState;
    text->push_back(c);
    state = machine_.Remember(state, *text);
  }
  return state;
}

void Engine::FillMask(StateId state, std::string* text, std::span<uint32_t> mask) {
  if (const uint32_t* known = mask_index_.Find(state)) {
    std::copy(masks_[*known].begin(), masks_[*known].end(), mask.begin());
    return;
  }
  by_text_ = false;
  Fill({state, text, mask.data()});
  if (machine_.IsComplete(state)) {
    for (uint32_t stop : vocabulary_->stop_ids()) SetBit(stop, mask.data());
  }
  if (budget_.ok() && masks_.size() < kMasksMax && !by_text_) {
    mask_index_.Insert(state, static_cast<uint32_t>(masks_.size()));
    masks_.emplace_back(mask.begin(), mask.end());
  }
}

}  // namespace deepinfer::grammar
