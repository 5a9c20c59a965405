// SPDX-License-Identifier: Apache-2.0
// Property: drafts that are judged by chance (rejection, block) leave the distribution of an answer as plain decoding has
// it: whole sequences of the engine's first tokens, two samples, chi-square at p > 0.001 for each setting. With a fixed
// number of drafts an answer is a function of its request, bit for bit: alone or in a crowd, on cached prefixes, in other
// chunks, preempted and resumed. Greedy answers are those of plain decoding.
//   engine_verification_test [full [BACKEND]]      (tests/long.sh)
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "engine/batch_engine.h"
#include "tests/engine/least_memory.h"
#include "tests/engine/soak.h"

namespace deepinfer {
namespace {

using engine::BatchEngine;
using engine::ChoiceSettings;
using namespace soak;

bool g_full = false;
const std::vector<std::string> kRules = {"rejection", "block"};

EngineOptions WithRule(const std::string& rule, const std::string& drafts) {
  EngineOptions options = Options();
  options.drafts = drafts;
  options.verification = rule;
  options.own_thread = false;
  return options;
}

// P(chi-square with `df` degrees of freedom >= x), by Wilson and Hilferty's cube root.
double UpperTail(double x, double df) {
  const double variance = 2 / (9 * df);
  return 0.5 * std::erfc((std::cbrt(x / df) - (1 - variance)) / std::sqrt(2 * variance));
}

using Counts = std::map<std::vector<int32_t>, int>;

// Whether two samples are of one distribution; sequences that both together have fewer than 10 times count as one.
double PValue(const Counts& a, const Counts& b) {
  std::map<std::vector<int32_t>, std::pair<double, double>> cells;
  double total_a = 0, total_b = 0;
  for (const auto& [key, count] : a) cells[key].first = count, total_a += count;
  for (const auto& [key, count] : b) cells[key].second = count, total_b += count;
  std::pair<double, double> rare;
  double chi_square = 0, df = -1;
  const auto add = [&](std::pair<double, double> cell) {
    const double difference = cell.first * std::sqrt(total_b / total_a) - cell.second * std::sqrt(total_a / total_b);
    chi_square += difference * difference / (cell.first + cell.second);
    ++df;
  };
  for (const auto& [key, cell] : cells) {
    if (cell.first + cell.second >= 10) {
      add(cell);
    } else {
      rare.first += cell.first;
      rare.second += cell.second;
    }
  }
  if (rare.first + rare.second > 0) add(rare);
  return df > 0 ? UpperTail(chi_square, df) : 1;
}

constexpr int kChoices = 16;  // of a request: they share its prompt
constexpr size_t kLookedAt = 4;  // first tokens of an answer; more are drawn, so that whole blocks are judged

struct Setting {
  std::string name;
  GenerationRequest request;
};

// Sequences that come often enough to be counted, and drafts of which about half stand.
std::vector<Setting> Settings(const Engine& engine) {
  const GenerationRequest prose{.prompt = engine.Tokenize("The old captain had not spoken for an hour; he sat with his back to"),
                                .max_tokens = 6,
                                .ignore_eos = true};
  std::vector<Setting> settings(4, {"", prose});
  settings[0].name = "temperature 0.5";
  settings[0].request.temperature = 0.5F;
  settings[1].name = "top-p 0.5";
  settings[1].request.temperature = 0.9F;
  settings[1].request.top_p = 0.5F;
  settings[2].name = "penalties";
  settings[2].request.temperature = 0.8F;
  settings[2].request.top_k = 4;
  settings[2].request.repetition_penalty = 1.4F;
  settings[2].request.frequency_penalty = 0.7F;
  settings[3].name = "grammar";
  settings[3].request.temperature = 0.8F;
  settings[3].request.grammar_prompt_tokens = kWithGrammar;
  return settings;
}

Counts Sample(BatchEngine& engine, GenerationRequest request, int draws, uint64_t first_seed) {
  request.choices = kChoices;
  std::vector<GenerationRequest> requests;
  for (int d = 0; d < draws; d += kChoices) {
    request.seed = first_seed + static_cast<uint64_t>(d);
    requests.push_back(request);
  }
  Counts counts;
  for (size_t begin = 0; begin < requests.size(); begin += 32) {
    const auto end = std::min(begin + 32, requests.size());
    const std::vector<GenerationRequest> some(requests.begin() + static_cast<std::ptrdiff_t>(begin),
                                              requests.begin() + static_cast<std::ptrdiff_t>(end));
    for (const Answers& answers : RunByHand(engine, some, Order(some.size(), 0))) {
      for (const Answer& answer : answers) {
        const auto length = static_cast<std::ptrdiff_t>(std::min(kLookedAt, answer.tokens.size()));
        ++counts[{answer.tokens.begin(), answer.tokens.begin() + length}];
      }
    }
  }
  return counts;
}

// Answers of a sample. Two samples of 192 differ at p < 0.001, more often than not, where chances are off by three fifths; two
// of 3,000, where they are off by a fifth. Smaller errors are for spec/rejection_test.cc.
int NumDraws() { return g_full ? 3000 : 192; }

TEST(Verification, KeepsTheDistribution) {
  const int draws = NumDraws();
  const auto plain = OpenBatch(WithRule("coupled", "off"));
  const std::vector<Setting> settings = Settings(*plain);
  const std::vector<std::string> numbers = {"5", "3", "auto", "1"};
  for (size_t s = 0; s < settings.size(); ++s) {
    const GenerationRequest& request = settings[s].request;
    const Counts expected = Sample(*plain, request, draws, 1'000'000);
    for (size_t run = 0; run < kRules.size() * numbers.size(); ++run) {
      const std::string &rule = kRules[run % 2], &drafts = numbers[run / 2];
      if (!g_full && run != (s == 1 ? 3 : s % 2)) continue;
      const auto engine = OpenBatch(WithRule(rule, drafts));
      const double p = PValue(Sample(*engine, request, draws, 0), expected);
      const EngineStats stats = engine->Stats();
      std::printf("%s, %s, drafts %s: p %.4f, %zu sequences, accepted %ld of %ld\n", settings[s].name.c_str(), rule.c_str(),
                  drafts.c_str(), p, expected.size(), Sum(stats.drafts_accepted), Sum(stats.drafts_verified));
      EXPECT_GT(p, 0.001) << settings[s].name << ", " << rule << ", drafts " << drafts;
      EXPECT_GT(Sum(stats.drafts_accepted), 0) << settings[s].name << ", " << rule << ", drafts " << drafts;
    }
  }
}

// Drafts that nobody would make change nothing, nor does one text, drafted as if it were certain: the one that comes most
// often, where a token too many would show. And the test has eyes: it tells a higher temperature.
TEST(Verification, BadDraftersAreHarmless) {
  const int draws = NumDraws();
  const auto plain = OpenBatch(WithRule("coupled", "off"));
  GenerationRequest request = Settings(*plain)[0].request;
  const Counts expected = Sample(*plain, request, draws, 1'000'000);
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const std::vector<int32_t> usual = std::max_element(expected.begin(), expected.end(), less)->first;
  const auto begin = static_cast<int64_t>(request.prompt.size());
  for (const std::string& rule : kRules) {
    for (const bool absurd : {true, false}) {
      const auto bad = OpenBatch(WithRule(rule, absurd ? "2" : "5"));
      bad->set_drafts_fn([&](const ChoiceSettings&, int64_t position, engine::Drafts* drafts) {
        for (size_t j = 0; j < drafts->tokens.size(); ++j) {
          const int64_t at = position + 1 + static_cast<int64_t>(j);
          const auto place = static_cast<size_t>(at - begin);
          drafts->tokens[j] = absurd || place >= usual.size() ? static_cast<int32_t>(at * 37 % 8000) : usual[place];
        }
      });
      const double p = PValue(Sample(*bad, request, draws, 0), expected);
      std::printf("%s, %s drafts: p %.4f, accepted %ld\n", rule.c_str(), absurd ? "absurd" : "usual", p,
                  Sum(bad->Stats().drafts_accepted));
      EXPECT_GT(p, 0.001) << rule;
      EXPECT_EQ(Sum(bad->Stats().drafts_accepted) > draws / 4, !absurd) << rule;
    }
  }
  request.temperature = 0.7F;
  EXPECT_LT(PValue(Sample(*plain, request, draws, 0), expected), 1e-4);
}

// With no cached prefix, one after the other.
std::vector<Answers> Alone(const std::string& rule, std::vector<GenerationRequest> requests) {
  for (size_t i = 0; i < requests.size(); ++i) requests[i].cache_salt = std::to_string(i);
  EngineOptions options = WithRule(rule, "5");
  options.own_thread = true;
  return RunAll(*Open(options), requests, Order(requests.size(), 0), /*one_by_one=*/true);
}

TEST(Verification, AFixedNumberOfDraftsGivesTheSameBits) {
  const std::vector<GenerationRequest> requests = MakeRequests(g_full ? 60 : 4, ReplaySetting::kExact);
  for (const std::string& rule : kRules) {
    const std::vector<Answers> expected = Alone(rule, requests);
    EngineOptions options = WithRule(rule, "5");
    const auto engine = OpenBatch(options);
    ExpectEqual(RunByHand(*engine, requests, Order(requests.size(), 3)), expected, rule + ", a crowd");
    ExpectEqual(RunByHand(*engine, requests, Order(requests.size(), 4)), expected, rule + ", warm");
    EXPECT_GT(engine->Stats().cached_tokens, 0);
    EXPECT_GT(Sum(engine->Stats().drafts_accepted), 0);
    options.own_thread = true;
    options.prefill_rows_max = 37;
    options.num_threads = 1;
    ExpectEqual(RunAll(*Open(options), requests, Order(requests.size(), 5), false, 5), expected, rule + ", chunks");
  }
}

// Room for one or two of the requests, which grow: preempted in the middle of their blocks, and at borders of pages.
TEST(Verification, PreemptionChangesNoBit) {
  std::vector<GenerationRequest> requests;
  std::mt19937 random(2);
  for (const size_t length : {90, 252, 255}) {
    GenerationRequest request = {.max_tokens = g_full ? 600 : 200, .ignore_eos = true, .logprobs = 0, .temperature = 0.7F};
    for (size_t i = 0; i < length; ++i) request.prompt.push_back(static_cast<int32_t>(3 + random() % 8000));
    request.seed = length;
    requests.push_back(request);
  }
  for (const std::string& rule : kRules) {
    const std::vector<Answers> expected = Alone(rule, requests);
    EngineOptions options = WithRule(rule, "5");
    options.context_max = 1024;
    options.requests_running_max = 6;
    options.snapshot_share = 0.02;
    SetLeastMemory(&options);
    const auto engine = OpenBatch(options);
    ExpectEqual(RunByHand(*engine, requests, Order(requests.size(), 5)), expected, rule + ", tiny cache");
    EXPECT_GT(engine->Stats().preemptions, 0);
    EXPECT_EQ(engine->FindViolation(), "");
  }
}

TEST(Verification, GreedyAnswersAndThoseWithoutDraftsAreThoseOfPlainDecoding) {
  auto requests = MakeRequests(g_full ? 24 : 4, ReplaySetting::kExact);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % 2 == 0) requests[i].temperature = 0;
    if (i % 2 == 1) requests[i].drafts = 0;
  }
  auto plain = requests;
  for (GenerationRequest& request : plain) request.drafts.reset();
  const auto expected = RunByHand(*OpenBatch(WithRule("coupled", "off")), plain, Order(plain.size(), 0));
  for (const std::string& rule : kRules) {
    for (const std::string drafts : {"5", "auto"}) {
      ExpectEqual(RunByHand(*OpenBatch(WithRule(rule, drafts)), requests, Order(requests.size(), 1)), expected, rule + " " + drafts);
    }
  }
}

GenerationRequest Story(uint64_t seed) {
  GenerationRequest request{.prompt = {0, 1169, 731, 261, 566}, .max_tokens = 40, .ignore_eos = true, .logprobs = 1, .temperature = 0.8F};
  request.seed = seed;
  return request;
}

// Log-probabilities are the model's own, whoever chose the token.
TEST(Verification, LogprobsAreOfTheRawLogits) {
  for (const std::string& rule : kRules) {
    const auto engine = OpenBatch(WithRule(rule, "5"));
    GenerationRequest request = Story(3);
    request.logprobs = 0;
    const Answer answer = RunByHand(*engine, {request}, {0})[0][0];
    GenerationRequest forced = request;
    forced.prompt.insert(forced.prompt.end(), answer.tokens.begin(), answer.tokens.end());
    forced.max_tokens = 1;
    forced.prompt_logprobs = 0;
    const std::vector<float> all = RunByHand(*engine, {forced}, {0})[0][0].logprobs;
    ASSERT_GE(all.size(), answer.logprobs.size() + request.prompt.size() - 1);
    // The first output has the answer token's own in front.
    const std::vector<float> own(all.end() - static_cast<std::ptrdiff_t>(answer.logprobs.size()), all.end());
    EXPECT_EQ(own, answer.logprobs) << rule;
  }
}

// Further answers have noise of their own; the first is what a request for one gets.
TEST(Verification, ChoicesAreIndependent) {
  for (const std::string& rule : kRules) {
    const auto engine = OpenBatch(WithRule(rule, "5"));
    GenerationRequest request = Story(4);
    const Answers one = RunByHand(*engine, {request}, {0})[0];
    request.choices = 3;
    const Answers three = RunByHand(*engine, {request}, {0})[0];
    EXPECT_EQ(three[0], one[0]) << rule;
    EXPECT_NE(three[1].tokens, three[0].tokens);
    EXPECT_NE(three[2].tokens, three[1].tokens);
  }
}

// Stop strings cut the answer that would have been; so do stop tokens, token by token, where nothing behind a draft counts.
// A limit of tokens is kept, and an end token that is a draft ends the answer.
TEST(Verification, StopsAndLimitsInsideABlock) {
  for (const std::string& rule : kRules) {
    const auto engine = OpenBatch(WithRule(rule, "5"));
    const auto run = [&](const GenerationRequest& request) { return RunByHand(*engine, {request}, {0})[0][0]; };
    for (uint64_t seed = 0; seed < (g_full ? 20 : 3); ++seed) {
      const Answer free = run(Story(seed));
      ASSERT_EQ(free.tokens.size(), 40u);
      for (const std::string stop : {" little", "re", "."}) {
        GenerationRequest cut = Story(seed);
        cut.stop = {stop};
        const size_t at = free.text.find(stop);
        EXPECT_EQ(run(cut).text, free.text.substr(0, at)) << rule << " " << stop;
      }
      for (const int64_t limit : {1, 2, 3, 5, 7}) {
        GenerationRequest cut = Story(seed);
        cut.max_tokens = limit;
        EXPECT_EQ(static_cast<int64_t>(run(cut).tokens.size()), limit);
      }
      GenerationRequest cut = Story(seed);
      cut.stop_token_ids = {free.tokens[9]};
      const Answer stopped = run(cut);
      ASSERT_FALSE(stopped.tokens.empty());
      if (stopped.reason == "stop") {
        EXPECT_EQ(stopped.tokens.back(), free.tokens[9]);
      }
      if (rule == "rejection") {
        const auto first = std::find(free.tokens.begin(), free.tokens.end(), free.tokens[9]);
        EXPECT_EQ(stopped.tokens, std::vector<int32_t>(free.tokens.begin(), first + 1));
      }
      cut.min_tokens = 20;
      EXPECT_GE(run(cut).tokens.size(), 20u);
    }
  }
}

TEST(Verification, OnlyKnownRules) {
  std::string why;
  EXPECT_EQ(Engine::Open(WithRule("hopeful", "5"), &why), nullptr);
  EXPECT_NE(why.find("expected coupled, rejection or block"), std::string::npos) << why;
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
