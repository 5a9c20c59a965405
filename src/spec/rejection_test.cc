// SPDX-License-Identifier: Apache-2.0
// Property: whatever drafts are offered and by either rule, the tokens that come out follow the target's distribution
// (chi-square over the first three tokens together); the rules accept as much as they should; and a wrong rule is caught by
// the same test.
#include "spec/rejection.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "sampling/sampler.h"
#include "spec/row_choice.h"

namespace deepinfer::spec {
namespace {

constexpr size_t kVocab = 6;
constexpr size_t kTokens = 3;  // looked at
using Row = std::vector<float>;

// A world in which the next token depends on the one before it.
struct World {
  std::vector<Row> target, draft;  // [previous]
};

Row Softmax(std::span<const float> logits, const sampling::SamplingParams& params) {
  Row row(logits.size());
  sampling::Sampler sampler;
  EXPECT_TRUE(sampler.Distribution(params, {.logits = logits}, row));
  return row;
}

// `likeness` 1: drafts are drawn from the target's own distribution; 0: from another one.
World MakeWorld(uint32_t seed, float likeness, const sampling::SamplingParams& target, const sampling::SamplingParams& draft) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1.2f);
  World world;
  for (size_t previous = 0; previous < kVocab; ++previous) {
    std::vector<float> p(kVocab), q(kVocab);
    for (size_t t = 0; t < kVocab; ++t) {
      p[t] = normal(random);
      q[t] = likeness * p[t] + (1 - likeness) * normal(random);
    }
    world.target.push_back(Softmax(p, target));
    world.draft.push_back(Softmax(q, draft));
  }
  return world;
}

using Rule = std::function<Verdict(const VerifyInput&)>;

std::function<std::span<const float>(size_t)> RowsOf(const Row& rows, size_t vocab = kVocab) {
  return [&rows, vocab](size_t row) { return std::span(rows).subspan(row * vocab, vocab); };
}

// The first tokens of an answer, in rounds of `drafts` drafts; counts what was accepted of how many rounds.
struct Outcome {
  std::array<size_t, kTokens> tokens{};
  int accepted_first = 0;
};
Outcome Generate(const World& world, const Rule& rule, int32_t drafts, uint64_t seed) {
  Outcome outcome;
  size_t made = 0, previous = 0;
  while (made < kTokens) {
    std::vector<int32_t> tokens;
    Row draft, target(world.target[previous]);
    size_t last = previous;
    for (int32_t j = 0; j < drafts; ++j) {
      const Row& q = world.draft[last];
      const std::vector<double> weights(q.begin(), q.end());
      last = static_cast<size_t>(DrawFrom(weights, {.seed = seed,
                                                    .position = static_cast<uint32_t>(made + static_cast<size_t>(j)),
                                                    .stream = sampling::NoiseStream::kDraft,
                                                    .block_offset = static_cast<uint32_t>(j)}));
      tokens.push_back(static_cast<int32_t>(last));
      draft.insert(draft.end(), q.begin(), q.end());
      target.insert(target.end(), world.target[last].begin(), world.target[last].end());
    }
    const Verdict verdict =
        rule({.drafts = tokens, .draft = draft, .target = RowsOf(target), .seed = seed, .position = static_cast<uint32_t>(made)});
    if (made == 0) outcome.accepted_first = verdict.accepted;
    tokens.resize(static_cast<size_t>(verdict.accepted));
    tokens.push_back(verdict.token);
    for (const int32_t token : tokens) {
      if (made < kTokens) outcome.tokens[made++] = static_cast<size_t>(token);
    }
    previous = static_cast<size_t>(tokens.back());
  }
  return outcome;
}

// Against the product of the target's rows, cells that expect fewer than 5 pooled; as standard deviations from its mean.
double Deviation(const World& world, const Rule& rule, int32_t drafts, int draws, double* accepted = nullptr) {
  std::vector<int> counts(kVocab * kVocab * kVocab);
  double sum = 0;
  for (int d = 0; d < draws; ++d) {
    const Outcome o = Generate(world, rule, drafts, static_cast<uint64_t>(d));
    ++counts[(o.tokens[0] * kVocab + o.tokens[1]) * kVocab + o.tokens[2]];
    sum += o.accepted_first;
  }
  if (accepted != nullptr) *accepted = sum / draws;
  double chi_square = 0, pooled = 0, pooled_count = 0;
  int cells = 0;
  const auto add = [&](double expected, double count) {
    chi_square += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const size_t a = i / (kVocab * kVocab), b = i / kVocab % kVocab, c = i % kVocab;
    const double expected = draws * static_cast<double>(world.target[0][a]) * world.target[a][b] * world.target[b][c];
    if (expected == 0) {
      EXPECT_EQ(counts[i], 0) << "a token that the target excludes";
    } else if (expected < 5) {
      pooled += expected;
      pooled_count += counts[i];
    } else {
      add(expected, counts[i]);
    }
  }
  if (pooled > 0) add(pooled, pooled_count);
  return (chi_square - (cells - 1)) / std::sqrt(2.0 * (cells - 1));
}

constexpr double kSuspicious = 4.5;
constexpr int kDraws = 20000;

TEST(Rejection, KeepsTheDistribution) {
  const sampling::SamplingParams plain{.temperature = 1};
  const sampling::SamplingParams filtered{.temperature = 0.8f, .top_k = 4, .top_p = 0.9f};
  const sampling::SamplingParams greedy{};
  struct Setting {
    const char* name;
    float likeness;
    sampling::SamplingParams target, draft;
  };
  const Setting settings[] = {{"good drafts", 0.9f, plain, plain},
                              {"bad drafts", 0, plain, plain},
                              {"filters on both", 0.6f, filtered, filtered},
                              {"filters on the target alone", 0.6f, filtered, plain},
                              {"greedy drafts", 0.6f, plain, greedy}};
  for (const Setting& s : settings) {
    const World world = MakeWorld(7, s.likeness, s.target, s.draft);
    for (const int32_t drafts : {0, 1, 3}) {
      double by_token = 0, by_block = 0;
      EXPECT_LT(Deviation(world, VerifyByToken, drafts, kDraws, &by_token), kSuspicious) << s.name << ", drafts " << drafts;
      EXPECT_LT(Deviation(world, VerifyByBlock, drafts, kDraws, &by_block), kSuspicious) << s.name << ", drafts " << drafts;
      EXPECT_GT(by_block, by_token - 0.03) << s.name << ", drafts " << drafts;
    }
  }
}

// The replacement must come from what the drafts left over, not from the target as a whole.
TEST(Rejection, TheTestCatchesAWrongRule) {
  const World world = MakeWorld(7, 0.3f, {.temperature = 1}, {.temperature = 1});
  const Rule wrong = [](const VerifyInput& input) {
    Verdict verdict = VerifyByToken(input);
    const std::span<const float> row = input.target(static_cast<size_t>(verdict.accepted));
    const std::vector<double> p(row.begin(), row.end());
    verdict.token = DrawFrom(p, {.seed = input.seed, .position = input.position, .stream = sampling::NoiseStream::kResidual});
    return verdict;
  };
  EXPECT_GT(Deviation(world, wrong, 2, kDraws), 4 * kSuspicious);
}

// The first draft stands with probability sum of min(p, q).
TEST(Rejection, AcceptsTheOverlap) {
  const World world = MakeWorld(3, 0.5f, {.temperature = 1}, {.temperature = 1});
  double overlap = 0, accepted = 0;
  for (size_t t = 0; t < kVocab; ++t) overlap += std::min(world.target[0][t], world.draft[0][t]);
  Deviation(world, VerifyByToken, 1, kDraws, &accepted);
  EXPECT_NEAR(accepted, overlap, 0.015);
}

TEST(Rejection, GreedyTargetTakesItsOwnTokens) {
  const World world = MakeWorld(5, 0.5f, {}, {.temperature = 1});
  for (const Rule& rule : {Rule(VerifyByToken), Rule(VerifyByBlock)}) {
    const Outcome first = Generate(world, rule, 3, 0);
    for (uint64_t seed = 1; seed < 200; ++seed) ASSERT_EQ(Generate(world, rule, 3, seed).tokens, first.tokens);
  }
}

// Appendix A of the paper: whether the first draft is verified hangs on the confidence of the second, which depends on
// what the first one is. Looking ahead turns (0.7, 0.3) into (0.85, 0.15); stopping at the first loss does not.
TEST(Rejection, LookingAheadWouldBreakIt) {
  const Row p = {0.7f, 0.3f}, q = {0.5f, 0.5f};
  const std::vector<double> cost = {1, 1 / 0.5, 1 / 0.45};
  RowChooser chooser(1, 2);
  const auto share_of_first = [&](StopRule stop) {
    int firsts = 0;
    for (uint64_t seed = 0; seed < kDraws; ++seed) {
      const std::vector<double> weights(q.begin(), q.end());
      const int32_t first = DrawFrom(weights, {.seed = seed, .stream = sampling::NoiseStream::kDraft});
      const std::vector<float> survival = {0.8f, first == 0 ? 0.8f * 0.9f : 0.0f};
      const std::vector<int32_t> limits = {2};
      std::vector<int32_t> lengths(1);
      chooser.Choose({.drafts = 2, .survival = survival, .limits = limits, .sure_tokens = 1, .cost = cost, .stop = stop}, lengths);
      // The second draft is the same token again; only the first token of the answer counts here.
      const std::vector<int32_t> drafts(static_cast<size_t>(lengths[0]), first);
      Row draft, target(p);
      for (size_t j = 0; j < drafts.size(); ++j) {
        draft.insert(draft.end(), q.begin(), q.end());
        target.insert(target.end(), p.begin(), p.end());
      }
      const Verdict verdict = VerifyByToken({.drafts = drafts, .draft = draft, .target = RowsOf(target, 2), .seed = seed});
      firsts += (verdict.accepted > 0 ? first : verdict.token) == 0;
    }
    return firsts / static_cast<double>(kDraws);
  };
  EXPECT_NEAR(share_of_first(StopRule::kFirstLoss), 0.7, 0.015);
  EXPECT_NEAR(share_of_first(StopRule::kBest), 0.85, 0.015);
}

TEST(Rejection, TheSameArgumentsGiveTheSameVerdict) {
  const World world = MakeWorld(9, 0.5f, {.temperature = 1}, {.temperature = 1});
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(Generate(world, VerifyByBlock, 3, seed).tokens, Generate(world, VerifyByBlock, 3, seed).tokens);
  }
}

}  // namespace
}  // namespace deepinfer::spec
