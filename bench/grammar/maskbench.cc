// SPDX-License-Identifier: Apache-2.0
// MaskBench: compiles each schema, then walks its instances token by token, computing the mask at every position.
//
//   maskbench TOKENIZER_JSON SCHEMAS.jsonl.xz [--out RESULTS.jsonl] [--name ONE_SCHEMA] [--every N] [--slow US]
//
// Tokens, order of work and what counts as passing are those of the suite's own runner, with one addition: a valid
// instance must also be complete at its end. bench/grammar/peers.py runs other engines on the same file.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>

#include "deepinfer/grammar.h"
#include "tokenizer/tokenizer.h"
#include "xz.h"

namespace deepinfer::grammar {
inline long g_c[8];
namespace {

// CPU time of this thread: what other programs on the machine do does not count.
double NowMicros() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}
double MicrosSince(double start) { return NowMicros() - start; }

void PrintQuantiles(const char* what, std::vector<double> values) {
  if (values.empty()) return;
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (double v : values) sum += v;
  const auto at = [&](double q) {
    return values[std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())))];
  };
  fmt::print("{}: n {} mean {:.1f} p50 {:.1f} p90 {:.1f} p99 {:.1f} p99.9 {:.1f} max {:.1f} us\n", what, values.size(),
             sum / static_cast<double>(values.size()), at(.5), at(.9), at(.99), at(.999), values.back());
}

struct Bench {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<uint32_t> mask;
  std::vector<double> compile_us, mask_us;
  std::map<std::string, int> outcomes;
  double sum_us = 0, max_us = 0;  // of the schema at hand
  double slow_us = 1e18;

  std::string Instance(const CompiledGrammar& grammar, const Json& test) {
    auto tokens = tokenizer->EncodePlain(test.Find("data")->AsString());
    const bool valid = test.Find("valid")->AsBool();
    Matcher matcher(grammar);
    bool accepted = true;
    std::string text;
    for (TokenId token : *tokens) {
      for (long& x : g_c) x = 0;
      const auto start = NowMicros();
      const Status filled = matcher.FillMask(mask);
      const bool ok = filled.ok() && (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0 &&
                      matcher.Accept(static_cast<uint32_t>(token)).ok();
      mask_us.push_back(MicrosSince(start));
      sum_us += mask_us.back();
      max_us = std::max(max_us, mask_us.back());
      if (mask_us.back() > slow_us) {
        const std::string_view tail = std::string_view(text).substr(text.size() - std::min<size_t>(text.size(), 60));
        fmt::print("slow: {:.0f} us after {} at <{}>\n", mask_us.back(), tail, tokenizer->TokenBytes(token));
      }
      text += tokenizer->TokenBytes(token);
      if (!filled.ok()) return "limit: " + filled.message();
      if (ok) continue;
      accepted = false;
      break;
    }
    accepted = accepted && matcher.IsComplete();
    return accepted == valid ? "" : valid ? "wrong reject" : "wrong accept";
  }

  std::string Schema(const Json& entry) {
    CompileOptions options;
    options.limits.time = std::chrono::seconds(5);  // wall time, on a machine that others use too
    const auto start = NowMicros();
    auto compiled = Compile(Constraint::JsonSchema(entry.Find("schema")->AsString()), vocabulary, options);
    const double us = MicrosSince(start);
    if (!compiled.ok()) return "refused: " + compiled.status().message();
    compile_us.push_back(us);
    std::string outcome = "pass";
    size_t i = 0;
    for (const Json& test : entry.Find("tests")->Items()) {
      const std::string one = Instance(*compiled, test);
      if (!one.empty()) outcome = fmt::format("{} (test {})", one, i);
      ++i;
    }
    return outcome;
  }
};

int Main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print("usage: maskbench TOKENIZER_JSON SCHEMAS.jsonl.xz [--out FILE] [--name NAME] [--every N] [--slow US]\n");
    return 2;
  }
  std::string out_path, only;
  size_t every = 1;
  double slow_us = 1e18;
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--out") out_path = argv[i + 1];
    if (flag == "--name") only = argv[i + 1];
    if (flag == "--slow") slow_us = std::stod(argv[i + 1]);
    if (flag == "--every") every = std::stoul(argv[i + 1]);
  }
  auto tokenizer = Tokenizer::Load(argv[1]);
  if (!tokenizer.ok()) return fmt::print("{}\n", tokenizer.status().message()), 1;
  Bench bench;
  bench.slow_us = slow_us;
  bench.tokenizer = *tokenizer;
  std::vector<std::string> bytes;
  std::vector<uint32_t> special;
  for (TokenId id = 0; id < bench.tokenizer->vocab_size(); ++id) {
    bytes.emplace_back(bench.tokenizer->TokenBytes(id));
    if (bench.tokenizer->IsAdded(id)) special.push_back(static_cast<uint32_t>(id));
  }
  const uint32_t stop[] = {1};
  const auto start = NowMicros();
  bench.vocabulary = Vocabulary::Create(bytes, special, stop);
  fmt::print("vocabulary: {} tokens, {:.0f} ms\n", bench.vocabulary->size(), MicrosSince(start) / 1000);
  bench.mask.resize(bench.vocabulary->mask_words());
  std::ofstream out(out_path);
  size_t count = 0, number = 0;
  for (const Json& entry : ReadJsonLines(argv[2])) {
    const std::string& name = entry.Find("name")->AsString();
    if ((!only.empty() && name != only) || number++ % every != 0) continue;
    ++count;
    bench.sum_us = bench.max_us = 0;
    const std::string outcome = bench.Schema(entry);
    ++bench.outcomes[outcome.substr(0, outcome.find_first_of(":("))];
    if (out) {
      std::string line = "{\"name\":";
      AppendJsonString(name, false, &line);
      line += ",\"outcome\":";
      AppendJsonString(outcome, false, &line);
      out << line << fmt::format(",\"compile_us\":{:.0f},\"mask_us\":{:.0f},\"mask_max_us\":{:.0f}}}\n",
                                bench.compile_us.empty() ? 0 : bench.compile_us.back(), bench.sum_us, bench.max_us);
    }
    if (!only.empty()) fmt::print("{}\n", outcome);
  }
  fmt::print("schemas: {}", count);
  for (const auto& [outcome, n] : bench.outcomes) fmt::print(", {} {}", outcome, n);
  fmt::print("\n");
  PrintQuantiles("compile", bench.compile_us);
  PrintQuantiles("mask", bench.mask_us);
  return 0;
}

}  // namespace
}  // namespace deepinfer::grammar

int main(int argc, char** argv) { return deepinfer::grammar::Main(argc, argv); }
