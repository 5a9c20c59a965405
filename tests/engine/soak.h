// SPDX-License-Identifier: Apache-2.0
// Requests of all kinds for an engine, and ways to run them: one by one, at once, stepped by hand. What comes back is
// compared bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/check.h"
#include "deepinfer/engine.h"
#include "deepinfer/grammar.h"
#include "engine/batch_engine.h"
#include "tests/engine/test_backend.h"

namespace deepinfer::soak {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::string text;
  std::string reason;
  bool operator==(const Answer&) const = default;
};
// By choice.
using Answers = std::vector<Answer>;

inline EngineOptions Options() {
  EngineOptions options{.model_directory = std::string(DI_SOURCE_DIR) + "/models/deepseek-v41-tiny",
                        .backend = engine::test_backend,
                        .activations = engine::test_activations,
                        .num_threads = 2};
  options.context_max = 2048;
  options.kv_memory_bytes = 64 << 20;
  options.requests_running_max = 16;
  options.step_rows_max = 256;
  return options;
}

// On CUDA the small matrices are multiplied as those of a large model.
inline std::unique_ptr<engine::BatchEngine> OpenBatch(const EngineOptions& options) {
  const auto must = [](auto result) {
    if (!result.ok()) ADD_FAILURE() << result.status().message();
    DI_CHECK(result.ok());
    return *std::move(result);
  };
  const engine::BackendOptions backend{.name = options.backend, .num_threads = options.num_threads, .aligned_cols_min = 128};
  return must(engine::BatchEngine::Create(options, must(engine::LoadedModel::Load(options.model_directory, backend,
                                                                                  must(engine::ParseActivations(options.activations))))));
}

inline std::unique_ptr<Engine> Open(const EngineOptions& options) { return OpenBatch(options); }

inline int64_t Sum(const std::vector<int64_t>& values) {
  int64_t sum = 0;
  for (const int64_t value : values) sum += value;
  return sum;
}

// In grammar_prompt_tokens: Submit gives the request a grammar. Grammars belong to an engine, so requests cannot have one.
constexpr int64_t kWithGrammar = -1;

inline std::shared_ptr<const grammar::CompiledGrammar> GrammarOf(const Engine& engine) {
  static std::shared_ptr<const grammar::CompiledGrammar> compiled;
  if (compiled == nullptr || &compiled->vocabulary() != engine.grammar_vocabulary().get()) {
    const auto made = grammar::Compile(grammar::Constraint::JsonSchema(R"({"type":"array","items":{"type":"object",
        "properties":{"name":{"type":"string"},"n":{"type":"number"}},"required":["n"]},"minItems":3})"),
                                       engine.grammar_vocabulary(), {.spelling = grammar::Spelling::kUsual});
    EXPECT_TRUE(made.ok()) << made.status().message();
    compiled = std::make_shared<const grammar::CompiledGrammar>(*made);
  }
  return compiled;
}

inline std::vector<GenerationRequest> MakeRequests(size_t count, ReplaySetting replay) {
  std::mt19937 random(42);
  std::vector<GenerationRequest> requests;
  std::vector<int32_t> shared(600);  // prefixes that several requests begin with
  for (int32_t& token : shared) token = static_cast<int32_t>(3 + random() % 8000);
  for (size_t i = 0; i < count; ++i) {
    GenerationRequest r;
    if (i % 4 == 1) {
      const size_t lengths[] = {127, 128, 129, 255, 256, 257, 384, 500, 600};
      r.prompt.assign(shared.begin(), shared.begin() + static_cast<std::ptrdiff_t>(lengths[random() % 9]));
    }
    const size_t own = 1 + random() % (i % 5 == 0 ? 300 : 60);
    for (size_t k = 0; k < own; ++k) r.prompt.push_back(static_cast<int32_t>(3 + random() % 8000));
    r.max_tokens = 1 + static_cast<int64_t>(random() % 24);
    r.ignore_eos = random() % 2 == 0;
    if (i % 2 == 0) {  // short prompts with long answers, which outgrow the blocks that they were admitted with
      r.max_tokens = 150;
      r.ignore_eos = true;
    }
    r.logprobs = 2;
    r.seed = random();
    if (random() % 3 != 0) r.temperature = 0.5F + 0.1F * static_cast<float>(random() % 10);
    if (random() % 3 == 0) r.top_p = 0.9F;
    if (random() % 4 == 0) r.top_k = 20;
    if (random() % 5 == 0) r.frequency_penalty = 0.5F;
    if (random() % 5 == 0) r.repetition_penalty = 1.2F;
    if (random() % 7 == 0) r.choices = 3;
    if (random() % 6 == 0) r.stop = {"e", "the"};
    if (i % 11 == 3) r.prompt_logprobs = 1;
    if (i % 4 == 2) r.grammar_prompt_tokens = kWithGrammar;
    if (i % 8 == 6) r.grammar_after = 201;
    r.replay = replay;
    requests.push_back(std::move(r));
  }
  return requests;
}

inline GenerationId Submit(Engine& engine, GenerationRequest request, Answers* answers) {
  if (request.grammar_prompt_tokens == kWithGrammar) {
    request.grammar_prompt_tokens = 0;
    request.grammar = GrammarOf(engine);
  }
  answers->resize(static_cast<size_t>(request.choices));
  std::string why;
  const auto collect = [answers](const Output& output) {
    Answer& answer = (*answers)[static_cast<size_t>(output.choice)];
    if (output.token >= 0) answer.tokens.push_back(output.token);
    if (output.logprob) answer.logprobs.push_back(*output.logprob);
    for (const PromptLogprob& entry : output.prompt_logprobs) answer.logprobs.push_back(entry.logprob);
    for (const TokenAlternative& other : output.alternatives) answer.logprobs.push_back(other.logprob);
    answer.text += output.text;
    if (output.finished) answer.reason = FinishReasonName(output.reason);
  };
  const GenerationId id = engine.Submit(request, collect, &why);
  EXPECT_NE(id, 0u) << why;
  return id;
}

// Runs requests[order[k]] in that order; `at_once` of them may be open, arrivals spread by `random`.
inline std::vector<Answers> RunAll(Engine& engine, const std::vector<GenerationRequest>& requests,
                            const std::vector<size_t>& order, bool one_by_one, uint32_t seed = 0) {
  std::vector<Answers> answers(requests.size());
  std::vector<GenerationId> ids;
  std::mt19937 random(seed);
  for (const size_t i : order) {
    const GenerationId id = Submit(engine, requests[i], &answers[i]);
    if (one_by_one) {
      engine.Wait(id);
    } else {
      ids.push_back(id);
      if (seed != 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    }
  }
  for (const GenerationId id : ids) engine.Wait(id);
  return answers;
}

// The same on an engine that is stepped by hand: everything is there before the first step, so that the schedule, and with
// it the number of preemptions, is always the same.
inline std::vector<Answers> RunByHand(Engine& engine, const std::vector<GenerationRequest>& requests, const std::vector<size_t>& order) {
  std::vector<Answers> answers(requests.size());
  for (const size_t i : order) Submit(engine, requests[i], &answers[i]);
  while (engine.Step()) {
  }
  return answers;
}

inline std::vector<size_t> Order(size_t n, uint32_t seed) {
  std::vector<size_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = i;
  if (seed != 0) std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

inline void ExpectEqual(const std::vector<Answers>& actual, const std::vector<Answers>& expected, const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    for (size_t c = 0; c < expected[i].size(); ++c) {
      ASSERT_EQ(actual[i][c].tokens, expected[i][c].tokens) << what << ": request " << i << " choice " << c;
      ASSERT_EQ(actual[i][c].logprobs, expected[i][c].logprobs) << what << ": request " << i << " choice " << c;
      ASSERT_EQ(actual[i][c].text, expected[i][c].text) << what << ": request " << i << " choice " << c;
      ASSERT_EQ(actual[i][c].reason, expected[i][c].reason) << what << ": request " << i << " choice " << c;
    }
  }
}

}  // namespace deepinfer::soak
