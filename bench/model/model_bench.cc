// SPDX-License-Identifier: Apache-2.0
// Speed of a whole model on this machine: time to the first token after a cold start of this process, prefill and decode
// tokens/s, and memory: what is mapped is not copied, so anonymous memory stays far below the size of the weights.
//   model_bench [MODEL_DIR] [THREADS]
// Each figure is the median of five rounds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "engine/session.h"
#include "sampling/vocabulary.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace deepinfer;

const Clock::time_point g_start = Clock::now();

double Seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().message().c_str());
    std::exit(1);
  }
  return *std::move(result);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A line of /proc/self/status in MB.
double StatusMb(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::strtod(line.c_str() + key.size() + 1, nullptr) / 1024;
  }
  return 0;
}

std::vector<TokenId> RandomIds(size_t n) {
  std::mt19937 random(1);
  std::vector<TokenId> ids(n);
  for (TokenId& id : ids) id = static_cast<TokenId>(3 + random() % 8000);
  return ids;
}

double PrefillRate(engine::Session& session, size_t tokens, engine::Logits logits) {
  const auto ids = RandomIds(tokens);
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    session.Clear();
    const auto start = Clock::now();
    Must(session.Append({.ids = ids, .logits = logits}));
    rates.push_back(static_cast<double>(tokens) / Seconds(start));
  }
  return Median(rates);
}

double DecodeRate(engine::Session& session, size_t context, int tokens) {
  session.Clear();
  auto logits = Must(session.Append({.ids = RandomIds(context)}));
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < tokens; ++i) {
      const TokenId next = sampling::ArgMax(logits);
      logits = Must(session.Append({.ids = std::span(&next, 1)}));
    }
    rates.push_back(tokens / Seconds(start));
  }
  return Median(rates);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : std::string(DI_SOURCE_DIR) + "/models/deepseek-v41-tiny";
  const int threads = argc > 2 ? std::atoi(argv[2]) : static_cast<int>(std::thread::hardware_concurrency());
  const auto loaded = Must(engine::LoadedModel::Load(directory, {.name = "cpu", .num_threads = threads}));
  const auto session = Must(engine::Session::Create(*loaded, {.context_max = std::min<int64_t>(8192, loaded->config().max_positions)}));
  const auto ids = Must(loaded->tokenizer().Encode("Once upon a time"));
  Must(session->Append({.ids = ids}));
  std::printf("%s, %d threads, %s\n", directory.c_str(), threads,
              engine::NumericIdentity(loaded->backend(), backend::Activations::kFp32).c_str());
  std::printf("time to first token, cold start   %8.1f ms\n", Seconds(g_start) * 1e3);
  for (const size_t n : {128, 512, 1024, 2048}) {
    std::printf("prefill %4zu tokens, last logits    %8.0f tokens/s\n", n, PrefillRate(*session, n, engine::Logits::kLast));
  }
  std::printf("prefill  512 tokens, all logits     %8.0f tokens/s\n", PrefillRate(*session, 512, engine::Logits::kAll));
  for (const size_t n : {16, 1024, 4096}) {
    std::printf("decode after %4zu tokens            %8.0f tokens/s\n", n, DecodeRate(*session, n, 100));
  }
  std::printf("memory: %.0f MB resident, of it anonymous %.0f MB, mapped files %.0f MB\n", StatusMb("VmRSS"),
              StatusMb("RssAnon"), StatusMb("RssFile"));
  return 0;
}
