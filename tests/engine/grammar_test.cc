// SPDX-License-Identifier: Apache-2.0
// Property: constrained requests through the engine end valid, beside free ones that stay as they are, under n > 1,
// preemption, cancellation, and in a request that goes on where another one stopped.
#include <gtest/gtest.h>

#include <map>

#include "deepinfer/grammar.h"
#include "tests/engine/small_engine.h"

namespace deepinfer::engine {
namespace {

constexpr const char* kSchema = R"({"type":"object","properties":{"name":{"type":"string","maxLength":20},"tags":{"type":
  "array","items":{"enum":["x","y","z"]},"maxItems":4},"age":{"type":"integer","minimum":0,"maximum":150}},
  "required":["name","tags","age"],"additionalProperties":false})";

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::string text, error;
  FinishReason reason{};
  bool finished = false;
};
using Answers = std::map<int, Answer>;

OutputFn Into(Answers* answers) {
  return [answers](const Output& output) {
    Answer& answer = (*answers)[output.choice];
    if (output.token >= 0) answer.tokens.push_back(output.token);
    if (output.logprob) answer.logprobs.push_back(*output.logprob);
    answer.text += output.text;
    if (!output.finished) return;
    answer.finished = true;
    answer.reason = output.reason;
    answer.error = output.error;
  };
}

std::shared_ptr<const grammar::CompiledGrammar> Compiled(const Engine& engine, const grammar::Constraint& constraint,
                                                         const grammar::CompileOptions& options = {}) {
  const auto compiled = grammar::Compile(constraint, engine.grammar_vocabulary(), options);
  EXPECT_TRUE(compiled.ok()) << compiled.status().message();
  return std::make_shared<const grammar::CompiledGrammar>(*compiled);
}

Answers RunOne(BatchEngine& engine, const GenerationRequest& request) {
  Answers answers;
  std::string why;
  EXPECT_NE(engine.Submit(request, Into(&answers), &why), 0u) << why;
  while (engine.Step()) {
  }
  return answers;
}

void ExpectValid(const grammar::CompiledGrammar& grammar, const Answer& answer) {
  EXPECT_EQ(answer.reason, FinishReason::kStop) << answer.error;
  grammar::Matcher matcher(grammar);
  EXPECT_TRUE(matcher.AcceptBytes(answer.text).ok() && matcher.IsComplete()) << answer.text;
}

const std::vector<int32_t> kPrompt = {0, 1169, 731, 261, 566};

TEST(EngineGrammar, ChoicesEndValidAndChoiceZeroIsTheOnlyChoice) {
  const auto engine = Open();
  const auto grammar = Compiled(*engine, grammar::Constraint::JsonSchema(kSchema), {.whitespace_max = 1});
  GenerationRequest request{.prompt = kPrompt, .max_tokens = 300, .choices = 5, .logprobs = 0, .temperature = 1, .seed = 7};
  request.grammar = grammar;
  const Answers five = RunOne(*engine, request);
  request.choices = 1;
  const Answers one = RunOne(*engine, request);
  ASSERT_EQ(five.size(), 5u);
  for (const auto& [choice, answer] : five) ExpectValid(*grammar, answer);
  EXPECT_NE(five.at(0).text, five.at(1).text);
  EXPECT_EQ(five.at(0).tokens, one.at(0).tokens);
  EXPECT_EQ(five.at(0).logprobs, one.at(0).logprobs);
  EXPECT_EQ(engine->Stats().blocks_available, engine->Stats().blocks);
}

TEST(EngineGrammar, LeavesFreeRequestsAloneAndSurvivesPreemption) {
  EngineOptions options = SmallOptions();
  options.drafts = "off";
  const auto engine = Open(options);
  options.kv_memory_bytes = 10500 << 10;
  const auto small = Open(options);
  const auto submit_all = [](BatchEngine& target) {
    const auto grammar = Compiled(target, grammar::Constraint::JsonSchema(
                                              R"({"type":"array","items":{"type":"integer"},"minItems":40,"maxItems":50})"));
    std::vector<Answers> answers(8);
    for (size_t i = 0; i < answers.size(); ++i) {
      GenerationRequest request{.prompt = std::vector<int32_t>(100 + i, 9), .max_tokens = 200, .ignore_eos = i % 2 == 1};
      request.temperature = 1;
      request.seed = i;
      if (i % 2 == 0) request.grammar = grammar;
      std::string why;
      EXPECT_NE(target.Submit(request, Into(&answers[i]), &why), 0u) << why;
    }
    while (target.Step()) {
    }
    return answers;
  };
  const std::vector<Answers> roomy = submit_all(*engine), squeezed = submit_all(*small);
  EXPECT_EQ(engine->Stats().preemptions, 0);
  EXPECT_GT(small->Stats().preemptions, 0);
  for (size_t i = 0; i < roomy.size(); ++i) {
    EXPECT_EQ(roomy[i].at(0).tokens, squeezed[i].at(0).tokens) << i;
    EXPECT_EQ(roomy[i].at(0).reason, squeezed[i].at(0).reason) << i;
    GenerationRequest alone{.prompt = std::vector<int32_t>(100 + i, 9), .max_tokens = 200, .ignore_eos = true};
    alone.temperature = 1;
    alone.seed = i;
    if (i % 2 == 1) {
      EXPECT_EQ(RunOne(*engine, alone).at(0).tokens, roomy[i].at(0).tokens) << i;
    }
  }
}

TEST(EngineGrammar, GoesOnWhereAnotherRequestStopped) {  // B40
  const auto engine = Open();
  const auto grammar = Compiled(*engine, grammar::Constraint::JsonSchema(kSchema), {.whitespace_max = 1});
  GenerationRequest whole{.prompt = kPrompt, .max_tokens = 300, .temperature = 1, .seed = 3};
  whole.grammar = grammar;
  const Answer expected = RunOne(*engine, whole).at(0);
  ExpectValid(*grammar, expected);
  for (size_t cut = 0; cut < expected.tokens.size(); cut += 5) {
    GenerationRequest rest = whole;
    rest.prompt.insert(rest.prompt.end(), expected.tokens.begin(), expected.tokens.begin() + static_cast<std::ptrdiff_t>(cut));
    rest.grammar_prompt_tokens = static_cast<int64_t>(cut);
    const Answer answer = RunOne(*engine, rest).at(0);
    EXPECT_EQ(answer.tokens, std::vector<int32_t>(expected.tokens.begin() + static_cast<std::ptrdiff_t>(cut), expected.tokens.end()));
  }
}

TEST(EngineGrammar, CancelAtEveryStep) {
  const auto engine = Open();
  const auto grammar = Compiled(*engine, grammar::Constraint::JsonObject());
  for (int steps = 0; steps < 8; ++steps) {
    Answers cancelled;
    GenerationRequest request{.prompt = kPrompt, .max_tokens = 100, .choices = 2, .temperature = 1, .seed = 1};
    request.grammar = grammar;
    std::string why;
    const GenerationId id = engine->Submit(request, Into(&cancelled), &why);
    for (int i = 0; i < steps; ++i) engine->Step();
    engine->Cancel(id);
    while (engine->Step()) {
    }
    EXPECT_EQ(cancelled.at(0).reason, FinishReason::kCancelled);
    EXPECT_EQ(engine->Stats().blocks_available, engine->Stats().blocks);
    EXPECT_EQ(engine->FindViolation(), "");
  }
}

TEST(EngineGrammar, RefusesByName) {
  const auto engine = Open(), other = Open();
  GenerationRequest request{.prompt = kPrompt};
  std::string why;
  request.grammar_prompt_tokens = 1;
  EXPECT_EQ(engine->Submit(request, nullptr, &why), 0u);
  EXPECT_NE(why.find("grammar_prompt_tokens"), std::string::npos) << why;
  request.grammar = Compiled(*engine, grammar::Constraint::Regex("never the prompt"));
  EXPECT_EQ(engine->Submit(request, nullptr, &why), 0u);
  EXPECT_NE(why.find("grammar_prompt_tokens"), std::string::npos) << why;
  request.grammar_prompt_tokens = 0;
  request.grammar_after = 8192;
  EXPECT_EQ(engine->Submit(request, nullptr, &why), 0u);
  EXPECT_NE(why.find("grammar_after"), std::string::npos) << why;
  request.grammar_after.reset();
  request.grammar = Compiled(*other, grammar::Constraint::JsonObject());
  EXPECT_EQ(engine->Submit(request, nullptr, &why), 0u);
  EXPECT_NE(why.find("grammar_vocabulary"), std::string::npos) << why;
}

TEST(EngineGrammar, ALimitEndsThatRequestAlone) {
  const auto engine = Open();
  // As much memory as compiling takes, and hardly more: it runs out on the way.
  grammar::CompileOptions options{.limits = {.memory_bytes = 64 << 10}};
  const auto constraint = grammar::Constraint::Regex("([a-z ]{1,9}|[0-9]+,){200,900}x.{500}");
  while (!grammar::Compile(constraint, engine->grammar_vocabulary(), options).ok()) options.limits.memory_bytes += 16 << 10;
  const auto costly = Compiled(*engine, constraint, options);
  const auto fine = Compiled(*engine, grammar::Constraint::Choice({"yes", "no"}));
  Answers bad, good;
  GenerationRequest request{.prompt = kPrompt, .max_tokens = 900, .ignore_eos = true, .temperature = 1, .seed = 1};
  std::string why;
  request.grammar = costly;
  EXPECT_NE(engine->Submit(request, Into(&bad), &why), 0u) << why;
  request.grammar = fine;
  EXPECT_NE(engine->Submit(request, Into(&good), &why), 0u) << why;
  while (engine->Step()) {
  }
  EXPECT_TRUE(good.at(0).text == "yes" || good.at(0).text == "no");
  EXPECT_TRUE(bad.at(0).finished);
  EXPECT_EQ(bad.at(0).reason, FinishReason::kError);
  EXPECT_NE(bad.at(0).error.find("grammar: too complex"), std::string::npos) << bad.at(0).error;
}

}  // namespace
}  // namespace deepinfer::engine
