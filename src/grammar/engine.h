// SPDX-License-Identifier: Apache-2.0
// One constraint ready to run: the pools, the machine, the masks computed so far. An engine is used by one thread at a
// time; CompiledGrammar keeps idle ones for reuse, so caches stay warm and memory stays bounded.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/grammar.h"
#include "grammar/machine.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> Create(const Constraint& constraint, const CompileOptions& options,
                                                std::shared_ptr<const VocabularyImpl> vocabulary);

  StateId start() const { return start_; }
  // The state after `bytes`, where `text` is all that came before; kDeadState where they do not fit. Appends to text.
  StateId Run(StateId state, std::string_view bytes, std::string* text);
  // `text` is as it was when the call ends.
  void FillMask(StateId state, std::string* text, std::span<uint32_t> mask);
  bool IsComplete(StateId state) const { return machine_.IsComplete(state); }
  bool IsFinished(StateId state) const { return machine_.IsFinished(state); }

  // Starts the allowance of one call; StepsLeft() is what is left of it, `Failure` tells whether it was kept. A failed engine
  // must be thrown away.
  void StartCall(uint64_t steps);
  uint64_t StepsLeft() const { return budget_.left(); }
  Status Failure();
  bool healthy() const { return budget_.ok(); }
  size_t bytes() const;
  const VocabularyImpl& vocabulary() const { return *vocabulary_; }
  const std::vector<std::string>& dropped() const { return graph_.dropped(); }

  // For front ends.
  ExprPool* pool() { return &pool_; }
  Budget* budget() { return &budget_; }
  const CompileOptions& options() const { return options_; }
  // Reads a schema; its text must stay alive as long as the engine (it is kept here).
  Result<GoalId> LoadSchema(std::string_view text);
  Goals* goals() { return &goals_; }

 private:
  explicit Engine(const CompileOptions& options, std::shared_ptr<const VocabularyImpl> vocabulary);
  Status Build(const Constraint& constraint);
  Status Explore(const std::vector<GoalId>& roots);
  std::string WhyEmpty(GoalId goal);
  // engine_mask.cc
  // What is filled: the mask of a state, with the text before it (put back after each use).
  struct Target {
    StateId state;
    std::string* text;
    uint32_t* mask;
  };
  void Fill(const Target& target);
  void FillAnyText(LexId lexeme, uint32_t below, uint64_t chars, const Target& target);
  void FillMostlyAnyText(LexId lexeme, uint32_t below, uint32_t tag, const Target& target);
  void FillString(LexId lexeme, uint32_t below, const Target& target);
  const Trie& FillCovered(const Lexer::Coverage& coverage, uint32_t* mask) const;
  void Walk(const Trie& trie, const Trie::Node& from, const Lexer::Coverage& covered, StateId at, const Target& target);
  bool Verify(uint32_t token, const Target& target);

  CompileOptions options_;
  std::shared_ptr<const VocabularyImpl> vocabulary_;
  Budget budget_;
  ExprPool pool_;
  SchemaGraph graph_;
  Goals goals_;
  Lexer lexer_;
  Machine machine_;
  Program program_;
  std::vector<std::unique_ptr<Json>> schemas_;
  StateId start_ = kDeadState;
  bool by_text_ = false;  // the last walk depended on more than the state
  FlatMap mask_index_;
  std::vector<std::vector<uint32_t>> masks_;
};

// Front ends: they add to `program` and give its roots (goals whose reachable parts are to be checked).
Status BuildRegex(Engine* engine, const std::string& pattern, Program* program);
Status BuildChoice(Engine* engine, const std::vector<std::string>& choices, Program* program);
Status BuildSchema(Engine* engine, const std::string& schema, Program* program, std::vector<GoalId>* roots);

}  // namespace deepinfer::grammar
