// SPDX-License-Identifier: Apache-2.0
// What constraints written to hurt cost their neighbours: tokens/s of four free requests, alone, beside four more free ones
// (what any four cost), beside four with an ordinary schema, and beside four with a hostile one that are sent again whenever
// they end, compilation included (on a thread of its own, by the server's function). Rounds go through all in turn; figures are
// medians of rates relative to "nobody".
//   hostile_bench [MODEL_DIR] [THREADS] [ROUNDS] [PART_OF_A_NAME]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "deepinfer/engine.h"
#include "deepinfer/grammar.h"
#include "serving/compile_aside.h"

namespace {

using namespace deepinfer;
using grammar::Constraint;
using Clock = std::chrono::steady_clock;

constexpr int kFree = 4, kBeside = 4;
constexpr int kAnswerTokens = 100;

GenerationRequest Plain(uint64_t seed) {
  GenerationRequest request{.prompt = {0, 1169, 731, 261, 566}, .max_tokens = kAnswerTokens, .ignore_eos = true};
  request.temperature = 1;
  request.seed = seed;
  return request;
}

struct Neighbour {
  const char* name;
  std::vector<Constraint> constraints;
  bool free = false;  // requests without a constraint
};

std::vector<Neighbour> Neighbours() {
  std::string schema = "{\"type\":\"object\",\"properties\":{";
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = std::to_string(i);
    schema += (i ? ",\"k" : "\"k") + name + "\":{\"type\":\"string\",\"pattern\":\"^[a-z]{1,9}" + name + "$\"}";
  }
  schema += "}}";
  std::string deep;
  for (int i = 0; i < 3000; ++i) deep += "{\"type\":\"array\",\"items\":";
  deep += "{}" + std::string(3000, '}');
  const auto ordinary = Constraint::JsonSchema(
      R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"array"}},"required":["a","b"]})");
  const auto unique = Constraint::JsonSchema(R"({"type":"array","uniqueItems":true,"minItems":50,"items":{"type":"object",
      "additionalProperties":{"type":"integer"}}})");
  return {{"nobody", {}},
          {"four free", {}, true},
          {"free text", {Constraint::Regex("[^]*")}},
          {"ordinary schema", {ordinary}},
          {"exponential regex", {Constraint::Regex("(a|b|c)*a(a|b|c){25}x"), Constraint::Regex("([a-z]+ )*(.*e.*){12}x")}},
          {"10^9 repeats", {Constraint::Regex("((a{1000}){1000}){1000}"), Constraint::Regex("(.{0,9999}x){0,9999}y")}},
          {"unique objects", {unique}},
          {"1 MB schema", {Constraint::JsonSchema(schema)}},
          {"deep recursion", {Constraint::JsonSchema(deep), Constraint::Grammar("root ::= \"(\" root \")\" root | root \"a\" | \"\"")}}};
}

class Hurt {
 public:
  Hurt(Engine* engine, const Neighbour& neighbour) : engine_(engine), neighbour_(neighbour) {
    if (neighbour.free || !neighbour.constraints.empty()) thread_ = std::thread([this] { Loop(); });
  }
  ~Hurt() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::atomic<int> refused = 0, failed = 0, ended = 0, tokens = 0;

 private:
  void Loop() {
    uint64_t seed = 100;
    std::vector<GenerationId> all;
    while (!stop_) {
      if (open_ == kBeside) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      GenerationRequest request = Plain(seed++);
      request.max_tokens = 400;
      if (!neighbour_.free) {
        const Constraint& constraint = neighbour_.constraints[seed % neighbour_.constraints.size()];
        const auto compiled = serving::CompileAside([&](const grammar::CompileOptions& options) {
          return grammar::Compile(constraint, engine_->grammar_vocabulary(), options);
        }, {.cancel = &stop_});
        if (!compiled.ok()) {
          ++refused;
          continue;
        }
        request.grammar = std::make_shared<const grammar::CompiledGrammar>(*compiled);
      }
      std::string why;
      ++open_;
      all.push_back(engine_->Submit(request, [this](const Output& output) {
        tokens += output.token >= 0;
        if (!output.finished) return;
        ++(output.reason == FinishReason::kError ? failed : ended);
        --open_;
      }, &why));
      if (all.back() == 0) --open_;
    }
    for (const GenerationId id : all) engine_->Cancel(id);
    for (const GenerationId id : all) engine_->Wait(id);
  }

  Engine* engine_;
  const Neighbour& neighbour_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> open_ = 0;
  std::thread thread_;
};

// Tokens/s of the free requests, and the longest wait between two tokens of one.
std::pair<double, double> Measure(Engine* engine, uint64_t seed) {
  std::vector<GenerationId> ids;
  std::vector<Clock::time_point> last(kFree, Clock::now());
  double longest = 0;
  const auto begin = Clock::now();
  for (int i = 0; i < kFree; ++i) {
    std::string why;
    ids.push_back(engine->Submit(Plain(seed + static_cast<uint64_t>(i)), [&, i](const Output&) {
      const auto now = Clock::now();
      longest = std::max(longest, std::chrono::duration<double>(now - last[static_cast<size_t>(i)]).count());
      last[static_cast<size_t>(i)] = now;
    }, &why));
  }
  for (const GenerationId id : ids) engine->Wait(id);
  return {kFree * kAnswerTokens / std::chrono::duration<double>(Clock::now() - begin).count(), longest};
}

}  // namespace

int main(int argc, char** argv) {
  EngineOptions options{.model_directory = argc > 1 ? argv[1] : DI_SOURCE_DIR "/models/deepseek-v41-tiny"};
  options.num_threads = argc > 2 ? std::atoi(argv[2]) : 0;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 3;
  options.context_max = 1024;
  options.drafts = "off";
  std::string why;
  const auto engine = Engine::Open(options, &why);
  if (engine == nullptr) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 1;
  }
  const std::vector<Neighbour> neighbours = Neighbours();
  std::vector<std::vector<double>> rates(neighbours.size()), waits(neighbours.size());
  std::vector<std::string> notes(neighbours.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t n = 0; n < neighbours.size(); ++n) {
      if (argc > 4 && std::string(neighbours[n].name).find(argv[4]) == std::string::npos) continue;
      Hurt hurt(engine.get(), neighbours[n]);
      if (n > 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      const auto [rate, wait] = Measure(engine.get(), static_cast<uint64_t>(round) * 10);
      rates[n].push_back(rate);
      waits[n].push_back(wait);
      notes[n] = std::to_string(hurt.refused) + " refused, " + std::to_string(hurt.failed) + " failed, " +
                 std::to_string(hurt.ended) + " ended, " + std::to_string(hurt.tokens) + " tokens";
    }
  }
  const auto median = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  std::printf("%-20s %10s %8s %14s  %s\n", "beside four free", "tokens/s", "ratio", "longest wait", "the last round's neighbours");
  for (size_t n = 0; n < neighbours.size(); ++n) {
    if (rates[n].empty()) continue;
    const double rate = median(rates[n]), alone = rates[0].empty() ? rate : median(rates[0]);
    std::printf("%-20s %10.0f %8.2f %11.0f ms  %s\n", neighbours[n].name, rate, rate / alone, 1000 * median(waits[n]), notes[n].c_str());
  }
  return 0;
}
