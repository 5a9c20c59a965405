// SPDX-License-Identifier: Apache-2.0
// Property: drafts change nothing but speed. The same requests without drafts, with every number of drafts, with as many as
// pay, and with drafts that an adversary made, alone and in crowds, on tiny caches and warm prefixes: every token and
// log-probability is bit-equal. Tests that carry a number hold the case of that number.
//   engine_drafts_test [full [BACKEND]]      (tests/long.sh)
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "core/temporary_directory.h"
#include "engine/batch_engine.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/engine/least_memory.h"
#include "tests/engine/soak.h"

namespace deepinfer {
namespace {

using engine::BatchEngine;
using engine::ChoiceSettings;
using engine::Drafts;
using namespace soak;

bool g_full = false;
constexpr int kBlock = 5;

EngineOptions DraftOptions(const std::string& drafts) {
  EngineOptions options = Options();
  options.drafts = drafts;
  options.own_thread = false;
  return options;
}

std::vector<int32_t> N(size_t k, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(k);
  for (int32_t& id : ids) id = static_cast<int32_t>(3 + random() % 8000);
  return ids;
}

// What plain decoding answers, so that an adversary knows what is right: by (seed, choice), positions from the prompt on.
class Oracle {
 public:
  void Add(const GenerationRequest& request, const Answers& answers) {
    for (size_t c = 0; c < answers.size(); ++c) {
      truth_[{*request.seed, static_cast<uint32_t>(c)}] = {static_cast<int64_t>(request.prompt.size()), answers[c].tokens};
    }
  }
  // The token at `position`; -1 behind the end.
  int32_t At(const ChoiceSettings& choice, int64_t position) const {
    const auto& [begin, tokens] = truth_.at({choice.sampling.seed, choice.sampling.choice});
    const int64_t at = position - begin;
    return at < static_cast<int64_t>(tokens.size()) ? tokens[static_cast<size_t>(at)] : -1;
  }
  // Drafts behind `position`: draft j is right if bit j of `pattern` is set.
  std::vector<int32_t> Drafts(const ChoiceSettings& choice, int64_t position, int count, unsigned pattern) const {
    std::vector<int32_t> drafts;
    for (int j = 0; j < count; ++j) {
      const int32_t right = At(choice, position + 1 + j);
      if (right < 0) break;
      drafts.push_back((pattern >> j & 1) != 0 ? right : (right + 1) % 8000);
    }
    return drafts;
  }

 private:
  std::map<std::pair<uint64_t, uint32_t>, std::pair<int64_t, std::vector<int32_t>>> truth_;
};

struct Soak {
  std::vector<GenerationRequest> requests;
  std::vector<Answers> expected;  // without drafts, alone
  Oracle oracle;
};

const Soak& TheSoak() {
  static const Soak soak = [] {
    Soak s;
    s.requests = MakeRequests(g_full ? 60 : 14, ReplaySetting::kExact);
    auto alone = s.requests;
    for (size_t i = 0; i < alone.size(); ++i) alone[i].cache_salt = std::to_string(i);
    EngineOptions options = DraftOptions("off");
    options.own_thread = true;
    s.expected = RunAll(*Open(options), alone, Order(alone.size(), 0), /*one_by_one=*/true);
    for (size_t i = 0; i < s.requests.size(); ++i) s.oracle.Add(s.requests[i], s.expected[i]);
    return s;
  }();
  return soak;
}

TEST(Drafts, EveryNumberOfDraftsGivesTheSameBits) {
  const Soak& soak = TheSoak();
  for (const std::string drafts : {"1", "2", "3", "4", "5", "auto"}) {
    if (!g_full && (drafts == "2" || drafts == "4")) continue;
    const auto engine = OpenBatch(DraftOptions(drafts));
    ExpectEqual(RunByHand(*engine, soak.requests, Order(soak.requests.size(), 3)), soak.expected, "drafts " + drafts);
    const EngineStats stats = engine->Stats();
    EXPECT_GT(Sum(stats.drafts_verified), 0) << drafts;
    EXPECT_GT(Sum(stats.drafts_accepted), 0) << drafts;
    EXPECT_EQ(engine->FindViolation(), "");
    if (drafts != "3") continue;  // once more on prefixes that are cached now, on two threads
    ExpectEqual(RunByHand(*engine, soak.requests, Order(soak.requests.size(), 4)), soak.expected, "warm");
    EXPECT_GT(engine->Stats().cached_tokens, 0);
  }
}

TEST(Drafts, RequestsMayDiffer) {
  const Soak& soak = TheSoak();
  auto requests = soak.requests;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % 7 != 6) requests[i].drafts = static_cast<int>(i % 7);
  }
  EngineOptions options = DraftOptions("auto");
  options.own_thread = true;
  ExpectEqual(RunAll(*Open(options), requests, Order(requests.size(), 9), false, 5), soak.expected, "mixed");
}

TEST(Drafts, AdversariesChangeNothing) {
  const Soak& soak = TheSoak();
  std::mt19937 random(7);
  const std::vector<std::pair<std::string, engine::StepExecutor::DraftsFn>> adversaries = {
      {"always wrong", [&](const auto& c, int64_t p, auto* d) { d->tokens = soak.oracle.Drafts(c, p, kBlock, 0); }},
      {"always right", [&](const auto& c, int64_t p, auto* d) { d->tokens = soak.oracle.Drafts(c, p, kBlock, ~0U); }},
      {"right, then wrong", [&](const auto& c, int64_t p, auto* d) { d->tokens = soak.oracle.Drafts(c, p, kBlock, (1U << p % 6) - 1); }},
      {"any pattern, any length",
       [&](const auto& c, int64_t p, auto* d) {
         const auto count = static_cast<int>(random() % 6);
         d->tokens = soak.oracle.Drafts(c, p, count, static_cast<unsigned>(random()));
       }},
  };
  for (const auto& [name, adversary] : adversaries) {
    const auto engine = OpenBatch(DraftOptions("5"));
    engine->set_drafts_fn(adversary);
    ExpectEqual(RunByHand(*engine, soak.requests, Order(soak.requests.size(), 6)), soak.expected, name);
    const EngineStats stats = engine->Stats();
    if (name == "always wrong") {
      EXPECT_EQ(Sum(stats.drafts_accepted), 0);
    }
    if (name == "always right") {
      EXPECT_GT(Sum(stats.drafts_accepted), Sum(stats.drafts_verified) * 9 / 10);
    }
  }
}

// With the least memory that an engine starts with: preemption in the middle of blocks, and resuming.
TEST(Drafts, TinyCachesChangeNothing) {
  const Soak& soak = TheSoak();
  int64_t preemptions = 0;
  for (const uint32_t seed : {5U, 6U}) {
    EngineOptions options = DraftOptions("5");
    options.context_max = 1100;
    options.requests_running_max = 8;
    options.snapshot_share = 0.02;
    SetLeastMemory(&options);
    const auto engine = OpenBatch(options);
    std::mt19937 random(seed);
    engine->set_drafts_fn([&](const ChoiceSettings& c, int64_t p, Drafts* drafts) {
      if (random() % 3 == 0) return;
      const auto pattern = static_cast<unsigned>(random() | random());
      drafts->tokens = soak.oracle.Drafts(c, p, static_cast<int>(random() % 6), pattern);
    });
    ExpectEqual(RunByHand(*engine, soak.requests, Order(soak.requests.size(), seed)), soak.expected, "tiny cache");
    preemptions += engine->Stats().preemptions;
    std::printf("seed %u: %ld preemptions\n", seed, engine->Stats().preemptions);
    EXPECT_EQ(engine->FindViolation(), "");
  }
  EXPECT_GT(preemptions, 0);
}

// One request alone, stepped by hand.
Answer Alone(BatchEngine& engine, const GenerationRequest& request) {
  Answers answers;
  Submit(engine, request, &answers);
  while (engine.Step()) {
  }
  return answers[0];
}

// Bias and filters shape drafts as they shape tokens: where one of them leaves one token alone, drafts are as good as greedy ones.
TEST(Drafts, AreDrawnByTheRequestsSettings) {
  const auto engine = OpenBatch(DraftOptions("5"));
  const auto stand = [&](GenerationRequest request) {
    request.prompt = {0, 1169, 731, 261, 566};
    request.max_tokens = 40;
    request.ignore_eos = true;
    request.seed = 5;
    const EngineStats before = engine->Stats();
    Alone(*engine, request);
    const EngineStats after = engine->Stats();
    const auto verified = static_cast<double>(Sum(after.drafts_verified) - Sum(before.drafts_verified));
    EXPECT_GT(verified, 0);
    return static_cast<double>(Sum(after.drafts_accepted) - Sum(before.drafts_accepted)) / verified;
  };
  const double greedy = stand({}), warm = stand({.temperature = 1.5F});
  EXPECT_LT(warm, greedy);
  EXPECT_EQ(stand({.temperature = 1.5F, .top_k = 1}), greedy);
  EXPECT_EQ(stand({.temperature = 1.5F, .top_p = 1e-6F}), greedy);
  EXPECT_EQ(stand({.temperature = 1.5F, .min_p = 1}), greedy);
  EXPECT_EQ(stand({.temperature = 1, .logit_bias = {{77, 100.0F}}}), 1);
}

// On a device that draws, blocks whose drafts the host has a look at (those under grammars) run between the queueing of the others'
// drafts and the look at them.
TEST(Drafts, OfFreeRequestsAreTheSameBesideConstrainedOnes) {
  EngineOptions options = DraftOptions("3");
  if (engine::test_backend == "cpu") options.backend = "reference";
  using Noted = std::map<std::pair<uint64_t, int64_t>, std::vector<int32_t>>;  // by seed and position
  const auto drafts_beside = [&](uint64_t constrained) {
    constexpr uint64_t kFree = 2;
    const auto engine = OpenBatch(options);
    Noted noted;
    engine->set_drafts_fn([&](const ChoiceSettings& c, int64_t position, Drafts* drafts) {
      if (c.sampling.seed < kFree) noted[{c.sampling.seed, position}] = drafts->tokens;
    });
    std::vector<GenerationRequest> requests;
    for (uint64_t i = 0; i < kFree + constrained; ++i) {
      GenerationRequest request{.prompt = {0, 1169, 731, 261, 566}, .max_tokens = 16, .ignore_eos = true, .temperature = 0.5F, .seed = i};
      if (i >= kFree) request.grammar_prompt_tokens = kWithGrammar;
      requests.push_back(std::move(request));
    }
    RunByHand(*engine, requests, Order(requests.size(), 0));
    return noted;
  };
  const Noted alone = drafts_beside(0);
  EXPECT_GT(alone.size(), 6u);
  for (const uint64_t constrained : {1, 6}) EXPECT_EQ(drafts_beside(constrained), alone) << constrained;
}

TEST(Drafts, A04_EveryPatternOfRightAndWrong) {
  GenerationRequest request{.prompt = N(40), .max_tokens = g_full ? 300 : 100, .ignore_eos = true, .logprobs = 1};
  request.seed = 1;
  const Answer expected = Alone(*OpenBatch(DraftOptions("off")), request);
  Oracle oracle;
  oracle.Add(request, {expected});
  for (const int depth : {1, 2, 4, 5}) {
    const auto engine = OpenBatch(DraftOptions(std::to_string(depth)));
    unsigned pattern = 0;
    engine->set_drafts_fn([&](const ChoiceSettings& c, int64_t p, Drafts* drafts) {
      drafts->tokens = oracle.Drafts(c, p, depth, pattern);
    });
    for (pattern = 0; pattern < (1U << depth); pattern += g_full || depth < 4 ? 1 : 5) {
      EXPECT_EQ(Alone(*engine, request), expected) << "depth " << depth << ", pattern " << pattern;
    }
  }
  // Control tokens have the ids below 3 and from 8064 on.
  const auto control = [](int32_t token) { return token < 3 || token >= 8064; };
  EXPECT_EQ(std::count_if(expected.tokens.begin(), expected.tokens.end(), control), 0);
}

TEST(Drafts, A06_PastTheWindowsWrap) {
  GenerationRequest request{.prompt = N(10), .max_tokens = g_full ? 2500 : 600, .ignore_eos = true, .logprobs = 0};
  request.seed = 1;
  EngineOptions options = DraftOptions("off");
  options.context_max = 4096;
  const Answer expected = Alone(*OpenBatch(options), request);
  options.drafts = "5";
  const auto engine = OpenBatch(options);
  Answers answers;
  Submit(*engine, request, &answers);
  std::vector<double> rates;  // accepted drafts a step, for each 128 tokens
  EngineStats before = engine->Stats();
  for (size_t border = 128; engine->Step();) {
    if (answers[0].tokens.size() < border) continue;
    const EngineStats now = engine->Stats();
    rates.push_back(static_cast<double>(Sum(now.drafts_accepted) - Sum(before.drafts_accepted)) /
                    static_cast<double>(now.steps - before.steps));
    before = now;
    border += 128;
  }
  EXPECT_EQ(answers[0], expected);
  std::string log;
  for (const double rate : rates) log += fmt::format(" {:.2f}", rate);
  std::printf("accepted drafts a step, for each 128 tokens:%s\n", log.c_str());
  // The text soon repeats itself; were the windows wrong behind their wrap, few drafts would be right.
  ASSERT_GE(rates.size(), 4u);
  double later = 0;
  for (size_t i = rates.size() / 2; i < rates.size(); ++i) later += rates[i] / static_cast<double>(rates.size() - rates.size() / 2);
  EXPECT_GT(later, 0.7 * (rates[0] + rates[1]) / 2);
}

// The bundled model's stages are window-only layers 0 and 1; layers of these numbers in the trunk are window-only too, but
// in the model of the golden vectors layers 1 to 3 are compressed (dspark_golden_test compares its draft's logits).
TEST(Drafts, A07_StagesHaveSettingsOfTheirOwn) {
  for (const std::string model : {"models/deepseek-v41-tiny", "tests/golden/dspark"}) {
    EngineOptions options = DraftOptions("off");
    options.model_directory = std::string(DI_SOURCE_DIR) + "/" + model;
    options.context_max = 256;
    std::vector<int32_t> prompt = N(20);
    for (int32_t& token : prompt) token %= 100;
    GenerationRequest request{.prompt = prompt, .max_tokens = 200, .ignore_eos = true, .logprobs = 1};
    const Answer expected = Alone(*OpenBatch(options), request);
    options.drafts = "5";
    const auto engine = OpenBatch(options);
    EXPECT_EQ(Alone(*engine, request), expected) << model;
    EXPECT_GT(Sum(engine->Stats().drafts_verified), 0) << model;
    if (model.starts_with("models")) {
      EXPECT_GT(Sum(engine->Stats().drafts_accepted), 0);
    }
  }
}

TEST(Drafts, A16_PreemptionAndResume) {
  std::vector<GenerationRequest> requests;
  for (uint32_t i = 0; i < 6; ++i) {
    requests.push_back({.prompt = N(600, i), .max_tokens = g_full ? 400 : 100, .ignore_eos = true, .logprobs = 0});
  }
  EngineOptions options = DraftOptions("off");
  options.context_max = 1024;
  options.requests_running_max = 6;
  std::vector<Answers> expected;
  for (const GenerationRequest& request : requests) expected.push_back({Alone(*OpenBatch(options), request)});
  // Room for a little more than the longest request.
  options.drafts = "5";
  options.snapshot_share = 0.02;
  SetLeastMemory(&options);
  options.kv_memory_bytes += 1 << 18;
  const auto engine = OpenBatch(options);
  std::vector<int64_t> counts(requests.size());
  ExpectEqual(RunByHand(*engine, requests, Order(requests.size(), 0)), expected, "preempted");
  EXPECT_GT(engine->Stats().preemptions, 0);
  EXPECT_EQ(engine->Stats().answer_tokens, static_cast<int64_t>(requests.size()) * requests[0].max_tokens);
}

TEST(Drafts, A17_NoPageIsLost) {
  EngineOptions options = DraftOptions("5");
  options.context_max = 1024;
  options.snapshot_share = 0;
  const auto engine = OpenBatch(options);
  const auto free_pages = [&] {
    return std::pair(engine->cache().page_pool(kv::kEarly).num_available(), engine->cache().page_pool(kv::kLate).num_available());
  };
  const auto at_start = free_pages();
  const int64_t blocks = engine->Stats().blocks_available;
  std::mt19937 random(3);
  std::vector<Answers> answers(g_full ? 500 : 60);
  std::vector<GenerationId> open;
  for (size_t i = 0; i < answers.size(); ++i) {
    const std::vector<int32_t> prompt = N(1 + random() % 600, static_cast<uint32_t>(i));
    open.push_back(Submit(*engine, {.prompt = prompt, .max_tokens = 30, .ignore_eos = true}, &answers[i]));
    for (int steps = 0; steps < 3; ++steps) engine->Step();
    if (random() % 10 == 0) engine->Cancel(open[random() % open.size()]);
    for (int32_t slot = 0; slot < options.requests_running_max; ++slot) {
      // Decoding: the window, the page in hand, and one while worst cases in flight cross a page; a prompt's chunk more.
      for (const auto group : {kv::kEarly, kv::kLate}) {
        EXPECT_LE(engine->cache().pages(group).ids(slot).size(), 3u + 2u * 256u / 128u);
      }
    }
  }
  while (engine->Step()) {
  }
  EXPECT_EQ(free_pages(), at_start);
  EXPECT_EQ(engine->Stats().blocks_available, blocks);
  EXPECT_EQ(engine->FindViolation(), "");
}

TEST(Drafts, A36_TheDistributionIsThatOfPlainDecoding) {
  const auto off = OpenBatch(DraftOptions("off"));
  const auto on = OpenBatch(DraftOptions("5"));
  const auto bad = OpenBatch(DraftOptions("5"));
  bad->set_drafts_fn([](const ChoiceSettings&, int64_t, Drafts* drafts) { drafts->tokens.assign(kBlock, 77); });
  // Greedy, long; and sampled, the first tokens of many seeds: equal tokens for each seed are more than an equal distribution.
  std::vector<GenerationRequest> requests;
  for (uint32_t i = 0; i < (g_full ? 20 : 4); ++i) {
    requests.push_back({.prompt = N(20 + 7 * i, i), .max_tokens = g_full ? 500 : 80, .ignore_eos = true, .logprobs = 0});
  }
  for (uint32_t i = 0; i < (g_full ? 20000 : 150); ++i) {
    GenerationRequest request{.prompt = N(12), .max_tokens = 4, .ignore_eos = true, .temperature = i % 2 == 0 ? 1.0F : 0.6F};
    if (i % 2 == 1) request.top_p = 0.9F, request.top_k = 20;
    request.seed = i;
    requests.push_back(request);
  }
  for (size_t begin = 0; begin < requests.size(); begin += 500) {
    const std::vector<GenerationRequest> some(requests.begin() + static_cast<std::ptrdiff_t>(begin),
                                              requests.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 500, requests.size())));
    const auto expected = RunByHand(*off, some, Order(some.size(), 0));
    ExpectEqual(RunByHand(*on, some, Order(some.size(), 1)), expected, "drafts");
    ExpectEqual(RunByHand(*bad, some, Order(some.size(), 2)), expected, "bad drafts");
  }
}

TEST(Drafts, A41_NoMoreDraftsThanABlockHas) {
  const std::map<std::string, std::string> impossible = {
      {"7", "drafts: expected 0..5, found 7"}, {"-1", "expected auto"}, {"many", "expected auto"}, {"", "expected auto"}};
  for (const auto& [drafts, what] : impossible) {
    std::string why;
    EXPECT_EQ(Engine::Open(DraftOptions(drafts), &why), nullptr) << drafts;
    EXPECT_NE(why.find(what), std::string::npos) << why;
  }
  const auto engine = OpenBatch(DraftOptions("auto"));
  std::string why;
  EXPECT_EQ(engine->Submit({.prompt = {5}, .drafts = 6}, nullptr, &why), 0u);
  EXPECT_NE(why.find("drafts: expected 0..5"), std::string::npos) << why;
  const auto off = OpenBatch(DraftOptions("off"));
  EXPECT_EQ(off->Submit({.prompt = {5}, .drafts = 1}, nullptr, &why), 0u);
  EXPECT_TRUE(off->Stats().drafts_verified.empty());
}

// Drafts behind the place where the survival, as the confidences have it, falls below a threshold are not verified: whatever
// it is, the tokens are those of plain decoding. Requests of one step then verify different numbers.
TEST(Drafts, A41_AnyThresholdOfConfidence) {
  const std::vector<std::string> texts = {"Once upon a time there was", "The king said that", "One, two, three,", "In the garden"};
  for (const float temperature : {0.0F, 1.0F}) {
    const auto off = OpenBatch(DraftOptions("off"));
    std::vector<GenerationRequest> requests;
    for (size_t i = 0; i < texts.size(); ++i) {
      requests.push_back({.prompt = off->Tokenize(texts[i]), .max_tokens = g_full ? 300 : 40, .ignore_eos = true, .logprobs = 1,
                          .temperature = temperature});
      requests.back().seed = i;
    }
    std::vector<Answers> expected;
    for (const GenerationRequest& request : requests) expected.push_back({Alone(*off, request)});
    int64_t verified_before = INT64_MAX;
    for (const double threshold : {0.0, 0.3, 0.7, 1.0}) {
      const auto engine = OpenBatch(DraftOptions("5"));
      std::map<int64_t, std::set<size_t>> lengths;  // by step
      engine->set_drafts_fn([&](const ChoiceSettings&, int64_t, Drafts* drafts) {
        double survival = 1;
        size_t keep = 0;
        for (; keep < drafts->tokens.size(); ++keep) {
          survival /= 1 + std::exp(-static_cast<double>(drafts->confidence[keep]));
          if (survival < threshold) break;
        }
        EXPECT_TRUE(threshold > 0 || keep == drafts->tokens.size());
        EXPECT_TRUE(threshold < 1 || keep == 0);
        drafts->tokens.resize(keep);
        lengths[engine->Stats().steps].insert(keep);
      });
      ExpectEqual(RunByHand(*engine, requests, Order(requests.size(), 0)), expected, fmt::format("threshold {}", threshold));
      const int64_t verified = Sum(engine->Stats().drafts_verified);
      EXPECT_LT(verified, verified_before) << threshold;
      verified_before = verified;
      if (threshold == 0.3) {
        EXPECT_TRUE(std::any_of(lengths.begin(), lengths.end(), [](const auto& step) { return step.second.size() > 2; }));
      }
    }
    EXPECT_EQ(verified_before, 0);  // no survival is certain
  }
}

// The small heads in other types, a tensor that is missing or misshapen: drafts are off with a warning that names it, and
// asking for them is an error. Whole, the same checkpoint drafts.
TEST(Drafts, A40_DraftsThatCannotBeSaySo) {
  const auto golden = checkpoint::CheckpointFiles::Golden("dspark");
  const std::string head = "mtp.2.markov_head.head.weight", norm = "mtp.0.main_norm.weight";
  const auto run = [&](const checkpoint::CheckpointFiles& files, const std::string& named) {
    const core::TemporaryDirectory directory;
    files.Write(directory.path());
    const std::string tokenizer = std::string(DI_SOURCE_DIR) + "/tests/golden/dspark/tokenizer.json";
    std::filesystem::copy_file(tokenizer, directory.path() + "/tokenizer.json");
    EngineOptions options = DraftOptions("auto");
    options.model_directory = directory.path();
    options.context_max = 128;
    const auto engine = OpenBatch(options);
    const GenerationRequest request{.prompt = {1, 2, 3}, .max_tokens = 60, .ignore_eos = true};
    EXPECT_EQ(Alone(*engine, request).tokens.size(), 60u);
    EXPECT_EQ(engine->Stats().drafts_made > 0, named.empty()) << named;
    std::string warnings, why;
    for (const std::string& warning : engine->warnings()) warnings += warning + "\n";
    EXPECT_EQ(warnings.find("draft") != std::string::npos, !named.empty()) << warnings;
    EXPECT_NE(warnings.find(named), std::string::npos) << warnings;
    for (const std::string drafts : {"on", "3"}) {
      options.drafts = drafts;
      EXPECT_EQ(Engine::Open(options, &why) != nullptr, named.empty()) << why;
      EXPECT_NE(why.find(named), std::string::npos) << why;
    }
  };
  run(golden, "");
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    checkpoint::CheckpointFiles files = golden;
    checkpoint::TensorData& tensor = files.tensors.at(head);
    tensor.dtype = dtype;
    if (dtype == DType::kF32) tensor.bytes += tensor.bytes;
    run(files, head);
  }
  checkpoint::CheckpointFiles files = golden;
  files.tensors.erase(norm);
  run(files, norm);
  files = golden;
  files.tensors.at(norm).shape = Shape({2, golden.tensors.at(norm).shape.dims()[0] / 2});
  run(files, norm);
}

// Twelve clients that come and go for a good while, long prompts in the middle of others' answers: no answer turns into
// something else, control tokens least of all: each is what the request gets alone without drafts.
TEST(Drafts, A46_NoCollapseUnderLastingLoad) {
  std::vector<GenerationRequest> requests;  // of different lengths; they come again and again
  for (uint32_t i = 0; i < 12; ++i) {
    GenerationRequest request{.prompt = N(i % 4 == 3 ? 700 : 10 + 15 * i, i), .max_tokens = 30 + 7 * i, .ignore_eos = true, .logprobs = 0};
    if (i % 2 == 1) request.temperature = 0.7F;
    request.seed = i;
    requests.push_back(request);
  }
  const auto off = OpenBatch(DraftOptions("off"));
  std::vector<Answers> expected;
  for (const GenerationRequest& request : requests) expected.push_back({Alone(*off, request)});
  const auto engine = OpenBatch(DraftOptions("5"));
  std::mt19937 random(46);
  std::vector<size_t> open(12);
  std::vector<Answers> answers(12);
  const int total = g_full ? 3000 : 36;
  for (int begun = 0; begun < total || engine->Stats().requests_running > 0;) {
    for (size_t client = 0; client < open.size(); ++client) {
      const bool idle = answers[client].empty();
      if (!idle && answers[client][0].reason.empty()) continue;
      if (!idle) {
        ASSERT_EQ(answers[client], expected[open[client]]) << "request " << open[client] << ", " << begun << " begun";
        answers[client].clear();
      }
      if (begun >= total) continue;
      open[client] = random() % requests.size();
      Submit(*engine, requests[open[client]], &answers[client]);
      ++begun;
    }
    if (!engine->Step()) break;
  }
  EXPECT_GT(engine->Stats().drafts_made, 0);
  EXPECT_EQ(engine->FindViolation(), "");
}

// End tokens that come too early are not drafted, stop strings end the text in the middle of a block.
TEST(Drafts, C18_MinimumAndStopsInsideABlock) {
  const auto off = OpenBatch(DraftOptions("off"));
  const auto on = OpenBatch(DraftOptions("5"));
  GenerationRequest request{.prompt = {0, 1169, 731, 261, 566}, .max_tokens = 40, .logprobs = 1};
  const Answer free = Alone(*off, request);
  for (size_t place = 2; place < 8; ++place) {
    for (const int64_t minimum : {0, 20}) {
      GenerationRequest cut = request;
      cut.min_tokens = minimum;
      cut.stop_token_ids = {free.tokens[place], 1};
      const Answer expected = Alone(*off, cut);
      EXPECT_GE(static_cast<int64_t>(expected.tokens.size()), minimum);
      EXPECT_EQ(Alone(*on, cut), expected) << place << " " << minimum;
    }
  }
  for (const std::string stop : {" little", "re", " named", "."}) {
    GenerationRequest cut = request;
    cut.stop = {stop};
    EXPECT_EQ(Alone(*on, cut), Alone(*off, cut)) << stop;
  }
  std::string why;
  EXPECT_EQ(on->Submit({.prompt = {5}, .max_tokens = 3, .min_tokens = 4}, nullptr, &why), 0u);
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 2) deepinfer::engine::test_backend = argv[2];
  deepinfer::g_full = argc > 1 && std::string(argv[1]) == "full";
  if (const int skipped = deepinfer::engine::SkipWithoutBackend(); skipped != 0) return skipped;
  return RUN_ALL_TESTS();
}
