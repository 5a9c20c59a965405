// SPDX-License-Identifier: Apache-2.0
// Property: impossible requests are refused with the field's name; cancelled, overdue and throwing requests end alone and
// give everything back; nothing is delivered after the end.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "engine/session.h"
#include "tests/engine/small_engine.h"

namespace deepinfer::engine {
namespace {

struct Collected {
  std::vector<int32_t> tokens;
  std::string text;
  int ends = 0;
  deepinfer::FinishReason reason{};
  OutputFn Fn() {
    return [this](const Output& output) {
      EXPECT_EQ(ends, 0) << "an output after the end";
      if (output.token >= 0) tokens.push_back(output.token);
      text += output.text;
      if (output.finished) ++ends, reason = output.reason;
    };
  }
};

GenerationId Submit(BatchEngine& engine, const GenerationRequest& request, OutputFn fn) {
  std::string why;
  const GenerationId id = engine.Submit(request, std::move(fn), &why);
  EXPECT_NE(id, 0u) << why;
  return id;
}

void Drain(BatchEngine& engine) {
  while (engine.Step()) {
  }
}

// Nothing runs, waits or holds memory but cached blocks.
void ExpectIdle(BatchEngine& engine) {
  const EngineStats stats = engine.Stats();
  EXPECT_EQ(stats.requests_running, 0);
  EXPECT_EQ(stats.requests_waiting, 0);
  EXPECT_EQ(stats.blocks_available, stats.blocks);
  EXPECT_EQ(engine.FindViolation(), "");
}

TEST(Engine, RefusesTheImpossibleByName) {
  const auto engine = Open();
  const GenerationRequest good{.prompt = {0, 5, 6}};
  const auto refused = [&](const std::string& field, auto change) {
    GenerationRequest request = good;
    change(request);
    std::string why;
    EXPECT_EQ(engine->Submit(request, nullptr, &why), 0u) << field;
    EXPECT_NE(why.find(field), std::string::npos) << why;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  refused("prompt", [](auto& r) { r.prompt.clear(); });
  refused("prompt", [](auto& r) { r.prompt.assign(1024, 5); });
  refused("prompt", [](auto& r) { r.prompt = {0, 8192}; });
  refused("prompt", [](auto& r) { r.prompt = {-1}; });
  refused("max_tokens", [](auto& r) { r.max_tokens = -1; });
  refused("max_tokens", [](auto& r) { r.max_tokens = 0; });
  refused("min_tokens", [](auto& r) { r.min_tokens = 1000; });
  refused("n:", [](auto& r) { r.choices = 1000000; });
  refused("n:", [](auto& r) { r.choices = 0; });
  refused("top_p", [](auto& r) { r.top_p = 2; });
  refused("temperature", [=](auto& r) { r.temperature = nan; });
  refused("logit_bias", [=](auto& r) { r.logit_bias = {{5, nan}}; });
  refused("logit_bias", [](auto& r) { r.logit_bias = {{99999, 1.0F}}; });
  refused("logprobs", [](auto& r) { r.logprobs = -1; });
  refused("prompt_logprobs", [](auto& r) { r.prompt_logprobs = 9000; });
  refused("stop", [](auto& r) { r.stop = {""}; });
  refused("stop_token_ids", [](auto& r) { r.stop_token_ids = {8192}; });
  refused("bad_words", [](auto& r) { r.bad_words = {{}}; });
  refused("priority", [](auto& r) { r.priority = 1000; });
  refused("deadline_ms", [](auto& r) { r.deadline_ms = -5; });
  ExpectIdle(*engine);
}

TEST(Engine, CancelAtEveryStep) {
  const auto engine = Open();
  for (int steps = 0; steps < 12; ++steps) {
    Collected cancelled, other;
    const GenerationId id = Submit(*engine, {.prompt = std::vector<int32_t>(300, 9), .max_tokens = 20, .choices = 2, .ignore_eos = true},
                                   [&](const Output& output) {
                                     if (output.choice == 0) cancelled.Fn()(output);
                                   });
    Submit(*engine, {.prompt = {0, 1169, 731}, .max_tokens = 5, .ignore_eos = true}, other.Fn());
    for (int i = 0; i < steps; ++i) engine->Step();
    engine->Cancel(id);
    Drain(*engine);
    EXPECT_EQ(cancelled.ends, 1) << steps;
    EXPECT_EQ(other.tokens.size(), 5u) << steps;
    EXPECT_EQ(other.reason, deepinfer::FinishReason::kLength);
    ExpectIdle(*engine);
  }
}

TEST(Engine, AThrowingConsumerHarmsNobodyElse) {
  const auto engine = Open();
  Collected other, expected;
  int calls = 0;
  Submit(*engine, {.prompt = {0, 7, 8}, .max_tokens = 50, .ignore_eos = true}, [&](const Output&) {
    if (++calls == 3) throw std::runtime_error("consumer");
  });
  Submit(*engine, {.prompt = {0, 1169, 731}, .max_tokens = 10}, other.Fn());
  Drain(*engine);
  EXPECT_EQ(calls, 3);
  ExpectIdle(*engine);
  Submit(*engine, {.prompt = {0, 1169, 731}, .max_tokens = 10}, expected.Fn());
  Drain(*engine);
  EXPECT_EQ(other.tokens, expected.tokens);
}

TEST(Engine, DeadlineMinTokensBadWordsAndStops) {
  const auto engine = Open();
  Collected late, free, banned, minimum, stopped;
  Submit(*engine, {.prompt = {0, 5}, .max_tokens = 1000, .ignore_eos = true, .deadline_ms = 1}, late.Fn());
  Submit(*engine, {.prompt = {0, 1169, 731, 261, 566}, .max_tokens = 8}, free.Fn());
  Drain(*engine);
  EXPECT_EQ(late.reason, deepinfer::FinishReason::kDeadline);
  ASSERT_EQ(free.tokens.size(), 8u);
  Submit(*engine, {.prompt = {0, 1169, 731, 261, 566}, .max_tokens = 8, .bad_words = {{free.tokens[2], free.tokens[3]}}}, banned.Fn());
  // The third token as a stop id, but not before five tokens: its first chance is gone.
  Submit(*engine, {.prompt = {0, 1169, 731, 261, 566}, .max_tokens = 8, .min_tokens = 5, .stop_token_ids = {free.tokens[2]}}, minimum.Fn());
  Submit(*engine, {.prompt = {0, 1169, 731, 261, 566}, .max_tokens = 30, .stop = {" little"}}, stopped.Fn());
  Drain(*engine);
  EXPECT_TRUE(std::equal(banned.tokens.begin(), banned.tokens.begin() + 3, free.tokens.begin()));
  EXPECT_NE(banned.tokens[3], free.tokens[3]);
  EXPECT_GE(minimum.tokens.size(), 5u);
  EXPECT_NE(minimum.tokens[2], free.tokens[2]);
  EXPECT_EQ(stopped.text, ", there was a");
  EXPECT_EQ(stopped.reason, deepinfer::FinishReason::kStop);
  ExpectIdle(*engine);
}

TEST(Engine, ChoiceZeroIsTheRequestWithOneChoice) {
  const auto engine = Open();
  std::vector<Collected> many(3);
  Collected one;
  GenerationRequest request{.prompt = std::vector<int32_t>(140, 11), .max_tokens = 12, .temperature = 1, .seed = 5};
  Submit(*engine, request, one.Fn());
  Drain(*engine);
  request.choices = 3;
  Submit(*engine, request, [&](const Output& output) { many[static_cast<size_t>(output.choice)].Fn()(output); });
  Drain(*engine);
  EXPECT_EQ(many[0].tokens, one.tokens);
  EXPECT_NE(many[1].tokens, many[0].tokens);
  EXPECT_NE(many[2].tokens, many[1].tokens);
  ExpectIdle(*engine);
}

// One choice can be given up at any time, the first one too; the others make the same tokens.
TEST(Engine, CancelOfOneChoice) {
  const GenerationRequest request{
      .prompt = std::vector<int32_t>(140, 11), .max_tokens = 12, .choices = 3, .temperature = 1, .seed = 5};
  std::vector<Collected> whole(3);
  const auto engine = Open();
  Submit(*engine, request, [&](const Output& output) { whole[static_cast<size_t>(output.choice)].Fn()(output); });
  Drain(*engine);
  for (int choice = 0; choice < 3; ++choice) {
    for (int steps = 0; steps < 8; steps += 3) {
      std::vector<Collected> many(3);
      const GenerationId id =
          Submit(*engine, request, [&](const Output& output) { many[static_cast<size_t>(output.choice)].Fn()(output); });
      for (int i = 0; i < steps; ++i) engine->Step();
      engine->Cancel(id, choice);
      Drain(*engine);
      for (int other = 0; other < 3; ++other) {
        if (other == choice) continue;
        EXPECT_EQ(many[static_cast<size_t>(other)].tokens, whole[static_cast<size_t>(other)].tokens);
      }
      EXPECT_EQ(many[static_cast<size_t>(choice)].reason, deepinfer::FinishReason::kCancelled);
    }
  }
  ExpectIdle(*engine);
}

// What `deepinfer score` computes: every row's logits from one pass over the sequence.
std::vector<float> Score(const std::vector<int32_t>& tokens) {
  const auto loaded = LoadedModel::Load(SmallOptions().model_directory, {.name = "cpu", .num_threads = 2});
  const auto session = Session::Create(**loaded, {});
  const auto logits = (*session)->Append({.ids = tokens, .logits = Logits::kAll});
  EXPECT_TRUE(logits.ok());
  const auto vocab = static_cast<size_t>((*loaded)->config().vocab_size);
  std::vector<float> logprobs;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const auto top = sampling::ComputeLogprobs(std::span(*logits).subspan(i * vocab, vocab), tokens[i + 1], 2);
    logprobs.insert(logprobs.end(), {top.chosen, top.top[0].logprob, top.top[1].logprob});
  }
  return logprobs;
}

TEST(Engine, PromptLogprobsAreThoseOfScore) {
  const auto engine = Open();
  std::vector<int32_t> prompt;
  for (int i = 0; i < 400; ++i) prompt.push_back(3 + i * 37 % 8000);
  const std::vector<float> expected = Score(prompt);
  std::vector<int32_t> plain;
  for (const int round : {0, 1}) {  // the second finds its prefix in the cache and does not take it
    std::vector<float> logprobs;
    std::vector<int32_t> tokens;
    int64_t cached = -1;
    GenerationRequest request{.prompt = prompt, .max_tokens = 5, .choices = 2, .temperature = 1, .seed = 3};
    request.prompt_logprobs = 2;
    Submit(*engine, request, [&](const Output& output) {
      if (output.choice == 0) cached = output.cached_tokens;
      if (output.choice == 0 && output.token >= 0) tokens.push_back(output.token);
      EXPECT_TRUE(output.prompt_logprobs.empty() || (output.choice == 0 && tokens.size() == 1));
      for (const PromptLogprob& entry : output.prompt_logprobs) {
        logprobs.push_back(entry.logprob);
        for (const TokenAlternative& other : entry.alternatives) logprobs.push_back(other.logprob);
      }
    });
    Collected other;  // beside it
    Submit(*engine, {.prompt = std::vector<int32_t>(200, 9), .max_tokens = 5, .ignore_eos = true}, other.Fn());
    Drain(*engine);
    EXPECT_EQ(logprobs, expected) << round;
    EXPECT_EQ(cached, 0);
    request.prompt_logprobs.reset();
    Collected same;
    Submit(*engine, request, [&](const Output& output) {
      if (output.choice == 0) same.Fn()(output);
    });
    Drain(*engine);
    EXPECT_EQ(tokens, same.tokens);
  }
  Collected one;  // nothing to score
  Submit(*engine, {.prompt = {5}, .max_tokens = 1, .prompt_logprobs = 0}, one.Fn());
  Drain(*engine);
  EXPECT_EQ(one.tokens.size(), 1u);
  ExpectIdle(*engine);
}

TEST(Engine, SaltsKeepCachesApart) {
  const auto engine = Open();
  const std::vector<int32_t> prompt(400, 13);
  const auto cached = [&](const std::string& salt) {
    int64_t tokens = -1;
    Submit(*engine, {.prompt = prompt, .max_tokens = 1, .cache_salt = salt}, [&](const Output& o) { tokens = o.cached_tokens; });
    Drain(*engine);
    return tokens;
  };
  EXPECT_EQ(cached("a"), 0);
  EXPECT_EQ(cached("b"), 0);
  EXPECT_EQ(cached("a"), 384);
}

TEST(Engine, MemoryThatIsTooSmallSaysHowMuchWouldDo) {
  EngineOptions options = SmallOptions();
  options.kv_memory_bytes = 1000;
  std::string why;
  EXPECT_EQ(Engine::Open(options, &why), nullptr);
  options.kv_memory_bytes = std::atoll(why.c_str() + why.rfind("; ") + 2);
  EXPECT_NE(Engine::Open(options, &why), nullptr) << why;
}

}  // namespace
}  // namespace deepinfer::engine
