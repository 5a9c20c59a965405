// SPDX-License-Identifier: Apache-2.0
// What each way of rebuilding windows after a prefix hit costs and changes (docs/replay.md).
//   replay_bench [MODEL_DIR] [REPEATS] [stories|documents|tasks] > replay.json   (without the last: all three)
//   python3 bench/replay/plot.py replay.json docs/replay.svg                     (of the stories)
//
// Cost and logits, on one sequence: a prefix of P tokens whose global rows are there, then 64 more tokens of prompt, then
// 128 given tokens. For each setting the rows that run, the time until the prompt's last logits, and how the logits of the
// given tokens differ from those of `none`. Texts: stories that the model wrote itself, and this repository's documents.
// Tasks, through the engine: questions behind a story that is in the cache; how many answers are right, and how many are
// those of `none` to the letter.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "deepinfer/engine.h"
#include "deepinfer/recipe.h"
#include "engine/kv_memory.h"
#include "engine/session.h"
#include "sampling/sampler.h"
#include "sched/replay.h"

namespace {

using namespace deepinfer;
using Clock = std::chrono::steady_clock;

constexpr int32_t kTail = 64;    // prompt tokens behind the hit
constexpr int32_t kGiven = 128;  // tokens whose logits are compared

template <typename T>
T Must(Result<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().message().c_str());
  std::exit(1);
}

struct Setting {
  const char* name;
  sched::Replay replay;
  bool snapshot;
};
constexpr Setting kSettings[] = {{"none", sched::Replay::kNone, false},
                                 {"exact, trapezoid", sched::Replay::kExact, false},
                                 {"exact, snapshot", sched::Replay::kExact, true},
                                 {"decoder", sched::Replay::kDecoder, false},
                                 {"bounded", sched::Replay::kBounded, false}};

struct Measured {
  int64_t rows = 0, token_layers = 0;
  double seconds = 0;
  std::vector<float> logits;  // [kGiven, vocab], of the prompt's last row first
};

class Runner {
 public:
  explicit Runner(const engine::LoadedModel& loaded)
      : loaded_(loaded), shape_(engine::ShapeOf(loaded.config())), session_(Must(engine::Session::Create(loaded, {}))) {}

  // `text` has hit + kTail + kGiven tokens.
  Measured Run(const Setting& setting, std::span<const TokenId> text, int32_t hit) {
    const int64_t prompt = hit + kTail;
    const auto layers = static_cast<size_t>(shape_.num_layers);
    engine::Replay replay{.run_from = std::vector<int32_t>(layers + 1), .window_floor = std::vector<int32_t>(layers)};
    const bool hits = setting.replay != sched::Replay::kNone;
    const sched::ReplayInput input{.setting = setting.replay,
                                   .prompt_length = prompt,
                                   .length = prompt,
                                   // Under kDecoder a hit inside the last window is not taken.
                                   .hit = !hits ? 0 : setting.replay == sched::Replay::kDecoder ? hit - 128 : hit,
                                   .early_snapshot = setting.snapshot,
                                   .late_snapshot = setting.snapshot};
    const sched::ReplayStarts starts = sched::ComputeReplay(shape_, input, replay.run_from);
    for (size_t l = 0; l < layers; ++l) {
      const auto group = static_cast<int32_t>(l) < shape_.first_late() ? kv::kEarly : kv::kLate;
      replay.window_floor[l] = static_cast<int32_t>(starts.floor[group]);
    }
    replay.global_floor = static_cast<int32_t>(input.hit);
    session_->Clear();
    if (hits) {
      // Complete windows at the hit only where a snapshot is supposed to be there.
      Must(session_->Append({.ids = text.first(static_cast<size_t>(hit)),
                             .logits = setting.snapshot ? engine::Logits::kAll : engine::Logits::kLast}));
      if (!setting.snapshot) session_->Rewind(static_cast<int32_t>(std::min<int64_t>(starts.first_row, input.hit)));
    }
    const auto done = static_cast<size_t>(hits ? hit : 0);
    const auto begin = Clock::now();
    Measured measured{.rows = prompt - starts.first_row, .token_layers = starts.token_layers};
    measured.logits = Must(session_->Append({.ids = text.subspan(done, static_cast<size_t>(prompt) - done), .replay = &replay}));
    measured.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const auto more = Must(session_->Append({.ids = text.subspan(static_cast<size_t>(prompt), kGiven - 1),
                                             .logits = engine::Logits::kAll,
                                             .replay = &replay}));
    measured.logits.insert(measured.logits.end(), more.begin(), more.end());
    return measured;
  }

  size_t vocab() const { return static_cast<size_t>(loaded_.config().vocab_size); }

 private:
  const engine::LoadedModel& loaded_;
  sched::LayerShape shape_;
  std::unique_ptr<engine::Session> session_;
};

// Sums over many positions.
struct Quality {
  double max_difference = 0, sum_difference = 0, sum_logprob = 0;
  int64_t logits = 0, positions = 0, same_top = 0, right = 0;

  void Add(std::span<const float> actual, std::span<const float> expected, std::span<const TokenId> given, size_t vocab) {
    for (size_t i = 0; i < actual.size(); ++i) {
      const double difference = std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i]));
      max_difference = std::max(max_difference, difference);
      sum_difference += difference;
    }
    logits += static_cast<int64_t>(actual.size());
    for (size_t p = 0; p < given.size(); ++p) {
      const auto row = actual.subspan(p * vocab, vocab);
      const int32_t top = sampling::ArgMax(row);
      same_top += top == sampling::ArgMax(expected.subspan(p * vocab, vocab));
      right += top == given[p];
      sum_logprob += static_cast<double>(sampling::ComputeLogprobs(row, given[p], 0).chosen);
      ++positions;
    }
  }
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// ----- texts

std::vector<TokenId> Documents(const engine::LoadedModel& loaded) {
  std::string text;
  for (const char* name : {"README.md", "docs/architecture.md", "docs/scheduling.md", "docs/recipe.md", "docs/checkpoint.md",
                           "docs/tokenizer.md", "docs/drafts.md", "docs/grammar.md"}) {
    std::ifstream file(std::string(DI_SOURCE_DIR) + "/" + name);
    std::stringstream content;
    content << file.rdbuf();
    text += content.str();
  }
  return Must(loaded.tokenizer().EncodePlain(text));
}

// Stories as the model writes them at temperature 0.8, one behind the other.
std::vector<TokenId> Stories(Engine& engine, size_t tokens) {
  constexpr const char* kBeginnings[] = {"Once upon a time", "One day, a little girl", "Tom and Anna",
                                         "There was a big dog", "In the forest", "Lily had a"};
  std::vector<std::vector<TokenId>> parts(tokens / 150);
  std::vector<GenerationId> ids;
  std::string why;
  for (size_t i = 0; i < parts.size(); ++i) {
    GenerationRequest request{.prompt = engine.Tokenize(kBeginnings[i % 6]), .max_tokens = 300, .temperature = 0.8F, .seed = i};
    parts[i].assign(request.prompt.begin() + 1, request.prompt.end());
    const auto collect = [&parts, i](const Output& o) {
      if (o.token >= 0 && !o.is_end_token) parts[i].push_back(o.token);
    };
    ids.push_back(engine.Submit(request, collect, &why));
  }
  std::vector<TokenId> all;
  for (size_t i = 0; i < parts.size(); ++i) {
    engine.Wait(ids[i]);
    all.insert(all.end(), parts[i].begin(), parts[i].end());
  }
  return all;
}

void PrintCosts(const engine::LoadedModel& loaded, const std::vector<std::pair<std::string, std::vector<TokenId>>>& texts, int repeats) {
  Runner runner(loaded);
  std::printf("\"sequences\": [\n");
  bool first = true;
  for (const auto& [name, text] : texts) {
    for (const int32_t hit : {256, 1024, 4096, 8192}) {
      const auto length = static_cast<size_t>(hit + kTail + kGiven);
      if (text.size() < length) continue;
      std::vector<Quality> quality(std::size(kSettings));
      std::vector<std::vector<double>> seconds(std::size(kSettings));
      std::vector<Measured> last(std::size(kSettings));
      const int windows = hit >= 4096 ? std::max(1, repeats / 2) : repeats;
      for (int w = 0; w < windows; ++w) {
        const size_t at = (text.size() - length) * static_cast<size_t>(w) / static_cast<size_t>(windows);
        const auto part = std::span(text).subspan(at, length);
        for (size_t s = 0; s < std::size(kSettings); ++s) {
          last[s] = runner.Run(kSettings[s], part, hit);
          seconds[s].push_back(last[s].seconds);
          quality[s].Add(last[s].logits, last[0].logits, part.last(kGiven), runner.vocab());
        }
      }
      for (size_t s = 0; s < std::size(kSettings); ++s) {
        const Quality& q = quality[s];
        const auto n = static_cast<double>(q.positions);
        std::printf("%s{\"text\": \"%s\", \"hit\": %d, \"setting\": \"%s\", \"rows\": %lld, \"token_layers\": %lld, \"ms\": %.2f, ",
                    first ? "" : ",\n", name.c_str(), hit, kSettings[s].name, static_cast<long long>(last[s].rows),
                    static_cast<long long>(last[s].token_layers), Median(seconds[s]) * 1e3);
        std::printf("\"max_difference\": %.4g, \"mean_difference\": %.4g, \"top1_agreement\": %.4f, \"perplexity\": %.3f, "
                    "\"accuracy\": %.4f}",
                    q.max_difference,
                    q.sum_difference / static_cast<double>(q.logits), static_cast<double>(q.same_top) / n, std::exp(-q.sum_logprob / n),
                    static_cast<double>(q.right) / n);
        first = false;
        std::fflush(stdout);
      }
    }
  }
  std::printf("]");
}

// ----- tasks

struct Task {
  std::string kind, question, answer;
};

std::vector<Task> Tasks() {
  std::vector<Task> tasks;
  constexpr const char* kCapitals[][2] = {
      {"France", "Paris"}, {"Japan", "Tokyo"},    {"Italy", "Rome"},    {"Spain", "Madrid"},     {"Germany", "Berlin"},  {"Egypt", "Cairo"},
      {"Russia", "Moscow"}, {"China", "Beijing"}, {"Canada", "Ottawa"}, {"Greece", "Athens"},    {"Poland", "Warsaw"},   {"Norway", "Oslo"},
      {"Sweden", "Stockholm"}, {"Portugal", "Lisbon"}, {"Ireland", "Dublin"}, {"Cuba", "Havana"}};
  for (const auto& [country, city] : kCapitals) {
    tasks.push_back({"capitals", std::string("What is the capital of ") + country + "?", city});
  }
  std::mt19937 random(5);
  for (int i = 0; i < 24; ++i) {
    const unsigned a = 1 + random() % 9, b = 1 + random() % 9;
    const auto sum = std::to_string(a + b);
    tasks.push_back({"sums", "What is " + std::to_string(a) + " + " + std::to_string(b) + "?", "= " + sum});
  }
  return tasks;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') {
      quoted += "\\n";
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// A story was asked for and told, and now comes the question.
std::vector<int32_t> TaskPrompt(const recipe::Recipe& recipe, const std::string& story, const Task& task) {
  const std::string body = "{\"model\": \"deepseek-v4.1\", \"messages\": [{\"role\": \"user\", \"content\": \"Tell me a story.\"}, "
                           "{\"role\": \"assistant\", \"content\": " + Quoted(story) + "}, "
                           "{\"role\": \"user\", \"content\": " + Quoted(task.question) + "}]}";
  recipe::RequestError error;
  const auto prepared = recipe.Prepare(recipe::Protocol::kChat, body, &error);
  if (prepared == nullptr) {
    std::fprintf(stderr, "%s\n", error.message.c_str());
    std::exit(1);
  }
  return prepared->ids();
}

void PrintTasks(const std::string& directory, const std::string& story) {
  std::string why;
  const auto recipe = recipe::Recipe::Load(directory + "/tokenizer.json", {.default_thinking = false}, &why);
  EngineOptions options{.model_directory = directory};
  options.drafts = "off";
  const auto engine = Engine::Open(options, &why);
  constexpr std::pair<const char*, ReplaySetting> kNames[] = {{"none", ReplaySetting::kNone},
                                                              {"exact", ReplaySetting::kExact},
                                                              {"decoder", ReplaySetting::kDecoder},
                                                              {"bounded", ReplaySetting::kBounded}};
  std::printf(",\n\"tasks\": [\n");
  bool first = true;
  for (const size_t length : {600, 2400, 6000}) {  // bytes of story before the question
    const std::string text = story.substr(0, story.find(' ', length));
    std::vector<Task> tasks = Tasks();
    std::vector<std::string> expected;
    for (const auto& [name, setting] : kNames) {
      std::map<std::string, std::array<int, 3>> counts;  // kind -> right, as `none`, all
      int64_t cached = 0, prompts = 0;
      for (size_t i = 0; i < tasks.size(); ++i) {
        GenerationRequest request{.prompt = TaskPrompt(*recipe, text, tasks[i]), .max_tokens = 24, .replay = setting};
        request.cache_salt = std::string(name) + std::to_string(length);
        // The text comes first, as a request of its own would leave it: exact, whole blocks.
        GenerationRequest warm = request;
        warm.replay = ReplaySetting::kExact;
        warm.max_tokens = 1;
        warm.prompt.resize(warm.prompt.size() - std::min<size_t>(warm.prompt.size() - 1, 20));
        if (setting != ReplaySetting::kNone) engine->Wait(engine->Submit(warm, [](const Output&) {}, &why));
        std::string answer;
        engine->Wait(engine->Submit(
            request,
            [&](const Output& o) {
              answer += o.text;
              if (o.finished) cached += o.cached_tokens, prompts += o.prompt_tokens;
            },
            &why));
        if (setting == ReplaySetting::kNone) expected.push_back(answer);
        auto& [right, same, all] = counts[tasks[i].kind];
        right += answer.find(tasks[i].answer) != std::string::npos;
        same += answer == expected[i];
        ++all;
      }
      for (const auto& [kind, c] : counts) {
        std::printf("%s{\"task\": \"%s\", \"setting\": \"%s\", \"prompt_tokens\": %lld, \"cached_share\": %.3f, \"right\": %d, "
                    "\"as_none\": %d, \"all\": %d}",
                    first ? "" : ",\n", kind.c_str(), name, static_cast<long long>(prompts / static_cast<int64_t>(tasks.size())),
                    static_cast<double>(cached) / static_cast<double>(prompts), c[0], c[1], c[2]);
        first = false;
      }
      std::fflush(stdout);
    }
  }
  std::printf("]");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : std::string(DI_SOURCE_DIR) + "/models/deepseek-v41-tiny";
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 4;
  const auto loaded = Must(engine::LoadedModel::Load(directory, {.name = "cpu"}));
  std::string why;
  EngineOptions options{.model_directory = directory};
  options.drafts = "off";
  std::vector<TokenId> stories;
  {
    const auto writer = Engine::Open(options, &why);
    stories = Stories(*writer, 12000);
  }
  const std::string part = argc > 3 ? argv[3] : "";
  std::vector<std::pair<std::string, std::vector<TokenId>>> texts;
  if (part.empty() || part == "stories") texts.emplace_back("stories", stories);
  if (part.empty() || part == "documents") texts.emplace_back("documents", Documents(*loaded));
  std::printf("{\"engine\": \"%s\",\n", engine::NumericIdentity(loaded->backend(), backend::Activations::kFp32).c_str());
  PrintCosts(*loaded, texts, repeats);
  if (part.empty() || part == "tasks") PrintTasks(directory, loaded->tokenizer().Decode(stories));
  std::printf("\n}\n");
}
