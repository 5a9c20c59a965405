// SPDX-License-Identifier: Apache-2.0
// Time to the first token behind a prefix that is in the cache, by length of the prefix and replay setting.
//   prefix_bench [MODEL_DIR] [THREADS] [ROUNDS]
// A prompt of 31 or 94 blocks (3,968 or 12,032 tokens) is in the cache, then come prompts that go on with 90 tokens of their
// own. Beside the hits: the same prompt cold, and the yardstick: the rows that are not cached, run in place by a session that
// has just run the others ("tail"): all windows there, no scheduler. Rounds go through all settings in turn; figures are
// medians.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "deepinfer/engine.h"
#include "engine/session.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace deepinfer;

constexpr size_t kOwnTokens = 90;

std::mt19937 g_random(7);

std::vector<int32_t> RandomIds(size_t n) {
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(3 + g_random() % 8000);
  return ids;
}

struct First {
  double ms = 0;
  int64_t cached = 0;
};

First RunOne(Engine& engine, std::vector<int32_t> prompt, ReplaySetting replay, const std::string& salt) {
  GenerationRequest request{.prompt = std::move(prompt), .max_tokens = 1, .replay = replay};
  request.cache_salt = salt;
  First first;
  std::string why;
  const auto begin = Clock::now();
  const GenerationId id = engine.Submit(
      request,
      [&](const Output& output) {
        if (first.ms == 0) first.ms = std::chrono::duration<double>(Clock::now() - begin).count() * 1e3;
        if (output.finished) first.cached = output.cached_tokens;
      },
      &why);
  if (id == 0) {
    std::fprintf(stderr, "%s\n", why.c_str());
    std::exit(1);
  }
  engine.Wait(id);
  return first;
}

std::unique_ptr<Engine> Open(const std::string& directory, int threads, double snapshot_share) {
  EngineOptions options{.model_directory = directory, .num_threads = threads};
  options.drafts = "off";
  options.snapshot_share = snapshot_share;
  std::string why;
  auto engine = Engine::Open(options, &why);
  if (engine == nullptr) {
    std::fprintf(stderr, "%s\n", why.c_str());
    std::exit(1);
  }
  return engine;
}

// Milliseconds of the part from `begin` on, behind the rest.
double TailMs(engine::Session& session, const std::vector<int32_t>& prompt, size_t begin) {
  session.Clear();
  const bool ran = session.Append({.ids = std::span(prompt).first(begin), .logits = engine::Logits::kAll}).ok();
  const auto start = Clock::now();
  if (!ran || !session.Append({.ids = std::span(prompt).subspan(begin)}).ok()) std::exit(1);
  return std::chrono::duration<double>(Clock::now() - start).count() * 1e3;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : std::string(DI_SOURCE_DIR) + "/models/deepseek-v41-tiny";
  const int threads = argc > 2 ? std::atoi(argv[2]) : static_cast<int>(std::thread::hardware_concurrency());
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 7;
  // Windows at block ends are kept in one of them and not in the other, where a hit has to rebuild them.
  const auto with = Open(directory, threads, 0.2), without = Open(directory, threads, 0);
  const auto loaded = *engine::LoadedModel::Load(directory, {.name = "cpu", .num_threads = threads});
  const auto session = *engine::Session::Create(*loaded, {});
  std::printf("%s, %d threads, medians of %d rounds\n", with->numeric_identity().c_str(), threads, rounds);
  std::printf("%8s  %-18s %10s %14s %10s\n", "prefix", "", "ms", "cached tokens", "of tail");
  for (const size_t length : {31 * 128, 94 * 128}) {
    const auto prefix = RandomIds(length);
    for (Engine* engine : {with.get(), without.get()}) RunOne(*engine, prefix, ReplaySetting::kExact, "");
    std::map<std::string, std::vector<double>> times;
    std::map<std::string, int64_t> cached;
    const auto measure = [&](const std::string& name, Engine& engine, const std::vector<int32_t>& prompt, ReplaySetting replay, bool cold) {
      const First first = RunOne(engine, prompt, replay, cold ? std::to_string(g_random()) : "");
      times[name].push_back(first.ms);
      cached[name] = first.cached;
    };
    for (int round = 0; round < rounds; ++round) {
      const auto prompt = [&] {
        std::vector<int32_t> ids = prefix;
        const auto own = RandomIds(kOwnTokens);
        ids.insert(ids.end(), own.begin(), own.end());
        return ids;
      };
      if (round < 3) {
        times["1 tail"].push_back(TailMs(*session, prompt(), length / 128 * 128));
        cached["1 tail"] = static_cast<int64_t>(length / 128 * 128);
      }
      measure("2 exact, snapshot", *with, prompt(), ReplaySetting::kExact, false);
      measure("3 exact, trapezoid", *without, prompt(), ReplaySetting::kExact, false);
      measure("4 decoder", *with, prompt(), ReplaySetting::kDecoder, false);
      measure("5 bounded", *without, prompt(), ReplaySetting::kBounded, false);
      if (round < 3) measure("6 exact, cold", *without, prompt(), ReplaySetting::kExact, true);
    }
    const double alone = Median(times["1 tail"]);
    for (const auto& [name, all] : times) {
      std::printf("%8zu  %-18s %10.2f %14lld %9.2fx\n", length, name.c_str() + 2, Median(all), static_cast<long long>(cached[name]),
                  Median(all) / alone);
    }
  }
  return 0;
}
