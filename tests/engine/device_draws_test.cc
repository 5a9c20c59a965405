// SPDX-License-Identifier: Apache-2.0
// Property: draws that the device makes give the tokens and log-probabilities of those that the host makes. Asked for more
// alternatives than a device lists, a request is drawn by the host, else by the device. Greedy and hot, with penalties,
// bias, bad words, least lengths and filters, several choices, many at once; with drafts and without.
#include <gtest/gtest.h>

#include "backend/api/ops.h"
#include "deepinfer/engine.h"

namespace deepinfer {
namespace {

using Tokens = std::vector<std::vector<int32_t>>;  // by choice

class DeviceDraws : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(DeviceDraws, TheTokensOfTheHost) {
  std::string why;
  const auto engine = Engine::Open({.model_directory = std::string(DI_SOURCE_DIR) + "/tests/golden/" + std::get<1>(GetParam()),
                                    .backend = std::get<0>(GetParam()),
                                    .context_max = 128,
                                    .kv_memory_bytes = 64 << 20,
                                    .requests_running_max = 12,
                                    .step_rows_max = 128},
                                   &why);
  if (engine == nullptr && std::get<0>(GetParam()) == "cuda") GTEST_SKIP() << why;
  ASSERT_NE(engine, nullptr) << why;
  std::vector<std::array<Tokens, 2>> answers(12);
  std::vector<std::array<std::vector<float>, 2>> logprobs(answers.size());
  std::vector<GenerationId> ids;
  for (size_t i = 0; i < answers.size(); ++i) {
    for (const bool on_host : {false, true}) {
      GenerationRequest request{.prompt = {3, 5, static_cast<int32_t>(7 + i)}, .max_tokens = 20, .choices = i % 3 == 2 ? 3 : 1};
      request.ignore_eos = true;
      request.temperature = i % 2 == 0 ? 0 : 0.5F + 0.25F * static_cast<float>(i);
      request.seed = 100 + i;
      request.logprobs = on_host ? backend::kTopLogitsMax + 1 : 3;
      if (i == 4 || i >= 9) {
        request.repetition_penalty = 1.3F;
        request.presence_penalty = 0.5F;
        request.frequency_penalty = 0.25F;
      }
      if (i == 5) request.top_k = 5;
      if (i == 6 || i >= 9) request.logit_bias = {{7, 2.5F}, {9, -100.0F}, {11, 1.0F}};
      if (i == 7 || i >= 9) request.top_p = 0.8F;
      if (i == 7 || i == 11) request.min_p = 0.02F;
      if (i == 8 || i >= 10) request.bad_words = {{20}, {7, 8}, {11, 11}};
      if (i == 9) request.stop_token_ids = {30, 31, 32, 33, 34}, request.min_tokens = 20;
      Tokens* tokens = &answers[i][on_host ? 1 : 0];
      std::vector<float>* logprob = &logprobs[i][on_host ? 1 : 0];
      tokens->resize(static_cast<size_t>(request.choices));
      ids.push_back(engine->Submit(request,
                                   [tokens, logprob](const Output& output) {
                                     if (output.token < 0) return;
                                     (*tokens)[static_cast<size_t>(output.choice)].push_back(output.token);
                                     if (output.choice != 0) return;
                                     logprob->push_back(*output.logprob);
                                     for (int k = 0; k < 3; ++k) {
                                       logprob->push_back(output.alternatives[static_cast<size_t>(k)].logprob);
                                       logprob->push_back(static_cast<float>(output.alternatives[static_cast<size_t>(k)].token));
                                     }
                                   },
                                   &why));
      ASSERT_NE(ids.back(), 0u) << why;
    }
  }
  for (const GenerationId id : ids) engine->Wait(id);
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i][0], answers[i][1]) << i;
    EXPECT_EQ(logprobs[i][0], logprobs[i][1]) << i;
    for (const auto& tokens : answers[i][0]) EXPECT_EQ(tokens.size(), 20u) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceDraws,
                         testing::Combine(testing::Values("reference", "cuda"), testing::Values("model/engram", "dspark")),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + (std::get<1>(instance.param) == "dspark" ? "_drafts" : "_plain");
                         });

}  // namespace
}  // namespace deepinfer
