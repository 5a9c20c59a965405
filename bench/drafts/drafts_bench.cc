// SPDX-License-Identifier: Apache-2.0
// Speed of decoding without drafts, with all drafts in every step, and with as many as pay: one engine each in one process,
// interleaved rounds, so that what disturbs the machine disturbs them alike. The outputs are the same tokens (checked).
//   drafts_bench speed [STREAMS] [ROUNDS] [TOKENS] [TEMPERATURE] [chat|prose|calls]   tokens/s, and ratios of each round
//   drafts_bench accept                                                               overlap and acceptance by place
// DRAFTS_BENCH_BACKEND=cuda takes another backend than the CPU. Tool calls end where they end.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "deepinfer/engine.h"
#include "deepinfer/recipe.h"
#include "overlap.h"
#include "recipe/encode.h"
#include "recipe/render.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace deepinfer;
using Clock = std::chrono::steady_clock;

const std::string kModel = std::string(DI_SOURCE_DIR) + "/models/deepseek-v41-tiny";

const std::vector<std::string> kChat = {
    "Tell me a short story about a dog that finds a ball.",
    "What is the capital of France?",
    "Write three sentences about the sea.",
    "Which day comes after Tuesday?",
    "Tell me a story about a girl named Lily and her red boat.",
    "What is 12 plus 7?",
    "Explain in simple words why people sleep.",
    "Write a short poem about winter.",
    "Tell me about a bird that could not fly.",
    "Give me a list of five fruits.",
    "Tell me a story about two friends who build a house.",
    "What do bees do all day?",
    "Write a short letter to a friend.",
    "What is the capital of Japan?",
    "Tell me a story about a king and a mouse.",
    "How do you make a cup of tea?",
};

const std::vector<std::string> kProse = {
    "It was a bright cold morning, and the men who had come down from the village stood about the gate",
    "The old captain had not spoken for an hour; he sat with his back to the fire and",
    "When the letter arrived, she read it twice, folded it, and went out into the garden where",
    "There are few things which a man of his age can do with more pleasure than",
    "In the year that followed the war the house stood empty, and the children of the neighbourhood",
    "He had always supposed that the road to the river would be longer, but",
    "The doctor looked at the paper for some time before he answered that",
    "At the far end of the room, under the portrait of her grandfather, Miss Alice was",
};

// Tool calls: what agents ask for, and what the bundled model was trained for.
const std::vector<std::string> kCities = {"Paris", "Tokyo", "Rome", "Madrid", "Berlin", "Cairo", "London", "Oslo"};

[[noreturn]] void Fail(const std::string& why) {
  fmt::print(stderr, "drafts_bench: {}\n", why);
  std::exit(1);
}

using Prompts = std::vector<std::vector<int32_t>>;

Prompts EncodeCalls() {
  std::string why;
  const auto recipe = recipe::Recipe::Load(kModel + "/tokenizer.json", {.default_thinking = false}, &why);
  if (recipe == nullptr) Fail(why);
  Prompts prompts;
  for (const std::string& city : kCities) {
    const std::string body =
        R"({"model": "any", "messages": [{"role": "user", "content": "What is the weather in )" + city + R"(?"}], "tools": [)"
        R"({"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city", "parameters": )"
        R"({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]})";
    recipe::RequestError error;
    const auto prepared = recipe->Prepare(recipe::Protocol::kChat, body, &error);
    if (prepared == nullptr) Fail(error.message);
    prompts.emplace_back(prepared->ids().begin(), prepared->ids().end());
  }
  return prompts;
}

Prompts Encode(const std::string& kind) {
  if (kind == "calls") return EncodeCalls();
  auto tokenizer = Tokenizer::Load(kModel + "/tokenizer.json");
  if (!tokenizer.ok()) Fail(tokenizer.status().message());
  const std::shared_ptr<const Tokenizer> shared = *std::move(tokenizer);
  const auto encoder = recipe::PromptEncoder::Make(shared);
  if (!encoder.ok()) Fail(encoder.status().message());
  Prompts prompts;
  if (kind == "prose") {
    for (const std::string& text : kProse) {
      std::vector<int32_t> ids = {0};
      const auto tokens = shared->EncodePlain(text);
      if (!tokens.ok()) Fail(tokens.status().message());
      ids.insert(ids.end(), tokens->begin(), tokens->end());
      prompts.push_back(std::move(ids));
    }
    return prompts;
  }
  for (const std::string& text : kChat) {
    recipe::Conversation conversation;
    conversation.messages.emplace_back(recipe::Role::kUser, recipe::Content(text));
    const auto ids = (*encoder)->Encode(recipe::RenderConversation(conversation, recipe::ModelVersion::kV41));
    if (!ids.ok()) Fail(ids.status().message());
    prompts.emplace_back(ids->begin(), ids->end());
  }
  return prompts;
}

std::unique_ptr<Engine> Open(const std::string& drafts) {
  EngineOptions options{.model_directory = kModel};
  if (const char* backend = std::getenv("DRAFTS_BENCH_BACKEND")) options.backend = backend;
  options.context_max = 1024;
  options.drafts = drafts;
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

void Speed(const Work& work, int rounds, const std::string& kind) {
  const Prompts prompts = Encode(kind);
  const std::vector<std::string> settings = {"off", "5", "auto"};
  std::vector<std::unique_ptr<Engine>> engines;
  for (const std::string& setting : settings) engines.push_back(Open(setting));
  std::map<std::string, std::vector<double>> rates;
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    std::vector<Answers> ids(settings.size());
    for (size_t k = 0; k < settings.size(); ++k) {
      const size_t e = (k + static_cast<size_t>(round + 1)) % settings.size();
      const double seconds = Run(*engines[e], prompts, work, round + 1, &ids[e]);
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
  int64_t verified = 0;
  for (const int64_t n : stats.drafts_verified) verified += n;
  fmt::print("{:3} streams: as they pay: {:.2f} drafts made and {:.2f} verified a step, {:.2f} rows a step\n", work.streams,
             static_cast<double>(stats.drafts_made) / static_cast<double>(stats.steps),
             static_cast<double>(verified) / static_cast<double>(stats.steps),
             static_cast<double>(stats.rows) / static_cast<double>(stats.steps));
  fmt::print("{:3} streams: expected gain of drafts {:.2f}, error of calibration {:.3f}, deciding {:.2f} us a step\n",
             work.streams, stats.draft_gain, stats.draft_calibration_error,
             1e6 * stats.draft_schedule_seconds / static_cast<double>(stats.steps));
  fmt::print("{:3} streams, {}, temperature {}: none {:6.0f}, always 5 {:6.0f}, as they pay {:6.0f} tokens/s; "
             "always 5 / none {:.3f}, as they pay / none {:.3f}, / best of both {:.3f} (spread {:.3f})\n",
             work.streams, kind, work.temperature, Median(rates["off"]), Median(rates["5"]), Median(rates["auto"]),
             Median(five_to_none), Median(to_none), Median(to_best), Median(deviation));
}

// Acceptance by place, given that all before it were accepted, as a line of a table.
std::string Line(const std::vector<double>& rates) {
  double tokens = 1, alive = 1;
  std::string line;
  for (const double rate : rates) {
    alive *= rate;
    tokens += alive;
    line += fmt::format(" {:.2f}", rate);
  }
  return fmt::format("{}   {:.2f} tokens a step", line, tokens);
}

void Accept() {
  for (const std::string kind : {"chat", "prose"}) {
    const Prompts prompts = Encode(kind);
    Work work{.streams = static_cast<int>(prompts.size()), .tokens = 160, .temperature = 1, .to_the_end = true};
    Answers answers;
    std::vector<Text> texts;
    const auto plain = Open("off");
    for (int round = 0; round < 2; ++round) {
      Run(*plain, prompts, work, round * work.streams, &answers);
      for (size_t i = 0; i < prompts.size(); ++i) {
        texts.push_back({.ids = prompts[i], .begin = prompts[i].size()});
        texts.back().ids.insert(texts.back().ids.end(), answers[i].begin(), answers[i].end());
      }
    }
    fmt::print("{:5}  overlap with the model, texts sampled at temperature 1 (what rejection accepts):{}\n", kind,
               Line(Overlap(kModel, texts)));
    for (const float temperature : {0.0F, 0.6F, 1.0F}) {
      const auto engine = Open("5");
      work.temperature = temperature;
      for (int round = 0; round < (temperature > 0 ? 2 : 1); ++round) Run(*engine, prompts, work, round * work.streams, &answers);
      const EngineStats stats = engine->Stats();
      std::vector<double> rates;
      for (size_t j = 0; j < stats.drafts_verified.size(); ++j) {
        const auto looked = static_cast<double>(j == 0 ? stats.drafts_verified[0] : stats.drafts_accepted[j - 1]);
        rates.push_back(looked > 0 ? static_cast<double>(stats.drafts_accepted[j]) / looked : 0);
      }
      fmt::print("{:5}  accepted, coupled noise, temperature {:.1f}:                                      {}\n", kind, temperature,
                 Line(rates));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "speed";
  if (what == "accept") {
    Accept();
    return 0;
  }
  const int streams = argc > 2 ? std::atoi(argv[2]) : 1;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 9;
  const Work work{.streams = streams,
                  .tokens = argc > 4 ? std::atoi(argv[4]) : 64,
                  .temperature = argc > 5 ? static_cast<float>(std::atof(argv[5])) : 0,
                  .to_the_end = argc > 6 && std::string(argv[6]) == "calls"};
  Speed(work, rounds, argc > 6 ? argv[6] : "chat");
  return 0;
}
