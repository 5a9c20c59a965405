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

// What came of one schema; peers.py writes the same.
struct SchemaResult {
  std::string name, outcome = "pass", message;
  double compile_us = 0;
  size_t tokens = 0;
  std::vector<double> mask_us;

  std::string Line() const {
    std::string line = "{\"name\":";
    AppendJsonString(name, false, &line);
    line += fmt::format(",\"outcome\":\"{}\",\"message\":", outcome);
    AppendJsonString(message, false, &line);
    line += fmt::format(",\"compile_us\":{:.1f},\"tokens\":{},\"mask_us\":[", compile_us, tokens);
    for (size_t i = 0; i < mask_us.size(); ++i) line += fmt::format("{}{:.1f}", i == 0 ? "" : ",", mask_us[i]);
    return line + "]}\n";
  }
};

struct Bench {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<uint32_t> mask;
  double slow_us = 1e18;
  std::string name;  // of the schema at hand

  // Whether the text is accepted token by token and complete at its end.
  Result<bool> Accepts(const CompiledGrammar& grammar, const std::vector<TokenId>& tokens, std::vector<double>* mask_us) {
    Matcher matcher(grammar);
    std::string text;
    for (TokenId token : tokens) {
      const double start = NowMicros();
      const Status filled = matcher.FillMask(mask);
      const bool ok = filled.ok() && (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0 &&
                      matcher.Accept(static_cast<uint32_t>(token)).ok();
      mask_us->push_back(NowMicros() - start);
      if (mask_us->back() > slow_us) {
        const std::string_view tail = std::string_view(text).substr(text.size() - std::min<size_t>(text.size(), 60));
        fmt::print("slow: {:.0f} us in {} after {} at <{}>\n", mask_us->back(), name, tail, tokenizer->TokenBytes(token));
      }
      DI_RETURN_IF_ERROR(filled);
      if (!ok) return false;
      text += tokenizer->TokenBytes(token);
    }
    return matcher.IsComplete();
  }

  SchemaResult Schema(const Json& entry) {
    SchemaResult result;
    result.name = name = entry.Find("name")->AsString();
    std::vector<std::pair<std::vector<TokenId>, bool>> tests;
    for (const Json& test : entry.Find("tests")->Items()) {
      tests.emplace_back(*tokenizer->EncodePlain(test.Find("data")->AsString()), test.Find("valid")->AsBool());
      result.tokens += tests.back().first.size();
    }
    CompileOptions options;
    options.limits.time = std::chrono::seconds(5);  // wall time, on a machine that others use too
    const double start = NowMicros();
    auto compiled = Compile(Constraint::JsonSchema(entry.Find("schema")->AsString()), vocabulary, options);
    result.compile_us = NowMicros() - start;
    if (!compiled.ok()) {
      result.outcome = "refused";
      result.message = compiled.status().message();
      return result;
    }
    for (size_t i = 0; i < tests.size(); ++i) {
      const Result<bool> accepted = Accepts(*compiled, tests[i].first, &result.mask_us);
      const bool valid = tests[i].second;
      if (accepted.ok() && *accepted == valid) continue;
      if (result.outcome == "wrong accept") continue;
      result.outcome = !accepted.ok() ? "error" : valid ? "wrong reject" : "wrong accept";
      result.message = fmt::format("test {}{}", i, accepted.ok() ? "" : ": " + accepted.status().message());
    }
    return result;
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
  size_t number = 0;
  std::vector<double> compile_us, mask_us;
  std::map<std::string, size_t> outcomes;
  for (const Json& entry : ReadJsonLines(argv[2])) {
    if ((!only.empty() && entry.Find("name")->AsString() != only) || number++ % every != 0) continue;
    const SchemaResult result = bench.Schema(entry);
    ++outcomes[result.outcome];
    if (result.outcome != "refused") compile_us.push_back(result.compile_us);
    mask_us.insert(mask_us.end(), result.mask_us.begin(), result.mask_us.end());
    if (out) out << result.Line();
    if (!only.empty()) fmt::print("{}: {}\n", result.outcome, result.message);
  }
  for (const auto& [outcome, n] : outcomes) fmt::print("{} {}  ", n, outcome);
  fmt::print("\n");
  PrintQuantiles("compile", compile_us);
  PrintQuantiles("mask", mask_us);
  return 0;
}

}  // namespace
}  // namespace deepinfer::grammar

int main(int argc, char** argv) { return deepinfer::grammar::Main(argc, argv); }
