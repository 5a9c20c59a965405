// SPDX-License-Identifier: Apache-2.0
// Property: bugs that other engines had with many requests, caches and limits; each test carries the number of its case. REF
// is the same request on a cold engine, alone, no drafts, replay exact; "equal" means tokens and log-probabilities bit for bit.
//   engine_cases_a_test [SCALE]     (default 1; tests/long.sh takes 10)
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <thread>

#include "core/check.h"
#include "engine/batch_engine.h"
#include "engine/session.h"
#include "sched/replay.h"
#include "tests/engine/least_memory.h"

namespace deepinfer::engine {
namespace {

int g_scale = 1;

const std::string kModel = std::string(DI_SOURCE_DIR) + "/models/deepseek-v41-tiny";
constexpr int kBlock = 128;

// k random tokens of the text vocabulary, the same for the same seed.
std::vector<int32_t> N(size_t k, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(k);
  for (int32_t& id : ids) id = static_cast<int32_t>(3 + random() % 8000);
  return ids;
}

EngineOptions Options(int64_t context = 2048) {
  EngineOptions options{.model_directory = kModel, .num_threads = 2};
  options.context_max = context;
  options.kv_memory_bytes = 64 << 20;
  options.requests_running_max = 16;
  options.step_rows_max = 256;
  options.drafts = "off";
  return options;
}

std::unique_ptr<Engine> Open(const EngineOptions& options) {
  std::string why;
  auto engine = Engine::Open(options, &why);
  if (engine == nullptr) ADD_FAILURE() << why;
  DI_CHECK(engine != nullptr);
  return engine;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  int64_t prompt_tokens = -1, cached = -1, counted = -1;
  FinishReason reason = FinishReason::kError;
  std::string error;
  bool operator==(const Answer& other) const { return tokens == other.tokens && logprobs == other.logprobs; }
};

GenerationRequest Request(std::vector<int32_t> prompt, int64_t max_tokens, const std::string& salt = {}) {
  GenerationRequest request{.prompt = std::move(prompt), .max_tokens = max_tokens, .ignore_eos = true, .logprobs = 1};
  request.cache_salt = salt;
  return request;
}

GenerationId Submit(Engine& engine, const GenerationRequest& request, Answer* answer) {
  std::string why;
  const GenerationId id = engine.Submit(
      request,
      [answer](const Output& output) {
        if (output.token >= 0) answer->tokens.push_back(output.token);
        if (output.logprob) answer->logprobs.push_back(*output.logprob);
        for (const TokenAlternative& other : output.alternatives) answer->logprobs.push_back(other.logprob);
        if (!output.finished) return;
        answer->prompt_tokens = output.prompt_tokens;
        answer->cached = output.cached_tokens;
        answer->counted = output.answer_tokens;
        answer->reason = output.reason;
        answer->error = output.error;
      },
      &why);
  EXPECT_NE(id, 0u) << why;
  return id;
}

Answer RunOne(Engine& engine, const GenerationRequest& request) {
  Answer answer;
  engine.Wait(Submit(engine, request, &answer));
  return answer;
}

std::vector<Answer> RunAll(Engine& engine, const std::vector<GenerationRequest>& requests) {
  std::vector<Answer> answers(requests.size());
  std::vector<GenerationId> ids;
  for (size_t i = 0; i < requests.size(); ++i) ids.push_back(Submit(engine, requests[i], &answers[i]));
  for (const GenerationId id : ids) engine.Wait(id);
  return answers;
}

// Nothing of what ran before is found: every prompt has a salt of its own.
Answer Ref(GenerationRequest request) {
  static const auto engine = Open(Options());
  static int salt = 0;
  request.cache_salt = "ref " + std::to_string(++salt);
  return RunOne(*engine, request);
}

// What was cancelled holds its cache until the steps in flight are over.
void ExpectAllFree(const Engine& engine) {
  EngineStats stats = engine.Stats();
  for (int i = 0; i < 5000 && stats.requests_running > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    stats = engine.Stats();
  }
  EXPECT_EQ(stats.requests_running, 0);
  EXPECT_EQ(stats.requests_waiting, 0);
  EXPECT_EQ(stats.blocks_available, stats.blocks);
}

TEST(EngineCasesA, A02_PromptsThatNeedSeveralPasses) {
  for (const int chunk : {64, 128, 512}) {
    EngineOptions options = Options();
    options.prefill_rows_max = chunk;
    options.step_rows_max = chunk + 32;
    const auto engine = Open(options);
    for (const int k : {chunk - 1, chunk, chunk + 1, 2 * chunk, 3 * chunk + 5}) {
      if (g_scale == 1 && k > 600) continue;
      const auto request = Request(N(static_cast<size_t>(k)), 3, std::to_string(k));
      EXPECT_EQ(RunOne(*engine, request), Ref(request)) << "chunk " << chunk << " prompt " << k;
    }
  }
}

TEST(EngineCasesA, A08_ManyIdenticalRequestsAtOnce) {
  const auto request = Request(N(90), g_scale == 1 ? 20 : 64);
  const Answer expected = Ref(request);
  for (const size_t n : {32, 7, 33}) {
    EngineOptions options = Options();
    options.requests_running_max = 40;
    options.kv_memory_bytes = 80 << 20;
    const auto engine = Open(options);
    for (const Answer& answer : RunAll(*engine, std::vector<GenerationRequest>(n, request))) EXPECT_EQ(answer, expected) << n;
  }
}

TEST(EngineCasesA, A10_EveryNumberOfRowsInAStep) {
  EngineOptions options = Options();
  options.step_rows_max = 512;
  const auto engine = Open(options);
  std::mt19937 random(10);
  std::map<std::pair<uint32_t, size_t>, Answer> alone;  // by seed and length of the prompt
  int salt = 0;
  for (size_t total = 1; total <= 400; total += g_scale == 1 ? 19 : 1) {
    const size_t parts = std::min<size_t>(total, 1 + random() % 5);
    std::vector<GenerationRequest> requests;
    std::vector<std::pair<uint32_t, size_t>> keys;
    size_t left = total;
    for (size_t p = 0; p < parts; ++p) {
      const size_t length = p + 1 == parts ? left : 1 + random() % (left - (parts - p - 1));
      left -= length;
      keys.emplace_back(static_cast<uint32_t>(p), length);
      requests.push_back(Request(N(length, static_cast<uint32_t>(p)), 1, std::to_string(++salt)));
    }
    const std::vector<Answer> answers = RunAll(*engine, requests);
    for (size_t p = 0; p < parts; ++p) {
      const auto [entry, is_new] = alone.try_emplace(keys[p]);
      if (is_new) entry->second = Ref(requests[p]);
      EXPECT_EQ(answers[p], entry->second) << "total " << total << " part " << p;
    }
  }
}

TEST(EngineCasesA, A11_WholePromptsInTheCache) {
  for (const int blocks : {1, 2, 8}) {
    const auto engine = Open(Options());
    const auto request = Request(N(static_cast<size_t>(blocks * kBlock)), 4);
    const Answer expected = Ref(request);
    EXPECT_EQ(RunOne(*engine, request), expected);
    const Answer again = RunOne(*engine, request);
    EXPECT_EQ(again, expected);
    EXPECT_EQ(again.cached, (blocks - 1) * kBlock);  // at least the last token runs: whole blocks below it
    for (const Answer& answer : RunAll(*engine, std::vector<GenerationRequest>(5, request))) {
      EXPECT_EQ(answer, expected);
      EXPECT_LE(answer.cached, answer.prompt_tokens - 1);
    }
    auto one = request;
    one.max_tokens = 1;
    EXPECT_EQ(RunOne(*engine, one).tokens, std::vector<int32_t>(expected.tokens.begin(), expected.tokens.begin() + 1));
  }
}

// The log-probability of the first token after `prompt` under the bounded replay of a hit, by a session of its own.
Answer RefBounded(const std::vector<int32_t>& prompt, int32_t hit) {
  const auto loaded = *LoadedModel::Load(kModel, {.name = "cpu", .num_threads = 2});
  const auto session = *Session::Create(*loaded, {});
  const checkpoint::ModelConfig& model = loaded->config();
  const sched::LayerShape shape = ShapeOf(model);
  const auto layers = static_cast<size_t>(model.num_layers);
  Replay replay{.run_from = std::vector<int32_t>(layers + 1), .window_floor = std::vector<int32_t>(layers), .global_floor = hit};
  const auto length = static_cast<int64_t>(prompt.size());
  const sched::ReplayStarts starts = sched::ComputeReplay(
      shape, {.setting = sched::Replay::kBounded, .prompt_length = length, .length = length, .hit = hit}, replay.run_from);
  for (size_t l = 0; l < layers; ++l) {
    const auto group = static_cast<int32_t>(l) < shape.first_late() ? kv::kEarly : kv::kLate;
    replay.window_floor[l] = static_cast<int32_t>(starts.floor[group]);
  }
  EXPECT_TRUE(session->Append({.ids = std::span(prompt).first(static_cast<size_t>(hit))}).ok());
  session->Rewind(static_cast<int32_t>(starts.first_row));
  const auto logits = session->Append({.ids = std::span(prompt).subspan(static_cast<size_t>(hit)), .replay = &replay});
  EXPECT_TRUE(logits.ok());
  Answer answer;
  answer.tokens = {sampling::ArgMax(*logits)};
  const sampling::Logprobs logprobs = sampling::ComputeLogprobs(*logits, answer.tokens[0], 1);
  answer.logprobs = {logprobs.chosen, logprobs.top[0].logprob};
  return answer;
}

TEST(EngineCasesA, A13_WindowPagesGoneGlobalPagesKept) {
  std::vector<int32_t> prompt = N(1000);
  const auto tail = N(30, 2);
  for (const double share : {0.0, 0.2}) {  // without memory for them, windows are not kept
    EngineOptions options = Options();
    options.snapshot_share = share;
    const auto engine = Open(options);
    RunOne(*engine, Request(prompt, 1));
    std::vector<int32_t> longer = prompt;
    longer.insert(longer.end(), tail.begin(), tail.end());
    const Answer expected = Ref(Request(longer, 6));
    const Answer exact = RunOne(*engine, Request(longer, 6));
    EXPECT_EQ(exact, expected) << share;
    EXPECT_EQ(exact.cached, 7 * kBlock);
    // Other tails, so that no more than those blocks are there for them; more than a block, so that what follows the hit counts.
    std::vector<int32_t> other = prompt;
    const auto long_tail = N(200, 3);
    other.insert(other.end(), long_tail.begin(), long_tail.end());
    auto bounded = Request(other, 1);
    bounded.replay = ReplaySetting::kBounded;
    const Answer approximate = RunOne(*engine, bounded);
    EXPECT_EQ(approximate.cached, 7 * kBlock);
    EXPECT_EQ(approximate, RefBounded(other, 7 * kBlock)) << share;
    // The replay left the global rows as they were, and its own blocks are no exact request's.
    EXPECT_EQ(RunOne(*engine, Request(longer, 6)), expected) << share;
    EXPECT_EQ(RunOne(*engine, Request(other, 6)), Ref(Request(other, 6))) << share;
  }
}

TEST(EngineCasesA, A16_PreemptionAndResume) {
  // Prompts of one block, so that all six are let in at once, and answers that need two and more behind it.
  const size_t prompt = 100;
  const int64_t answer_tokens = g_scale == 1 ? 250 : 900;
  for (const char* drafts : {"off", "auto"}) {
    EngineOptions options = Options(1024);
    options.requests_running_max = 6;
    options.snapshot_share = 0;
    options.drafts = drafts;
    SetLeastMemory(&options);
    const auto engine = Open(options);
    std::vector<GenerationRequest> requests;
    for (uint32_t i = 0; i < 6; ++i) requests.push_back(Request(N(prompt, i), answer_tokens));
    const std::vector<Answer> answers = RunAll(*engine, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(answers[i], Ref(requests[i])) << drafts << " " << i;
      EXPECT_EQ(answers[i].prompt_tokens, static_cast<int64_t>(prompt));
      EXPECT_EQ(answers[i].counted, answer_tokens);
    }
    EXPECT_GT(engine->Stats().preemptions, 0) << drafts << ", blocks " << engine->Stats().blocks;
    ExpectAllFree(*engine);
  }
}

TEST(EngineCasesA, A20_TheSameRowsInOtherBlocks) {
  const auto ids = N(g_scale == 1 ? 400 : 1024);
  const auto engine = Open(Options());
  const auto run = [&](int i) {
    auto request = Request(ids, 4, "run " + std::to_string(i));
    request.prompt_logprobs = 0;  // of every row
    std::vector<float> logprobs;
    std::string why;
    const GenerationId id = engine->Submit(
        request,
        [&](const Output& output) {
          for (const PromptLogprob& entry : output.prompt_logprobs) logprobs.push_back(entry.logprob);
          if (output.logprob) logprobs.push_back(*output.logprob);
        },
        &why);
    EXPECT_NE(id, 0u) << why;
    engine->Wait(id);
    return logprobs;
  };
  const std::vector<float> expected = run(0);
  ASSERT_EQ(expected.size(), ids.size() - 1 + 4);
  for (int i = 1; i < (g_scale == 1 ? 4 : 20); ++i) {
    std::vector<Answer> beside(i % 3 == 1 ? 12 : 0);
    std::vector<GenerationId> traffic;
    for (size_t t = 0; t < beside.size(); ++t) {
      const auto prompt = N(50 + t * 17, static_cast<uint32_t>(100 * i) + static_cast<uint32_t>(t));
      traffic.push_back(Submit(*engine, Request(prompt, 30), &beside[t]));
    }
    EXPECT_EQ(run(i), expected) << i;
    for (const GenerationId id : traffic) engine->Wait(id);
  }
}

// Mean log-probability of a text under some activation type.
double MeanLogprob(const std::string& activations, const std::vector<int32_t>& text) {
  EngineOptions options = Options();
  options.activations = activations;
  const auto engine = Open(options);
  GenerationRequest request{.prompt = text, .max_tokens = 1};
  request.prompt_logprobs = 0;
  double sum = 0;
  std::string why;
  engine->Wait(engine->Submit(
      request,
      [&](const Output& output) {
        for (const PromptLogprob& entry : output.prompt_logprobs) sum += static_cast<double>(entry.logprob);
      },
      &why));
  return sum / static_cast<double>(text.size() - 1);
}

// There is one cache format, the checkpoint's; what can be set is the rounding of activations.
TEST(EngineCasesA, A35_NumericOptionsAreGoodOrRefused) {
  std::string why;
  for (const char* unknown : {"int3", "fp4", ""}) {
    EngineOptions options = Options();
    options.activations = unknown;
    EXPECT_EQ(Engine::Open(options, &why), nullptr);
    EXPECT_NE(why.find(std::string("\"") + unknown + "\""), std::string::npos) << why;
  }
  // A text in the model's own words: what it writes itself.
  GenerationRequest story{.prompt = Open(Options())->Tokenize("Once upon a time"), .max_tokens = g_scale == 1 ? 400 : 1900,
                          .ignore_eos = true, .temperature = 1, .seed = 35};
  std::vector<int32_t> text = story.prompt;
  const Answer answer = Ref(story);
  text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
  const double exact = MeanLogprob("fp32", text);
  // Roundings of inputs cost a little perplexity on so small a model, and no more.
  EXPECT_NEAR(MeanLogprob("bf16", text), exact, 0.02);
  EXPECT_NEAR(MeanLogprob("fp8", text), exact, 0.15);
}

TEST(EngineCasesA, A37_PromptsAsLargeAsTheCache) {
  EngineOptions options = Options(1024);
  options.requests_running_max = 2;
  options.step_rows_max = 4096;
  options.prefill_rows_max = 4096;
  options.snapshot_share = 0;
  SetLeastMemory(&options);
  const auto engine = Open(options);
  ASSERT_EQ(engine->Stats().blocks, 8);
  for (const size_t prompt : {512, 920, 1023}) {
    const Answer answer = RunOne(*engine, Request(N(prompt), 1));
    EXPECT_EQ(answer, Ref(Request(N(prompt), 1))) << prompt;
    EXPECT_EQ(answer.reason, FinishReason::kLength) << answer.error;
  }
  std::string why;
  EXPECT_EQ(engine->Submit(Request(N(1130), 1), nullptr, &why), 0u);
  EXPECT_NE(why.find("prompt"), std::string::npos) << why;
  ExpectAllFree(*engine);
}

TEST(EngineCasesA, A38_MixedLoadStaysRight) {
  // A third of the prompts share prefixes; a tenth of the requests is cancelled.
  constexpr size_t kKinds = 12;
  const auto shared = N(700, 99);
  std::vector<GenerationRequest> kinds;
  std::mt19937 random(38);
  for (uint32_t i = 0; i < kKinds; ++i) {
    std::vector<int32_t> prompt;
    if (i % 3 == 0) prompt.assign(shared.begin(), shared.begin() + static_cast<std::ptrdiff_t>(100 + random() % 600));
    const auto own = N(5 + random() % 300, i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    kinds.push_back(Request(std::move(prompt), 1 + static_cast<int64_t>(random() % 30)));
  }
  std::vector<Answer> expected;
  for (const GenerationRequest& kind : kinds) expected.push_back(Ref(kind));
  EngineOptions options = Options();
  options.kv_memory_bytes = 36 << 20;
  options.drafts = "auto";
  const auto engine = Open(options);
  std::vector<std::thread> clients;
  std::atomic<int> wrong{0}, ended{0};
  for (uint32_t client = 0; client < 9; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 choose(client);
      for (int round = 0; round < 4 * g_scale; ++round) {
        const size_t kind = choose() % kKinds;
        Answer answer;
        const GenerationId id = Submit(*engine, kinds[kind], &answer);
        const bool cancel = choose() % 10 == 0;
        if (cancel) engine->Cancel(id);
        engine->Wait(id);
        ++ended;
        if (!cancel && !(answer == expected[kind])) ++wrong;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(ended, 36 * g_scale);
  ExpectAllFree(*engine);
}

TEST(EngineCasesA, A44_SeveralPrefillsInOneStep) {
  EngineOptions options = Options();
  options.step_rows_max = g_scale == 1 ? 2600 : 6000;  // all of them
  options.kv_memory_bytes = g_scale == 1 ? 192 << 20 : 512 << 20;
  const auto engine = Open(options);
  std::mt19937 random(44);
  for (const size_t n : g_scale == 1 ? std::vector<size_t>{2, 6} : std::vector<size_t>{2, 3, 4, 5, 6}) {
    std::vector<GenerationRequest> requests;
    for (size_t i = 0; i < n; ++i) {
      const size_t length = g_scale == 1 ? 100 + random() % 300 : 200 + random() % 700;
      requests.push_back(Request(N(length, static_cast<uint32_t>(i)), 3));
    }
    std::vector<Answer> expected;
    for (const GenerationRequest& request : requests) expected.push_back(Ref(request));
    for (int order = 0; order < 2; ++order) {
      for (GenerationRequest& request : requests) request.cache_salt = std::to_string(n) + "/" + std::to_string(order);
      const std::vector<Answer> answers = RunAll(*engine, requests);
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(answers[i], expected[i]) << n << " " << i;
      std::reverse(requests.begin(), requests.end());
      std::reverse(expected.begin(), expected.end());
    }
  }
}

}  // namespace
}  // namespace deepinfer::engine

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) deepinfer::engine::g_scale = std::atoi(argv[1]);
  return RUN_ALL_TESTS();
}
