// SPDX-License-Identifier: Apache-2.0
// Property: a choice with a grammar draws only what the grammar allows, ends only where it may, never gets stuck without
// an error that says why; masks prepared for drafts change nothing.
#include "engine/choice.h"

#include <gtest/gtest.h>

namespace deepinfer::engine {
namespace {

// Bytes are tokens 0..255; 256 ends the thinking, 257 is the model's end token, 258 and 259 are "ab" and "bc".
constexpr int32_t kThinkEnd = 256, kEnd = 257;
constexpr size_t kVocab = 260;

std::shared_ptr<const grammar::Vocabulary> MakeVocabulary() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  tokens.insert(tokens.end(), {"", "", "ab", "bc"});
  const uint32_t special[] = {kThinkEnd}, stop[] = {kEnd};
  return grammar::Vocabulary::Create(tokens, special, stop);
}

ChoiceSettings Settings() {
  return {.max_tokens = 50, .end_tokens = {kEnd}, .model_end_tokens = {kEnd}, .mask_words = (kVocab + 31) / 32};
}

class ChoiceTest : public ::testing::Test {
 protected:
  AnswerGrammar Grammar(const grammar::Constraint& constraint, std::optional<int32_t> after = {}) {
    const auto compiled = grammar::Compile(constraint, vocabulary_, {});
    EXPECT_TRUE(compiled.ok()) << compiled.status().message();
    return AnswerGrammar(*compiled, after);
  }
  // Draws up to the end; the logits prefer the bytes of `script` one after the other (whichever of them is next), then
  // `otherwise`, then any other token by its id. `drafts`: that many script bytes are prepared as drafts each time.
  std::string Run(Choice& choice, std::string_view script, int32_t otherwise = kEnd, size_t drafts = 0) {
    std::string text;
    size_t next = 0;
    for (uint32_t position = 0;; ++position) {
      std::vector<float> logits(kVocab);
      for (size_t t = 0; t < kVocab; ++t) logits[t] = -static_cast<float>(t) / kVocab;
      logits[static_cast<size_t>(otherwise)] = 5;
      if (next < script.size()) logits[static_cast<uint8_t>(script[next])] = 10;
      std::vector<int32_t> ahead;
      for (size_t i = next; i < script.size() && ahead.size() < drafts; ++i) ahead.push_back(static_cast<uint8_t>(script[i]));
      if (drafts > 0) choice.PrepareMasks(ahead);
      last_ = choice.Draw(logits, position);
      if (last_.failed || last_.is_end_token) return text;
      if (last_.token < 256) text += static_cast<char>(last_.token);
      if (last_.token == kThinkEnd) text += '|';
      if (next < script.size() && last_.token == static_cast<uint8_t>(script[next])) ++next;
      if (last_.ends) return text;
    }
  }

  std::shared_ptr<const grammar::Vocabulary> vocabulary_ = MakeVocabulary();
  Drawn last_;
};

TEST_F(ChoiceTest, DrawsWhatTheGrammarAllowsAndEndsWithIt) {
  for (const size_t drafts : {0, 1, 5}) {
    Choice plain(Settings(), {}, Grammar(grammar::Constraint::Choice({"yes", "no"})));
    EXPECT_EQ(Run(plain, "maybe, no, yes", kEnd, drafts), "no");  // of m, only "n" and "y" are allowed: the smaller id
    EXPECT_TRUE(last_.is_end_token);
    Choice json(Settings(), {}, Grammar(grammar::Constraint::JsonSchema(
                                    R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})")));
    EXPECT_EQ(Run(json, R"({"a":12})", kEnd, drafts), R"({"a":12})");
    EXPECT_TRUE(last_.is_end_token);
  }
}

TEST_F(ChoiceTest, MaxTokensCutsAPrefix) {  // B42
  ChoiceSettings settings = Settings();
  settings.max_tokens = 1;
  Choice choice(settings, {}, Grammar(grammar::Constraint::Regex("[a-z]{10}")));
  EXPECT_EQ(Run(choice, "Qqqq"), "a");
  EXPECT_TRUE(last_.ends && !last_.is_end_token);
}

TEST_F(ChoiceTest, TheGrammarBeginsBehindItsToken) {
  for (const size_t drafts : {0, 1, 2, 3, 4, 5, 6}) {
    Choice choice(Settings(), {}, Grammar(grammar::Constraint::Regex("[0-9]+"), kThinkEnd));
    // The end token is preferred after "hm", but the thinking must end first; then digits only.
    EXPECT_EQ(Run(choice, "hm", kThinkEnd, drafts), "hm|" + std::string(47, '0')) << drafts;
    Choice ends(Settings(), {}, Grammar(grammar::Constraint::Regex("[0-9]+"), kThinkEnd));
    EXPECT_EQ(Run(ends, "", kEnd, drafts).find_first_of("|"), std::string::npos);  // token 0 and on: never the end token
    EXPECT_FALSE(last_.is_end_token);
  }
}

TEST_F(ChoiceTest, DraftsCrossTheBeginningOfTheGrammar) {  // B28
  Choice choice(Settings(), {}, Grammar(grammar::Constraint::Regex("[0-9]+"), kThinkEnd));
  const auto prefers = [](int32_t token) {
    std::vector<float> logits(kVocab, 0);
    logits[static_cast<size_t>(token)] = 5;
    logits['7'] = 1;
    return logits;
  };
  const auto drafts = [&] {
    std::vector<int32_t> tokens;
    for (const int32_t token : {int32_t{'h'}, kThinkEnd, int32_t{'h'}, int32_t{'4'}, kThinkEnd, kEnd}) {
      tokens.push_back(choice.Draft(prefers(token), static_cast<uint32_t>(tokens.size())).value_or(-1));
    }
    choice.DropDrafts();
    return tokens;
  };
  const std::vector<int32_t> expected = {'h', kThinkEnd, '7', '4', '7', kEnd};
  EXPECT_EQ(drafts(), expected);
  EXPECT_EQ(drafts(), expected);  // nothing was changed
  EXPECT_EQ(choice.Draw(prefers('h'), 0).token, 'h');
}

TEST_F(ChoiceTest, MinTokensAndIgnoreEosYieldToTheGrammar) {  // B32
  ChoiceSettings settings = Settings();
  settings.min_tokens = 10;
  Choice finished(settings, {}, Grammar(grammar::Constraint::Regex("yes")));
  EXPECT_EQ(Run(finished, "yes, more"), "yes");
  EXPECT_TRUE(last_.is_end_token);
  Choice open(settings, {}, Grammar(grammar::Constraint::Regex("y+")));
  EXPECT_EQ(Run(open, ""), std::string(10, 'y'));
  EXPECT_TRUE(last_.is_end_token);
  settings.min_tokens = settings.max_tokens;  // ignore_eos
  Choice endless(settings, {}, Grammar(grammar::Constraint::Regex("y+")));
  EXPECT_EQ(Run(endless, ""), std::string(50, 'y'));
}

TEST_F(ChoiceTest, BadWordsAgainstTheGrammarAreAnErrorThatSaysSo) {
  ChoiceSettings settings = Settings();
  settings.bad_words = {{'e'}};
  Choice choice(settings, {}, Grammar(grammar::Constraint::Regex("yes")));
  EXPECT_EQ(Run(choice, "yes"), "y");
  EXPECT_TRUE(last_.failed);
  EXPECT_NE(last_.error.find("bad_words"), std::string::npos) << last_.error;
  EXPECT_NE(last_.error.find("grammar"), std::string::npos) << last_.error;
}

TEST_F(ChoiceTest, ForksGoTheirOwnWays) {
  const AnswerGrammar start = Grammar(grammar::Constraint::Choice({"left", "right"}));
  Choice left(Settings(), {}, start.Fork()), right(Settings(), {}, start.Fork());
  EXPECT_EQ(Run(left, "left"), "left");
  EXPECT_EQ(Run(right, "right"), "right");
}

TEST_F(ChoiceTest, ALateDrawBehindTheEndFailsQuietly) {
  Choice choice(Settings(), {}, Grammar(grammar::Constraint::Regex("a")));
  EXPECT_EQ(Run(choice, "a"), "a");
  EXPECT_TRUE(last_.is_end_token);
  EXPECT_EQ(Run(choice, "a"), "");
  EXPECT_TRUE(last_.failed);
}

}  // namespace
}  // namespace deepinfer::engine
