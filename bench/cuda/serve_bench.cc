// SPDX-License-Identifier: Apache-2.0
// Steps of the engine on the card with many requests in flight, and how long the card waits for the host between them.
//   serve_bench MODEL_DIRECTORY [bf16|fp8|fp32] [REQUESTS...]      (default 1 64)
// Prompts of 512 tokens, answers of 512, drawn at temperature 1; counted while all requests decode.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "deepinfer/engine.h"

namespace {

using namespace deepinfer;
using Clock = std::chrono::steady_clock;

constexpr int kPromptTokens = 512, kAnswerTokens = 512;

struct Mark {
  Clock::time_point at;
  EngineStats stats;
};

// Two marks: when all requests have their fourth token, and when the first one is four tokens from its end.
void Run(Engine& engine, int in_flight, uint32_t seed, Mark* begin, Mark* end) {
  std::mt19937 random(seed);
  std::vector<int> tokens(static_cast<size_t>(in_flight));
  int started = 0, ending = 0;
  std::vector<GenerationId> ids;
  for (int i = 0; i < in_flight; ++i) {
    GenerationRequest request{.max_tokens = kAnswerTokens, .ignore_eos = true, .temperature = 1, .seed = random()};
    for (int k = 0; k < kPromptTokens; ++k) request.prompt.push_back(static_cast<int32_t>(3 + random() % 6000));
    std::string why;
    ids.push_back(engine.Submit(
        request,
        [&, i](const Output& output) {
          if (output.token < 0) return;
          const int n = ++tokens[static_cast<size_t>(i)];
          if (n == 4 && ++started == in_flight) *begin = {Clock::now(), engine.Stats()};
          if (n == kAnswerTokens - 4 && ++ending == 1) *end = {Clock::now(), engine.Stats()};
        },
        &why));
    if (ids.back() == 0) {
      std::fprintf(stderr, "%s\n", why.c_str());
      std::exit(1);
    }
  }
  for (const GenerationId id : ids) engine.Wait(id);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: serve_bench MODEL_DIRECTORY [bf16|fp8|fp32] [REQUESTS...]\n");
    return 2;
  }
  EngineOptions options{.model_directory = argv[1], .backend = "cuda", .activations = "bf16"};
  std::vector<int> sizes;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "bf16" || word == "fp8" || word == "fp32") {
      options.activations = word;
    } else {
      sizes.push_back(std::atoi(argv[i]));
    }
  }
  if (sizes.empty()) sizes = {1, 64};
  options.context_max = 4096;
  options.kv_memory_bytes = int64_t{8} << 30;
  options.requests_running_max = 256;
  options.step_rows_max = 1024;
  std::string why;
  const auto begin_open = Clock::now();
  const auto engine = Engine::Open(options, &why);
  if (engine == nullptr) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 1;
  }
  std::printf("%s, open in %.1f s\n", engine->numeric_identity().c_str(),
              std::chrono::duration<double>(Clock::now() - begin_open).count());
  std::printf("%s\n", engine->memory_plan().c_str());
  for (const int n : sizes) {
    Mark begin, end;
    Run(*engine, n, 7, &begin, &end);
    const double seconds = std::chrono::duration<double>(end.at - begin.at).count();
    const auto steps = static_cast<double>(end.stats.steps - begin.stats.steps);
    const double idle = end.stats.device_idle_seconds - begin.stats.device_idle_seconds;
    std::printf("%4d requests: step %.3f ms, %.0f tokens/s; the card waits %.1f us a step, %.1f %% of it\n", n, seconds * 1e3 / steps,
                static_cast<double>(end.stats.answer_tokens - begin.stats.answer_tokens) / seconds, idle * 1e6 / steps,
                100 * idle / seconds);
  }
  return 0;
}
