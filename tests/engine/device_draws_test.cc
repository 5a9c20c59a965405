// SPDX-License-Identifier: Apache-2.0
// Property: draws that the device makes give the tokens of those that the host makes. Asked for log-probabilities, a request is
// drawn by the host; without them, where that can be, by the device. Greedy and hot, several choices, many at once; with
// drafts, which are drawn the same way, and without.
#include <gtest/gtest.h>

#include "core/check.h"
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
  std::vector<std::array<Tokens, 2>> answers(6);
  std::vector<GenerationId> ids;
  for (size_t i = 0; i < answers.size(); ++i) {
    for (const bool on_host : {false, true}) {
      GenerationRequest request{.prompt = {3, 5, static_cast<int32_t>(7 + i)}, .max_tokens = 20, .choices = i % 3 == 2 ? 3 : 1};
      request.ignore_eos = true;
      request.temperature = i % 2 == 0 ? 0 : 0.5F + 0.25F * static_cast<float>(i);
      request.seed = 100 + i;
      if (on_host) request.logprobs = 0;
      Tokens* tokens = &answers[i][on_host ? 1 : 0];
      tokens->resize(static_cast<size_t>(request.choices));
      ids.push_back(engine->Submit(request,
                                   [tokens](const Output& output) {
                                     if (output.token >= 0) (*tokens)[static_cast<size_t>(output.choice)].push_back(output.token);
                                   },
                                   &why));
      ASSERT_NE(ids.back(), 0u) << why;
    }
  }
  for (const GenerationId id : ids) engine->Wait(id);
  for (const auto& [device, host] : answers) {
    EXPECT_EQ(device, host);
    for (const auto& tokens : device) EXPECT_EQ(tokens.size(), 20u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceDraws,
                         testing::Combine(testing::Values("reference", "cuda"), testing::Values("model/engram", "dspark")));

}  // namespace
}  // namespace deepinfer
