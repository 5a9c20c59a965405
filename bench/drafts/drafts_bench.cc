// SPDX-License-Identifier: Apache-2.0
// Speed of decoding without drafts, with all drafts in every step, and with as many as pay: one engine each in one process,
// interleaved rounds, so that what disturbs the machine disturbs them alike. The outputs are the same tokens (checked).
//   drafts_bench speed [STREAMS] [ROUNDS] [TOKENS] [TEMPERATURE] [tasks|chat|prose|calls]   tokens/s, and ratios of each round
//   drafts_bench run SETTING [as for speed]        one engine alone, for a profiler: its steps, and how long the device waited
//   drafts_bench accept [tasks|chat|prose]...      overlap and acceptance by place, by all kinds of verification
//   drafts_bench answers                           what the model says to them
// DRAFTS_BENCH_BACKEND=cuda takes another backend than the CPU. Answers to tasks and calls end where they end.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "deepinfer/engine.h"
#include "overlap.h"
#include "texts.h"

namespace {

using namespace deepinfer;
using Clock = std::chrono::steady_clock;

const std::string kModel = std::string(DI_SOURCE_DIR) + "/models/deepseek-v41-tiny";

[[noreturn]] void Fail(const std::string& why) {
  fmt::print(stderr, "drafts_bench: {}\n", why);
  std::exit(1);
}

std::unique_ptr<Engine> Open(const std::string& drafts, const std::string& rule = "coupled", int running_max = 0) {
  EngineOptions options{.model_directory = kModel};
  if (running_max > 0) options.requests_running_max = running_max;
  if (const char* backend = std::getenv("DRAFTS_BENCH_BACKEND")) options.backend = backend;
  options.context_max = 1024;
  options.drafts = drafts;
  options.verification = rule;
  std::string why;
  auto engine = Engine::Open(options, &why);
  if (engine == nullptr) Fail(why);
  return engine;
}

struct Work {
  int streams = 1;
  int64_t tokens = 64;
  float temperature = 0;
  bool to_the_end = false;  // answers end where they end, not at `tokens`
};

using Answers = std::vector<std::vector<int32_t>>;

// Seconds for `streams` answers at once.
double Run(Engine& engine, const Prompts& prompts, const Work& work, int round, Answers* all) {
  all->assign(static_cast<size_t>(work.streams), {});
  Answers& answers = *all;
  std::vector<GenerationId> open;
  const auto start = Clock::now();
  for (int s = 0; s < work.streams; ++s) {
    GenerationRequest request;
    request.prompt = prompts[static_cast<size_t>(s + round) % prompts.size()];
    request.max_tokens = work.tokens;
    request.ignore_eos = !work.to_the_end;
    request.temperature = work.temperature;
    request.seed = static_cast<uint64_t>(round * 1000 + s);
    std::string why;
    auto* answer = &answers[static_cast<size_t>(s)];
    open.push_back(engine.Submit(request, [answer](const Output& o) { if (o.token >= 0) answer->push_back(o.token); }, &why));
    if (open.back() == 0) Fail(why);
  }
  for (const GenerationId id : open) engine.Wait(id);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

size_t NumTokens(const Answers& answers) {
  size_t n = 0;
  for (const auto& answer : answers) n += answer.size();
  return n;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What a step of the engine took, its prompts' steps included.
void PrintStep(const std::string& setting, const Engine& engine, double seconds) {
  const EngineStats stats = engine.Stats();
  const auto steps = static_cast<double>(stats.steps);
  fmt::print("    {:>4}: {} steps of {:.0f} us, {:.2f} tokens and room for {:.2f} rows\n", setting, stats.steps, 1e6 * seconds / steps,
             static_cast<double>(stats.answer_tokens) / steps, static_cast<double>(stats.rows) / steps);
}

void RunOne(const std::string& setting, const Work& work, int rounds, const std::string& kind) {
  const Prompts prompts = MakePrompts(kModel, kind);
  const auto engine = Open(setting, "coupled", work.streams);  // no larger, so that little is run before the first step
  Answers answers;
  double seconds = 0;
  for (int round = 0; round < rounds; ++round) seconds += Run(*engine, prompts, work, round, &answers);
  PrintStep(setting, *engine, seconds);
  fmt::print("          the device waited {:.3f} of {:.3f} s\n", engine->Stats().device_idle_seconds, seconds);
}

void Speed(const Work& work, int rounds, const std::string& kind) {
  const Prompts prompts = MakePrompts(kModel, kind);
  const std::vector<std::string> settings = {"off", "5", "auto"};
  std::vector<std::unique_ptr<Engine>> engines;
  for (const std::string& setting : settings) engines.push_back(Open(setting));
  std::map<std::string, std::vector<double>> rates;
  std::map<std::string, double> total_seconds;
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    std::vector<Answers> ids(settings.size());
    for (size_t k = 0; k < settings.size(); ++k) {
      const size_t e = (k + static_cast<size_t>(round + 1)) % settings.size();
      const double seconds = Run(*engines[e], prompts, work, round + 1, &ids[e]);
      total_seconds[settings[e]] += seconds;
      const double rate = static_cast<double>(NumTokens(ids[e])) / seconds;
      if (round >= 0) rates[settings[e]].push_back(rate);
    }
    for (const auto& other : ids) {
      if (other != ids[0]) Fail("tokens differ between the settings");
    }
  }
  std::vector<double> to_best, to_none, five_to_none;
  for (size_t r = 0; r < static_cast<size_t>(rounds); ++r) {
    to_none.push_back(rates["auto"][r] / rates["off"][r]);
    five_to_none.push_back(rates["5"][r] / rates["off"][r]);
    to_best.push_back(rates["auto"][r] / std::max(rates["off"][r], rates["5"][r]));
  }
  std::vector<double> deviation;
  for (const double ratio : to_best) deviation.push_back(std::abs(ratio - Median(to_best)));
  const EngineStats five = engines[1]->Stats(), stats = engines[2]->Stats();
  fmt::print("{:3} streams: always 5: {:.2f} tokens a step\n", work.streams,
             static_cast<double>(five.answer_tokens) / static_cast<double>(five.steps) / work.streams);
  for (size_t e = 0; e < settings.size(); ++e) PrintStep(settings[e], *engines[e], total_seconds[settings[e]]);
  int64_t verified = 0;
  for (const int64_t n : stats.drafts_verified) verified += n;
  fmt::print("{:3} streams: as they pay: {:.2f} drafts made and {:.2f} verified a step\n", work.streams,
             static_cast<double>(stats.drafts_made) / static_cast<double>(stats.steps),
             static_cast<double>(verified) / static_cast<double>(stats.steps));
  fmt::print("{:3} streams: expected gain of drafts {:.2f}, error of calibration {:.3f}, deciding {:.2f} us a step\n",
             work.streams, stats.draft_gain, stats.draft_calibration_error,
             1e6 * stats.draft_schedule_seconds / static_cast<double>(stats.steps));
  fmt::print("{:3} streams, {}, temperature {}: none {:6.0f}, always 5 {:6.0f}, as they pay {:6.0f} tokens/s; "
             "always 5 / none {:.3f}, as they pay / none {:.3f}, / best of both {:.3f} (spread {:.3f})\n",
             work.streams, kind, work.temperature, Median(rates["off"]), Median(rates["5"]), Median(rates["auto"]),
             Median(five_to_none), Median(to_none), Median(to_best), Median(deviation));
}

// A row of a table.
void PrintRow(const std::string& what, const std::vector<double>& places, double tokens) {
  std::string cells;
  for (const double place : places) cells += fmt::format(" {:.2f} |", place);
  fmt::print("| {} |{} {:.2f} |\n", what, cells, tokens);
  std::fflush(stdout);
}

// What the engine accepts with five drafts in every step: by place, given that all before it were accepted.
void PrintAccepted(const std::string& what, const Prompts& prompts, const std::string& rule, Work work) {
  const auto engine = Open("5", rule);
  Answers answers;
  for (int round = 0; round < (work.temperature > 0 ? 4 : 1); ++round) Run(*engine, prompts, work, round * work.streams, &answers);
  const EngineStats stats = engine->Stats();
  std::vector<double> places;
  double accepted = 0;
  for (size_t j = 0; j < stats.drafts_verified.size(); ++j) {
    const auto looked = static_cast<double>(j == 0 ? stats.drafts_verified[0] : stats.drafts_accepted[j - 1]);
    places.push_back(looked > 0 ? static_cast<double>(stats.drafts_accepted[j]) / looked : 0);
    accepted += static_cast<double>(stats.drafts_accepted[j]);
  }
  PrintRow(fmt::format("{}: {}, {}", what, rule, work.temperature > 0 ? fmt::format("temperature {}", work.temperature) : "greedy"),
           places, 1 + accepted / static_cast<double>(stats.drafts_verified[0]));
}

void Accept(const std::vector<std::string>& kinds) {
  for (const std::string& kind : kinds) {
    const Prompts prompts = MakePrompts(kModel, kind);
    Work work{.streams = static_cast<int>(prompts.size()), .tokens = 160, .to_the_end = true};
    const auto plain = Open("off");
    for (const float temperature : {1.0F, 0.0F}) {
      work.temperature = temperature;
      std::vector<Text> texts;
      for (int round = 0; round < (temperature > 0 ? 2 : 1); ++round) {
        Answers answers;
        Run(*plain, prompts, work, round * work.streams, &answers);
        for (size_t i = 0; i < prompts.size(); ++i) {
          texts.push_back({.ids = prompts[i], .begin = prompts[i].size()});
          texts.back().ids.insert(texts.back().ids.end(), answers[i].begin(), answers[i].end());
        }
      }
      const OverlapResult overlap = Overlap(kModel, texts);
      PrintRow(kind + (temperature > 0 ? ": overlap, on answers sampled at temperature 1" : ": overlap, on greedy answers"),
               overlap.places, overlap.tokens);
      if (temperature > 0) PrintRow(kind + ": rejection, temperature 1, computed from those", overlap.walk_places, overlap.walk_tokens);
    }
    work.temperature = 0;
    PrintAccepted(kind, prompts, "coupled", work);
    for (const float temperature : {0.6F, 1.0F}) {
      work.temperature = temperature;
      for (const std::string rule : {"coupled", "rejection", "block"}) PrintAccepted(kind, prompts, rule, work);
    }
  }
}

// What the model answers to the prompts, so that one sees what is measured.
void PrintAnswers() {
  const auto engine = Open("off");
  for (const std::string kind : {"tasks", "chat", "prose"}) {
    for (const std::vector<int32_t>& prompt : MakePrompts(kModel, kind)) {
      std::string text, why;
      GenerationRequest request{.prompt = prompt, .max_tokens = 60};
      engine->Wait(engine->Submit(request, [&](const Output& o) { text += o.text; }, &why));
      fmt::print("{}: {}\n", kind, text);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "speed";
  if (what == "accept" || what == "answers") {
    const std::vector<std::string> all = {"tasks", "chat", "prose"};
    what == "answers" ? PrintAnswers() : Accept(argc > 2 ? std::vector<std::string>(argv + 2, argv + argc) : all);
    return 0;
  }
  const bool one = what == "run";
  const std::vector<std::string> args(argv + std::min(argc, one ? 3 : 2), argv + argc);
  const auto number = [&](size_t i, double usual) { return i < args.size() ? std::atof(args[i].c_str()) : usual; };
  const std::string kind = args.size() > 4 ? args[4] : "chat";
  const Work work{.streams = static_cast<int>(number(0, 1)),
                  .tokens = static_cast<int64_t>(number(2, 64)),
                  .temperature = static_cast<float>(number(3, 0)),
                  .to_the_end = kind == "calls" || kind == "tasks"};
  const int rounds = static_cast<int>(number(1, 9));
  if (one) {
    RunOne(argc > 2 ? argv[2] : "off", work, rounds, kind);
  } else {
    Speed(work, rounds, kind);
  }
  return 0;
}
