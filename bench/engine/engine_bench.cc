// SPDX-License-Identifier: Apache-2.0
// Tokens per second of the engine with 1, 4, 16 and 64 requests in flight: what a batch is worth on this machine.
//   engine_bench [MODEL_DIR] [THREADS] [ROUNDS] [DRAFTS]     DRAFTS: EngineOptions::drafts, by default off
// Each request has a prompt of 64 tokens of its own and an answer of 128; the time counts from the moment all prompts have
// run (every request has its first token) to the end. Greedy, and drawn at temperature 1. Rounds go through all sizes in
// turn, so that a slow moment of the machine meets each of them; figures are medians.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "deepinfer/engine.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace deepinfer;

constexpr int kPromptTokens = 64;
constexpr int kAnswerTokens = 128;

double Seconds(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double>(to - from).count(); }

struct Rates {
  double decode = 0;  // tokens/s while all requests decode
  double whole = 0;   // answer tokens/s from the first Submit to the last token
  double step_ms = 0;
};

GenerationRequest MakeRequest(std::mt19937* random, float temperature) {
  GenerationRequest request{.max_tokens = kAnswerTokens, .ignore_eos = true, .temperature = temperature, .seed = (*random)()};
  for (int i = 0; i < kPromptTokens; ++i) request.prompt.push_back(static_cast<int32_t>(3 + (*random)() % 8000));
  return request;
}

Rates Run(Engine& engine, int in_flight, float temperature, std::mt19937* random) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < in_flight; ++i) requests.push_back(MakeRequest(random, temperature));
  std::vector<int> tokens(static_cast<size_t>(in_flight));
  int started = 0;
  int64_t counted = 0;
  Clock::time_point all_started, last;
  int64_t steps = 0;
  std::vector<GenerationId> ids;
  const auto begin = Clock::now();
  for (int i = 0; i < in_flight; ++i) {
    std::string why;
    ids.push_back(engine.Submit(
        requests[static_cast<size_t>(i)],
        [&, i](const Output& output) {
          if (output.token < 0) return;
          last = Clock::now();
          if (started == in_flight) ++counted;
          if (tokens[static_cast<size_t>(i)]++ == 0 && ++started == in_flight) {
            all_started = last;
            steps = engine.Stats().steps;
          }
        },
        &why));
    if (ids.back() == 0) {
      std::fprintf(stderr, "%s\n", why.c_str());
      std::exit(1);
    }
  }
  for (const GenerationId id : ids) engine.Wait(id);
  const double seconds = Seconds(all_started, last);
  steps = engine.Stats().steps - steps;
  return {.decode = static_cast<double>(counted) / seconds,
          .whole = in_flight * kAnswerTokens / Seconds(begin, last),
          .step_ms = seconds * 1e3 / static_cast<double>(steps)};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  EngineOptions options{.model_directory = argc > 1 ? argv[1] : std::string(DI_SOURCE_DIR) + "/models/deepseek-v41-tiny",
                        .num_threads = argc > 2 ? std::atoi(argv[2]) : static_cast<int>(std::thread::hardware_concurrency())};
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  options.context_max = 2048;
  options.drafts = argc > 4 ? argv[4] : "off";
  std::string why;
  const auto engine = Engine::Open(options, &why);
  if (engine == nullptr) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 1;
  }
  std::printf("%s, %d threads, drafts %s, answers of %d tokens, medians of %d rounds\n", engine->numeric_identity().c_str(),
              options.num_threads, options.drafts.c_str(), kAnswerTokens, rounds);
  std::mt19937 random(1);
  for (const float temperature : {0.0F, 1.0F}) {
    std::map<int, std::vector<Rates>> all;
    Run(*engine, 16, temperature, &random);  // warm
    for (int round = 0; round < rounds; ++round) {
      for (const int n : {1, 4, 16, 64}) all[n].push_back(Run(*engine, n, temperature, &random));
    }
    std::printf("%-12s %9s %16s %10s %10s %22s\n", temperature == 0 ? "greedy" : "temperature 1", "in flight", "decode tokens/s",
                "against 1", "step ms", "with prompts tokens/s");
    double one = 0;
    for (const auto& [n, runs] : all) {
      const auto median = [&](double Rates::*member) {
        std::vector<double> values;
        for (const Rates& r : runs) values.push_back(r.*member);
        return Median(values);
      };
      const double rate = median(&Rates::decode);
      if (n == 1) one = rate;
      std::printf("%-12s %9d %16.0f %9.2fx %10.3f %22.0f\n", "", n, rate, rate / one, median(&Rates::step_ms), median(&Rates::whole));
    }
  }
  return 0;
}
