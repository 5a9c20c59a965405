// SPDX-License-Identifier: Apache-2.0
// Property: the ops that draw and read logits on a device give the tokens and the log-probabilities of sampling/sampler.h, to the
// bit: all settings alone and together, on logits with many equal ones, with few that are left, and with none.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "backend/api/backend.h"
#include "engine/loaded_model.h"
#include "sampling/sampler.h"

namespace deepinfer {
namespace {

using backend::AdjustedDraw;
using backend::LogitEdit;
using sampling::SamplingParams;

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) ADD_FAILURE() << result.status().message();
  return *std::move(result);
}

// A request's settings and what its answer has so far.
struct Case {
  SamplingParams params;
  sampling::TokenCounts counts;
  std::vector<uint32_t> mask;  // empty: all tokens
  uint32_t position = 0;
  int32_t row = 0;
  int overrides = 0;  // of the edits, so many are told as overrides of wrong ones
};

class DeviceSampling : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto made = engine::CreateBackend({.name = GetParam()});
    if (!made.ok() && GetParam() == "cuda") GTEST_SKIP() << made.status().message();
    backend_ = Must(std::move(made));
  }

  // Rows of many kinds: smooth, with few values, peaked, flat, with none, with one.
  void MakeLogits(int32_t vocab) {
    vocab_ = vocab;
    std::normal_distribution<float> normal(0, 3);
    logits_.assign(static_cast<size_t>(kRows) * static_cast<size_t>(vocab), 0);
    for (int32_t r = 0; r < kRows; ++r) {
      float* row = logits_.data() + static_cast<size_t>(r) * static_cast<size_t>(vocab);
      for (int32_t t = 0; t < vocab; ++t) {
        const float x = normal(random_);
        row[t] = r == 1 ? std::round(x) : r == 2 ? (t % 1000 == 7 ? 10 + x : x) : r == 3 ? -0.0f : x;
        if (r == 4 || (r == 5 && t != vocab / 2)) row[t] = -std::numeric_limits<float>::infinity();
        if (r == 6 && t % 3 == 0) row[t] = std::numeric_limits<float>::quiet_NaN();
        if (r == 3 && t % 2 == 0) row[t] = 0.0f;
      }
    }
  }

  Case RandomCase(int i) {
    const auto coin = [&](int of) { return random_() % static_cast<unsigned>(of) == 0; };
    const auto uniform = [&] { return std::uniform_real_distribution<float>(0, 1)(random_); };
    Case c{.position = static_cast<uint32_t>(random_() % 100000), .row = i % kRows};
    SamplingParams& p = c.params;
    p.seed = random_() * uint64_t{0x123456789};
    p.choice = static_cast<uint32_t>(random_() % 3);
    p.temperature = coin(5) ? 0 : coin(2) ? 1 : 0.1F + 2 * uniform();
    if (coin(2)) p.top_k = coin(4) ? vocab_ : 1 + static_cast<int64_t>(random_() % (coin(2) ? 20 : 2000));
    if (coin(2)) p.top_p = coin(5) ? 0.9999999F : coin(3) ? 1e-6F : uniform() * 0.99F + 0.01F;
    if (coin(3)) p.min_p = coin(4) ? 1 : uniform() * 0.3F;
    if (coin(2)) {
      if (coin(2)) p.repetition_penalty = 0.5F + uniform();
      if (coin(2)) p.presence_penalty = 2 * uniform() - 1;
      if (coin(2)) p.frequency_penalty = 2 * uniform() - 1;
      const auto n = random_() % 300;
      for (unsigned k = 0; k < n; ++k) ++(coin(2) ? c.counts.prompt : c.counts.answer)[Token()];
      c.overrides = static_cast<int>(random_() % 6);
    }
    if (coin(3)) {
      std::set<int32_t> tokens;
      for (int k = 0; k < 20; ++k) tokens.insert(Token());
      for (const int32_t token : tokens) p.logit_bias.emplace_back(token, coin(2) ? -100.0F : 10 * uniform());
    }
    if (coin(2)) {
      c.mask.resize(static_cast<size_t>(vocab_ + 31) / 32);
      const int kind = static_cast<int>(random_() % 4);
      for (uint32_t& word : c.mask) word = kind == 0 ? ~0u : kind == 1 ? random_() & random_() & random_() : 0;
      if (kind == 2) c.mask[random_() % c.mask.size()] |= 1u << random_() % 32;
    }
    return c;
  }
  int32_t Token() { return static_cast<int32_t>(random_() % static_cast<unsigned>(vocab_)); }

  std::vector<LogitEdit> EditsOf(const Case& c) const {
    std::map<int32_t, LogitEdit> edits;
    const auto at = [&](int32_t token) -> LogitEdit& {
      edits[token].token = token;
      return edits[token];
    };
    if (c.params.has_penalties()) {
      for (const auto& [token, count] : c.counts.prompt) at(token).repeat = c.params.repetition_penalty;
      for (const auto& [token, count] : c.counts.answer) {
        at(token).repeat = c.params.repetition_penalty;
        at(token).off = c.params.presence_penalty + c.params.frequency_penalty * static_cast<float>(count);
      }
    }
    for (const auto& [token, bias] : c.params.logit_bias) at(token).bias = bias;
    std::vector<LogitEdit> list;
    for (const auto& [token, edit] : edits) list.push_back(edit);
    return list;
  }

  // Tokens of all cases by the device.
  std::vector<int32_t> DrawAll(const std::vector<Case>& cases) {
    const auto words = static_cast<size_t>(vocab_ + 31) / 32;
    std::vector<AdjustedDraw> draws;
    std::vector<LogitEdit> edits;
    std::vector<uint32_t> masks(words);
    for (const Case& c : cases) {
      const SamplingParams& p = c.params;
      AdjustedDraw d{.draw = {.seed = p.seed, .position = c.position, .choice = p.choice, .temperature = p.temperature,
                              .logits_row = c.row},
                     .top_k = static_cast<int32_t>(p.top_k), .top_p = p.top_p, .min_p = p.min_p};
      const std::vector<LogitEdit> list = EditsOf(c);
      d.first_edit = static_cast<int32_t>(edits.size());
      d.num_edits = static_cast<int32_t>(list.size());
      edits.insert(edits.end(), list.begin(), list.end());
      d.first_override = static_cast<int32_t>(edits.size());
      for (size_t i = 0; i < list.size() && d.num_overrides < c.overrides; i += 2, ++d.num_overrides) {
        edits[static_cast<size_t>(d.first_edit) + i] = {.token = list[i].token, .repeat = 3, .off = -50, .bias = 5};
        edits.push_back(list[i]);
      }
      if (!c.mask.empty()) {
        d.mask = static_cast<int32_t>(masks.size() / words);
        masks.insert(masks.end(), c.mask.begin(), c.mask.end());
      }
      draws.push_back(d);
    }
    edits.push_back({});
    const auto device_logits = Must(backend::Upload<float>(*backend_, logits_));
    const auto device_draws = Must(backend::Upload<AdjustedDraw>(*backend_, draws));
    const auto device_edits = Must(backend::Upload<LogitEdit>(*backend_, edits));
    const auto device_masks = Must(backend::Upload<uint32_t>(*backend_, masks));
    std::vector<int32_t> tokens(cases.size(), -7);
    const auto device_tokens = Must(backend::Upload<int32_t>(*backend_, tokens));
    backend_->SampleAdjusted({.rows = static_cast<int64_t>(cases.size()), .vocab = vocab_, .logits = device_logits.as<float>(),
                              .draws = device_draws.as<AdjustedDraw>(), .edits = device_edits.as<LogitEdit>(),
                              .masks = device_masks.as<uint32_t>(), .mask_words = static_cast<int64_t>(words),
                              .tokens = device_tokens.as<int32_t>()});
    backend_->CopyToHost(tokens.data(), device_tokens.data(), tokens.size() * sizeof(int32_t));
    EXPECT_TRUE(backend_->Synchronize().ok());
    return tokens;
  }

  std::span<const float> RowOf(int32_t row) const {
    return std::span(logits_).subspan(static_cast<size_t>(row) * static_cast<size_t>(vocab_), static_cast<size_t>(vocab_));
  }

  static constexpr int32_t kRows = 9;
  std::unique_ptr<backend::Backend> backend_;
  int32_t vocab_ = 0;
  std::vector<float> logits_;
  std::mt19937 random_{7};
};

TEST_P(DeviceSampling, TheTokensOfTheSampler) {
  const int divisor = std::getenv("DI_TEST_SMALL") != nullptr ? 10 : 1;  // under a sanitizer
  for (const auto& [vocab, cases_max] : {std::pair<int32_t, int>{5, 200}, {1003, 400}, {8192, 200}, {129280, 60}}) {
    const int n = cases_max / divisor;
    MakeLogits(vocab);
    std::vector<Case> cases;
    for (int i = 0; i < n; ++i) cases.push_back(RandomCase(i));
    const std::vector<int32_t> tokens = DrawAll(cases);
    sampling::Sampler sampler;
    for (int i = 0; i < n; ++i) {
      const Case& c = cases[static_cast<size_t>(i)];
      const auto expected = sampler.Sample(c.params, {.logits = RowOf(c.row), .position = c.position, .counts = &c.counts, .mask = c.mask});
      const SamplingParams& p = c.params;
      EXPECT_EQ(tokens[static_cast<size_t>(i)], expected.value_or(-1))
          << "vocabulary " << vocab << ", row " << c.row << ", temperature " << p.temperature << ", top-k " << p.top_k << ", top-p "
          << p.top_p << ", min-p " << p.min_p << ", penalties " << p.has_penalties() << ", bias " << p.logit_bias.size() << ", mask "
          << !c.mask.empty() << ", overrides " << c.overrides;
    }
  }
}

TEST_P(DeviceSampling, TheLogprobsOfTheSampler) {
  for (const int32_t vocab : {5, 1003, 8192, 129280}) {
    MakeLogits(vocab);
    std::vector<int32_t> rows, tokens, places, best;
    for (const int32_t row : {0, 1, 2, 3, 7, 8, 0, 1}) {
      rows.push_back(row);
      tokens.push_back(Token());
      places.push_back(static_cast<int32_t>(places.size()));
      best.push_back(static_cast<int32_t>(std::min<size_t>(static_cast<size_t>(vocab), rows.size() * 4)));
    }
    tokens.back() = -1;
    const auto device_logits = Must(backend::Upload<float>(*backend_, logits_));
    const auto device_rows = Must(backend::Upload<int32_t>(*backend_, rows));
    const auto device_tokens = Must(backend::Upload<int32_t>(*backend_, tokens));
    const auto device_places = Must(backend::Upload<int32_t>(*backend_, places));
    const auto device_best = Must(backend::Upload<int32_t>(*backend_, best));
    std::vector<backend::RowLogits> out(rows.size());
    const auto device_out = Must(backend::Upload<backend::RowLogits>(*backend_, out));
    backend_->ReadLogits({.rows = static_cast<int64_t>(rows.size()), .vocab = vocab, .logits = device_logits.as<float>(),
                          .logits_rows = device_rows.as<int32_t>(), .tokens = device_tokens.as<int32_t>(),
                          .token_at = device_places.as<int32_t>(), .best = device_best.as<int32_t>(),
                          .out = device_out.as<backend::RowLogits>()});
    backend_->CopyToHost(out.data(), device_out.data(), out.size() * sizeof(out[0]));
    ASSERT_TRUE(backend_->Synchronize().ok());
    for (size_t i = 0; i + 1 < rows.size(); ++i) {
      const auto count = static_cast<size_t>(best[i]);
      const auto expected = sampling::ComputeLogprobs(RowOf(rows[i]), tokens[i], count);
      std::vector<sampling::TokenLogprob> list(count);
      for (size_t k = 0; k < count; ++k) list[k] = {out[i].tokens[k], out[i].logits[k]};
      const auto actual = sampling::FinishLogprobs(sampling::LogSumExp(out[i].top, out[i].sum), out[i].chosen, std::move(list));
      EXPECT_EQ(actual.chosen, expected.chosen) << "vocabulary " << vocab << ", row " << rows[i];
      ASSERT_EQ(actual.top.size(), expected.top.size());
      for (size_t k = 0; k < count; ++k) {
        EXPECT_EQ(actual.top[k].token, expected.top[k].token) << "vocabulary " << vocab << ", row " << rows[i] << ", place " << k;
        EXPECT_EQ(actual.top[k].logprob, expected.top[k].logprob) << "vocabulary " << vocab << ", row " << rows[i] << ", place " << k;
      }
    }
    EXPECT_EQ(out.back().sum, 0);  // nothing was written
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceSampling, testing::Values("reference", "cuda"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace deepinfer
