// SPDX-License-Identifier: Apache-2.0
// The engine as a library: several requests at once, streamed, one of them cancelled.
//   example_engine MODEL_DIR
// With the public header alone; built and run by the tests.
#include <cstdio>
#include <string>
#include <vector>

#include "deepinfer/engine.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODEL_DIR\n", argv[0]);
    return 2;
  }
  std::string why;
  deepinfer::EngineOptions options{.model_directory = argv[1]};
  options.context_max = 2048;
  options.requests_running_max = 8;
  options.kv_memory_bytes = int64_t{64} << 20;
  const auto engine = deepinfer::Engine::Open(options, &why);
  if (engine == nullptr) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 1;
  }
  for (const std::string& warning : engine->warnings()) std::fprintf(stderr, "warning: %s\n", warning.c_str());

  const std::vector<std::string> prompts = {"Once upon a time", "The little dog", "One day, Tom"};
  std::vector<std::string> answers(prompts.size());
  std::vector<deepinfer::GenerationId> ids;
  for (size_t i = 0; i < prompts.size(); ++i) {
    deepinfer::GenerationRequest request{.prompt = engine->Tokenize(prompts[i]), .max_tokens = 30, .temperature = 0.8F, .seed = i};
    // Called on the engine's thread, a few characters at a time.
    const auto consumer = [&answers, i](const deepinfer::Output& output) {
      answers[i] += output.text;
      if (output.finished) answers[i] += " [" + std::string(deepinfer::FinishReasonName(output.reason)) + "]";
    };
    ids.push_back(engine->Submit(request, consumer, &why));
    if (ids.back() == 0) {
      std::fprintf(stderr, "%s\n", why.c_str());
      return 1;
    }
  }
  engine->Cancel(ids[1]);
  for (const deepinfer::GenerationId id : ids) engine->Wait(id);
  for (size_t i = 0; i < prompts.size(); ++i) std::printf("%s%s\n\n", prompts[i].c_str(), answers[i].c_str());

  const deepinfer::EngineStats stats = engine->Stats();
  std::printf("%lld steps, %lld tokens drawn, %lld of %lld blocks free\n", static_cast<long long>(stats.steps),
              static_cast<long long>(stats.answer_tokens), static_cast<long long>(stats.blocks_available),
              static_cast<long long>(stats.blocks));
  return 0;
}
