// SPDX-License-Identifier: Apache-2.0
// Property: works end with their masks there and nobody's choices held; slow ones hold up no quick ones; what waits when the
// worker goes leaves nothing behind.
#include "engine/mask_worker.h"

#include <gtest/gtest.h>

#include <string>

#include "deepinfer/grammar.h"

namespace deepinfer::engine {
namespace {

using std::chrono::milliseconds;
using Clock = MaskWorker::Clock;

constexpr uint32_t kStop = 256;

std::shared_ptr<Choice> MakeChoice() {
  static const auto vocabulary = [] {
    std::vector<std::string> tokens;
    for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
    tokens.emplace_back("");
    return grammar::Vocabulary::Create(tokens, {}, std::vector<uint32_t>{kStop});
  }();
  const auto compiled = grammar::Compile(grammar::Constraint::Regex("[a-z]{5}"), vocabulary, {});
  EXPECT_TRUE(compiled.ok());
  return std::make_shared<Choice>(ChoiceSettings{.max_tokens = 10, .mask_words = vocabulary->mask_words()}, std::vector<int32_t>{1},
                                  AnswerGrammar(*compiled, std::nullopt));
}

std::shared_ptr<MaskWork> Ask(const std::shared_ptr<Choice>& choice, bool slow) {
  const std::shared_ptr<MaskWork>& work = choice->mask_work();
  work->items.push_back({choice, {'a', 'b'}});
  if (slow) work->NoteSeconds(1);
  return work;
}

TEST(MaskWorker, WorksEndWithTheirMasks) {
  MaskWorker worker;
  std::vector<std::shared_ptr<Choice>> choices;
  for (int i = 0; i < 20; ++i) {
    choices.push_back(MakeChoice());
    EXPECT_FALSE(choices.back()->has_mask());
    worker.Start(Ask(choices.back(), i % 5 == 0));
  }
  for (const auto& choice : choices) {
    worker.Wait(*choice->mask_work());
    EXPECT_FALSE(choice->mask_work()->busy);
    EXPECT_TRUE(choice->has_mask());
    EXPECT_EQ(choice.use_count(), 1);
  }
  EXPECT_EQ(worker.done(), choices.size());
}

TEST(MaskWorker, NobodyWaitsForSlowOnes) {
  MaskWorker worker;
  worker.set_delay(milliseconds(100));
  std::vector<std::shared_ptr<Choice>> slow, quick;
  for (int i = 0; i < 10; ++i) worker.Start(Ask(slow.emplace_back(MakeChoice()), true));
  worker.Start(Ask(quick.emplace_back(MakeChoice()), false));
  worker.WaitForQuick(Clock::now() + std::chrono::seconds(60));
  EXPECT_FALSE(quick[0]->mask_work()->busy);
  EXPECT_TRUE(slow.back()->mask_work()->busy);
  const uint64_t done = worker.done();
  EXPECT_LT(done, 10u);
  worker.WaitForMore(done, Clock::now() + std::chrono::seconds(60));
  EXPECT_GT(worker.done(), done);
  worker.WaitForMore(1000, Clock::now() + milliseconds(1));  // a deadline ends it
}

TEST(MaskWorker, LeavesNothingBehind) {
  std::vector<std::weak_ptr<Choice>> choices;
  {
    MaskWorker worker;
    worker.set_delay(milliseconds(20));
    for (int i = 0; i < 8; ++i) {
      const std::shared_ptr<Choice> choice = MakeChoice();
      choices.push_back(choice);
      worker.Start(Ask(choice, i % 2 == 0));
    }
  }
  for (const std::weak_ptr<Choice>& choice : choices) EXPECT_TRUE(choice.expired());
}

TEST(MaskWork, IsSlowForSomeMasks) {
  MaskWork work;
  EXPECT_FALSE(work.slow());
  work.NoteSeconds(0.01);
  for (int i = 0; i < 16; ++i, work.NoteSeconds(1e-5)) EXPECT_TRUE(work.slow()) << i;
  EXPECT_FALSE(work.slow());
}

}  // namespace
}  // namespace deepinfer::engine
