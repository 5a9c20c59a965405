// SPDX-License-Identifier: Apache-2.0
// Property: constrained requests through the engine end valid, beside free ones that stay as they are, under n > 1,
// preemption, cancellation, and in a request that goes on where another one stopped.
//   engine_grammar_test [BACKEND]
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <map>

#include "backend/api/ops.h"
#include "deepinfer/grammar.h"
#include "tests/engine/least_memory.h"
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

// An answer whose mask comes late sits out steps, with drafts, further choices and preemption too; its tokens are the same.
TEST(EngineGrammar, SittingOutChangesNoToken) {
  for (const char* drafts : {"off", "3", "auto"}) {
    EngineOptions options = SmallOptions();
    options.drafts = drafts;
    SetLeastMemory(&options);
    const auto answers_with = [&](std::chrono::microseconds delay, int64_t* late) {
      const auto engine = Open(options);
      engine->set_mask_delay(delay);
      const auto object = Compiled(*engine, grammar::Constraint::JsonSchema(kSchema), {.whitespace_max = 1});
      const auto words = Compiled(*engine, grammar::Constraint::Regex("([a-z]+ ){3,40}\\."));
      std::vector<Answers> answers(6);
      for (size_t i = 0; i < answers.size(); ++i) {
        GenerationRequest request{.prompt = kPrompt, .max_tokens = 60, .logprobs = 0, .temperature = 1, .seed = i};
        request.prompt.resize(100 + 20 * i, 9);
        request.choices = i == 1 ? 2 : 1;
        if (i < 4) request.grammar = i % 2 == 0 ? words : object;
        if (i == 3) request.grammar_after = 5;
        std::string why;
        EXPECT_NE(engine->Submit(request, Into(&answers[i]), &why), 0u) << why;
      }
      while (engine->Step()) {
      }
      *late = engine->Stats().masks_late;
      EXPECT_EQ(engine->FindViolation(), "");
      return answers;
    };
    int64_t often = 0, seldom = 0;
    const std::vector<Answers> late = answers_with(std::chrono::milliseconds(10), &often);
    const std::vector<Answers> usual = answers_with(std::chrono::milliseconds(0), &seldom);
    EXPECT_GT(often, 20) << drafts;
    for (size_t i = 0; i < late.size(); ++i) {
      for (const auto& [choice, answer] : usual[i]) {
        EXPECT_EQ(late[i].at(choice).tokens, answer.tokens) << drafts << " " << i;
        EXPECT_EQ(late[i].at(choice).logprobs, answer.logprobs) << drafts << " " << i;
        EXPECT_EQ(late[i].at(choice).reason, answer.reason) << drafts << " " << i;
      }
    }
  }
}

// Masks that come late, states that leave one token, drafts under masks, bad words and least lengths: on a device that draws, the
// tokens and log-probabilities are those that the host draws from its logits (as it does where more alternatives are asked for).
TEST(EngineGrammar, DrawnByTheDeviceAsByTheHost) {
  for (const char* drafts : {"off", "3", "auto"}) {
    EngineOptions options = SmallOptions();
    options.drafts = drafts;
    const auto engine = Open(options);
    engine->set_mask_delay(std::chrono::milliseconds(10));
    const auto object = Compiled(*engine, grammar::Constraint::JsonSchema(kSchema), {.whitespace_max = 1});
    const auto forced = Compiled(*engine, grammar::Constraint::Regex("(one way only, [a-z]){2,9}"));
    std::vector<std::array<Answers, 2>> answers(6);
    for (size_t i = 0; i < answers.size(); ++i) {
      for (const bool on_host : {false, true}) {
        GenerationRequest request{.prompt = kPrompt, .max_tokens = 24, .temperature = i % 4 == 3 ? 0.0F : 1.0F, .seed = i};
        request.choices = i == 1 ? 2 : 1;
        request.logprobs = on_host ? backend::kTopLogitsMax + 1 : 2;
        if (i < 5) request.grammar = i % 2 == 0 ? forced : object;
        if (i == 3) request.grammar_after = 5;
        if (i == 4) request.repetition_penalty = 1.3F, request.top_p = 0.9F;
        if (i >= 4) request.bad_words = {{20}, {7, 8}}, request.min_tokens = 10;
        std::string why;
        EXPECT_NE(engine->Submit(request, Into(&answers[i][on_host ? 1 : 0]), &why), 0u) << why;
      }
    }
    while (engine->Step()) {
    }
    EXPECT_GT(engine->Stats().masks_late, 20) << drafts;
    for (size_t i = 0; i < answers.size(); ++i) {
      for (const auto& [choice, expected] : answers[i][1]) {
        EXPECT_EQ(answers[i][0].at(choice).tokens, expected.tokens) << drafts << " " << i;
        EXPECT_EQ(answers[i][0].at(choice).logprobs, expected.logprobs) << drafts << " " << i;
        EXPECT_EQ(answers[i][0].at(choice).text, expected.text) << drafts << " " << i;
        EXPECT_GT(expected.tokens.size(), 5u) << drafts << " " << i;
      }
    }
  }
}

// Masks that take long hold up nobody else: while they are made, each step has a token for each free request.
TEST(EngineGrammar, SlowMasksHoldUpTheirOwnRequest) {
  EngineOptions options = SmallOptions();
  options.drafts = "off";
  const auto engine = Open(options);
  engine->set_mask_delay(std::chrono::milliseconds(50));
  const auto slow = Compiled(*engine, grammar::Constraint::Regex("(.{0,9999}x){0,9999}y"));
  std::vector<Answers> hostile(3), free(4);
  std::string why;
  for (size_t i = 0; i < hostile.size(); ++i) {
    GenerationRequest request{.prompt = kPrompt, .max_tokens = 25, .temperature = 1, .seed = i};
    request.grammar = slow;
    ASSERT_NE(engine->Submit(request, Into(&hostile[i]), &why), 0u) << why;
  }
  for (int step = 0; step < 20; ++step) engine->Step();
  for (size_t i = 0; i < free.size(); ++i) {
    GenerationRequest request{.prompt = kPrompt, .max_tokens = 100, .ignore_eos = true, .temperature = 1, .seed = i};
    ASSERT_NE(engine->Submit(request, Into(&free[i]), &why), 0u) << why;
  }
  int steps = 0;
  while (!free.back()[0].finished && steps < 1000) {
    engine->Step();
    ++steps;
  }
  EXPECT_LE(steps, 101);
  for (Answers& answers : free) EXPECT_EQ(answers[0].tokens.size(), 100u);
  EXPECT_GT(engine->Stats().masks_late, 20);
  while (engine->Step()) {
  }
  for (Answers& answers : hostile) EXPECT_TRUE(answers[0].finished);
}

TEST(EngineGrammar, B40GoesOnWhereAnotherRequestStopped) {
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

int main(int argc, char** argv) { return deepinfer::engine::RunTestsOn(argc, argv); }
