// SPDX-License-Identifier: Apache-2.0
// How fast one core parses a model's output: bytes of output a second of CPU time, in the default and the compatible profile, for
// text in pieces and ids in steps, in each stage, best of several runs. Beside it memcpy of the same bytes in the same
// run, and what the writer of each protocol costs for one delta.
//   recipe_output_bench [MEGABYTES]
// Ends with 1 where a profile falls under 200 MB/s with ids in steps of 16.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "recipe/output/output_parser.h"
#include "recipe/output/response_writer.h"

namespace deepinfer::recipe {
namespace {

constexpr int kRuns = 5;
constexpr double kMustMegabytes = 200;

// CPU time of this thread, so that others on the machine do not count.
double Seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The shortest of some runs.
template <typename F>
double Best(F&& run) {
  double best = 1e9;
  for (int i = 0; i < kRuns; ++i) {
    const double begin = Seconds();
    run();
    best = std::min(best, Seconds() - begin);
  }
  return best;
}

struct Material {
  const char* name;
  std::string before;  // what leads into the stage
  std::string line;    // repeated
};

const Material kMaterials[] = {
    {"English prose", "</think>", "The tide tables for the harbour list two high waters a day, and both are late.\n"},
    {"Chinese prose", "</think>", "潮汐表列出了港口每天的两次高潮，今天的两次都比平时晚了一些。\n"},
    {"code", "</think>", "  if (a < b && items[i].size() > 0) {\n    return \"x\" + std::to_string(i);\n  }\n"},
    {"reasoning", "", "Wait, the second value cannot be right; let me compute it again from the table.\n\n"},
    {"string argument",
     "</think>\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"k\" string=\"true\">",
     "def f(x):\n    return {\"a\": x, \"b\": [1, 2, 3]}  # one line of a file\n"},
};

ParseOptions Options() {
  ParseOptions options;
  options.parse_tool_calls = true;
  options.stage = ThinkingStage::kReasoningStart;
  options.stop_sequences = {"STOP", "\nUser:"};
  return options;
}

std::unique_ptr<OutputParser> NewParser(Profile profile, const OutputVocabulary& vocabulary) {
  OutputLimits limits;
  limits.arguments_bytes_max = size_t{1} << 30;
  limits.output_bytes_max = size_t{1} << 30;
  return *OutputParser::Create(Options(), profile, &vocabulary, limits);
}

double TextSpeed(Profile profile, const OutputVocabulary& vocabulary, const Material& material,
                 const std::string& text, size_t step) {
  OutputEvents events;
  const double seconds = Best([&] {
    const auto parser = NewParser(profile, vocabulary);
    (void)parser->PushText(material.before, 1, &events);
    for (size_t i = 0; i < text.size(); i += step) {
      events.Clear();
      (void)parser->PushText(std::string_view(text).substr(i, step), 1, &events);
    }
  });
  return static_cast<double>(text.size()) / 1e6 / seconds;
}

double IdSpeed(Profile profile, const OutputVocabulary& vocabulary, const std::vector<TokenId>& before,
               const std::vector<TokenId>& ids, size_t bytes, size_t step) {
  OutputEvents events;
  const double seconds = Best([&] {
    const auto parser = NewParser(profile, vocabulary);
    (void)parser->PushTokens(before, {}, &events);
    for (size_t i = 0; i < ids.size(); i += step) {
      events.Clear();
      (void)parser->PushTokens(std::span(ids).subspan(i, std::min(step, ids.size() - i)), {}, &events);
    }
  });
  return static_cast<double>(bytes) / 1e6 / seconds;
}

void WriterSpeed(const OutputVocabulary& vocabulary, const std::vector<TokenId>& ids) {
  const std::pair<const char*, Protocol> kProtocols[] = {
      {"chat", Protocol::kChat}, {"responses", Protocol::kResponses}, {"messages", Protocol::kMessages}};
  for (const auto& [name, protocol] : kProtocols) {
    const size_t count = std::min<size_t>(ids.size(), 200'000);
    const double seconds = Best([&] {
      AnswerOptions options;
      options.protocol = protocol;
      AnswerContext context;
      context.id = "r1";
      context.model = "deepseek";
      const auto writer = ResponseWriter::Create(std::move(context), options, {}, Profile::kDefault);
      const auto parser = *OutputParser::Create({}, Profile::kDefault, &vocabulary);
      OutputEvents events;
      std::vector<SseEvent> sse;
      for (size_t i = 0; i < count; ++i) {
        events.Clear();
        sse.clear();
        (void)parser->PushTokens({&ids[i], 1}, {}, &events);
        writer->Add(0, events, &sse);
      }
    });
    fmt::print("{:<10} parser and writer: {:6.0f} ns a token\n", name, seconds / static_cast<double>(count) * 1e9);
  }
}

int Main(size_t megabytes) {
  const auto tokenizer = Tokenizer::Load(DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json");
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.status().message());
    return 1;
  }
  const auto vocabulary = OutputVocabulary::Create(**tokenizer);
  double slowest = 1e9;
  fmt::print("MB/s of output, one core, {} MB a run, best of {}\n\n", megabytes, kRuns);
  fmt::print("{:<16}{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "", "", "text 4096", "text 4", "ids 64", "ids 16", "ids 1");
  std::vector<TokenId> prose;
  for (const Material& material : kMaterials) {
    std::string text;
    while (text.size() < megabytes * 1'000'000) text += material.line;
    const std::vector<TokenId> ids = *(*tokenizer)->Encode(text);
    const std::vector<TokenId> before = *(*tokenizer)->Encode(material.before);
    if (prose.empty()) prose = ids;
    std::string copy(text.size(), '\0');
    const double copied = Best([&] { std::memcpy(copy.data(), text.data(), text.size()); });
    for (const auto& [name, profile] : {std::pair("default", Profile::kDefault), {"compatible", Profile::kCompatible}}) {
      const double steps = IdSpeed(profile, *vocabulary, before, ids, text.size(), 16);
      slowest = std::min(slowest, steps);
      fmt::print("{:<16}{:<12}{:>10.0f}{:>10.0f}{:>10.0f}{:>10.0f}{:>10.0f}\n", material.name, name,
                 TextSpeed(profile, *vocabulary, material, text, 4096), TextSpeed(profile, *vocabulary, material, text, 4),
                 IdSpeed(profile, *vocabulary, before, ids, text.size(), 64), steps,
                 IdSpeed(profile, *vocabulary, before, ids, text.size(), 1));
    }
    fmt::print("{:<16}memcpy {:.0f} MB/s, {:.2f} bytes a token\n", "", static_cast<double>(text.size()) / 1e6 / copied,
               static_cast<double>(text.size()) / static_cast<double>(ids.size()));
  }
  fmt::print("\n");
  WriterSpeed(*vocabulary, prose);
  fmt::print("\nslowest with ids in steps of 16: {:.0f} MB/s (must be over {:.0f})\n", slowest, kMustMegabytes);
  return slowest > kMustMegabytes ? 0 : 1;
}

}  // namespace
}  // namespace deepinfer::recipe

int main(int argc, char** argv) {
  return deepinfer::recipe::Main(argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) : 16);
}
