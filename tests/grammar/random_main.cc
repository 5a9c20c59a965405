// SPDX-License-Identifier: Apache-2.0
// grammar_random: random regexes, GBNF and Lark grammars, and JSON strings with a random pattern, against the slow matcher.
//
//   grammar_random [--seed S] [--count N] [--seconds T]
//
// Grammar number i of seed S depends on S + i alone, so a disagreement is reproduced by the seed that it prints and
// --count 1. Along a random walk, at each step: every token is allowed exactly if the slow matcher reads its bytes, the
// stop exactly at complete texts, and something is allowed; rollback and fork come back to the same masks; ForcedTokens
// gives the tokens that have no alternative.
#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "deepinfer/grammar.h"
#include "random_grammar.h"
#include "slow_string.h"

namespace deepinfer::grammar {
namespace {

constexpr uint32_t kStop = 256;
constexpr int kSteps = 9;

std::vector<std::string> Tokens() {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
  tokens.emplace_back("");
  for (const char* text : {"aa", "ab", "ba", "bb", "abb", "baab", "c ", " a", "a<", "\xC3\xA9", "a\xC3\xA9", "\xA9" "b", "\xE6\xB1", "ccc", "bc", "  ",
                           "\"a", "a\"", "\\u", "\\u00", "\\u006", "\\u0061", "\\u0062b", "b\\", "\\n", "\\\"", "\\u00e9", "\\ud83d",
                           "\\uD8", "\\ude00", "61", "\\u003C\""}) {
    tokens.emplace_back(text);
  }
  return tokens;
}

// Slow: SlowMatcher or SlowString.
template <typename Slow>
class Walk {
 public:
  Walk(const CompiledGrammar& grammar, Slow slow, const std::vector<std::string>& tokens, std::mt19937* random)
      : matcher_(grammar), slow_(std::move(slow)), tokens_(tokens), random_(*random) {}

  // What disagreed, or nothing.
  std::optional<std::string> Run() {
    for (int step = 0; step < kSteps; ++step) {
      std::vector<uint32_t> allowed;
      if (auto wrong = CompareMask(&allowed)) return wrong;
      if (allowed.empty()) return Say("nothing is allowed");
      if (auto wrong = CompareForced(allowed)) return wrong;
      const uint32_t token = allowed[random_() % allowed.size()];
      if (token == kStop) return std::nullopt;
      Matcher fork = matcher_.Fork();
      if (!matcher_.Accept(token).ok() || !fork.Accept(token).ok()) return Say("an allowed token is refused");
      slow_.AcceptAll(tokens_[token]);
      taken_.push_back(token);
      if (random_() % 4 == 0) {
        matcher_ = std::move(fork);
        const size_t back = random_() % (taken_.size() + 1);
        matcher_.Rollback(back);
        for (size_t i = 0; i < back; ++i, taken_.pop_back()) slow_.Pop(tokens_[taken_.back()].size());
      }
    }
    return std::nullopt;
  }

 private:
  std::string Say(const std::string& what) const {
    std::string text;
    for (uint32_t token : taken_) text += tokens_[token];
    return what + " after <" + text + ">";
  }
  bool Expected(uint32_t token) { return token == kStop ? slow_.IsComplete() : slow_.CanAccept(tokens_[token]); }

  std::optional<std::string> CompareMask(std::vector<uint32_t>* allowed) {
    std::vector<uint32_t> mask((tokens_.size() + 31) / 32);
    if (Status status = matcher_.FillMask(mask); !status.ok()) return Say(status.message());
    if (matcher_.IsComplete() != slow_.IsComplete()) return Say("complete or not");
    for (uint32_t token = 0; token < tokens_.size(); ++token) {
      const bool bit = (mask[token / 32] >> (token % 32) & 1) != 0;
      if (bit != Expected(token)) return Say(fmt::format("token {} <{}> {}", token, tokens_[token], bit ? "is allowed" : "is missing"));
      if (bit) allowed->push_back(token);
    }
    return std::nullopt;
  }

  std::optional<std::string> CompareForced(const std::vector<uint32_t>& allowed) {
    const std::vector<uint32_t> forced = matcher_.ForcedTokens(1);
    const bool only = allowed.size() == 1;
    if (forced.size() != (only ? 1u : 0u) || (only && forced[0] != allowed[0])) return Say("forced tokens");
    return std::nullopt;
  }

  Matcher matcher_;
  Slow slow_;
  const std::vector<std::string>& tokens_;
  std::mt19937& random_;
  std::vector<uint32_t> taken_;
};

// A JSON string whose text matches the pattern.
Constraint StringOf(const std::string& pattern) {
  std::string schema = R"({"type":"string","pattern":)";
  AppendJsonString("^(?:" + pattern + ")$", false, &schema);
  return Constraint::JsonSchema(schema + "}");
}

struct Totals {
  size_t grammars = 0, refused = 0, unsatisfiable = 0, walks = 0;
};

// What disagreed, or nothing.
std::optional<std::string> One(uint32_t seed, const std::vector<std::string>& tokens, const std::shared_ptr<const Vocabulary>& vocabulary,
                               Totals* totals) {
  std::mt19937 random(seed);
  const size_t kind = random() % 4;
  const bool in_string = kind == 3;
  const Notation notation = in_string ? Notation::kRegex : static_cast<Notation>(kind);
  const RandomGrammar grammar(&random, notation);
  SlowGrammar slow = grammar.Slow();
  const bool satisfiable = slow.Prune();
  const std::string text = grammar.Text();
  CompileOptions options;
  if (random() % 2 == 0) options.spelling = Spelling::kUsual;
  const Constraint constraint = in_string                      ? StringOf(text)
                                : notation == Notation::kRegex ? Constraint::Regex(text)
                                : notation == Notation::kGbnf  ? Constraint::Grammar(text)
                                                               : Constraint::Lark(text);
  auto compiled = Compile(constraint, vocabulary, options);
  ++totals->grammars;
  if (!compiled.ok() && compiled.status().message().find("left-recursive") != std::string::npos) {
    ++totals->refused;
    return std::nullopt;
  }
  if (compiled.ok() != satisfiable) return text + (compiled.ok() ? "no text can be derived" : compiled.status().message());
  if (!compiled.ok()) {
    ++totals->unsatisfiable;
    return std::nullopt;
  }
  for (int i = 0; i < 2; ++i, ++totals->walks) {
    const auto wrong = in_string ? Walk(*compiled, SlowString(&slow, options.spelling == Spelling::kUsual), tokens, &random).Run()
                                 : Walk(*compiled, SlowMatcher(&slow), tokens, &random).Run();
    if (wrong) return (in_string ? "in a string: " : "") + text + "\n" + *wrong;
  }
  return std::nullopt;
}

int Main(int argc, char** argv) {
  uint32_t seed = 1;
  size_t count = SIZE_MAX;
  double seconds = 1e9;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--seed") seed = static_cast<uint32_t>(std::stoul(argv[i + 1]));
    if (flag == "--count") count = std::stoul(argv[i + 1]);
    if (flag == "--seconds") seconds = std::stod(argv[i + 1]);
  }
  const std::vector<std::string> tokens = Tokens();
  const auto vocabulary = Vocabulary::Create(tokens, {}, std::vector<uint32_t>{kStop});
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  Totals totals;
  size_t wrong = 0;
  for (size_t i = 0; i < count && std::chrono::steady_clock::now() < end; ++i) {
    const uint32_t own_seed = seed + static_cast<uint32_t>(i);
    if (auto what = One(own_seed, tokens, vocabulary, &totals)) {
      ++wrong;
      fmt::print("DISAGREE seed {}: {}\n", own_seed, *what);
    }
  }
  fmt::print("seed {}: {} grammars ({} left-recursive ones refused, {} without any text), {} walks, {} disagreements\n", seed, totals.grammars,
             totals.refused, totals.unsatisfiable, totals.walks, wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace deepinfer::grammar

int main(int argc, char** argv) { return deepinfer::grammar::Main(argc, argv); }
