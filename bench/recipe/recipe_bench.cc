// SPDX-License-Identifier: Apache-2.0
// Times one request body from bytes to token ids: recipe_bench TOKENIZER_JSON BODY_JSON ROUNDS. Prints one JSON line:
// medians in microseconds, and the ids. bench/recipe/run.py runs it beside its peer.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "recipe/encode.h"
#include "recipe/parse_request.h"

namespace deepinfer::recipe {
namespace {

template <typename Work>
double MedianMicroseconds(int rounds, Work work) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds / 2)];
}

int Run(const char* tokenizer_path, const char* body_path, int rounds) {
  std::ifstream file(body_path, std::ios::binary);
  const std::string body((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto tokenizer = Tokenizer::Load(tokenizer_path);
  const auto request = ParseRequest(Protocol::kChat, body, {.profile = Profile::kCompatible});
  if (!tokenizer.ok() || !request.ok()) {
    std::fprintf(stderr, "%s%s\n", tokenizer.status().message().c_str(), request.status().message().c_str());
    return 1;
  }
  const auto uncached = *PromptEncoder::Make(*tokenizer, {.cache_bytes = 0});
  const auto cached = *PromptEncoder::Make(*tokenizer);
  const Prompt prompt = RenderRequest(*request);
  size_t sink = 0;
  const double parse = MedianMicroseconds(rounds, [&] {
    sink += ParseRequest(Protocol::kChat, body, {.profile = Profile::kCompatible})->conversation.messages.size();
  });
  const double render = MedianMicroseconds(rounds, [&] {
    const Prompt rendered = RenderRequest(*request);
    sink += rendered.segments().size();
  });
  const double encode = MedianMicroseconds(rounds, [&] { sink += uncached->Encode(prompt)->size(); });
  const double again = MedianMicroseconds(rounds, [&] { sink += cached->Encode(prompt)->size(); });
  const auto ids = *uncached->Encode(prompt);
  std::printf(R"({"body_bytes": %zu, "tokens": %zu, "parse_us": %.1f, "render_us": %.1f, "encode_us": %.1f, )"
              R"("encode_again_us": %.1f, "sink": %zu, "ids": [)",
              body.size(), ids.size(), parse, render, encode, again, sink % 10);
  for (size_t i = 0; i < ids.size(); ++i) std::printf("%s%d", i > 0 ? "," : "", ids[i]);
  std::printf("]}\n");
  return 0;
}

}  // namespace
}  // namespace deepinfer::recipe

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: recipe_bench TOKENIZER_JSON BODY_JSON ROUNDS\n", stderr);
    return 2;
  }
  return deepinfer::recipe::Run(argv[1], argv[2], std::max(1, std::atoi(argv[3])));
}
