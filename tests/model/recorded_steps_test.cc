// SPDX-License-Identifier: Apache-2.0
// Property: steps that are recorded, padded in front with copies of their first row and replayed, give the bits of steps
// that are run op by op, and leave the same caches behind; so do steps whose branches run as late as they may. On every golden
// checkpoint, with steps of many sizes in turn.
#include "backend/reference/reference_backend.h"
#include "tests/model/golden.h"
#include "tests/model/late_branch_backend.h"
#include "tests/model/recording_backend.h"

namespace deepinfer::golden {
namespace {

using engine::LoadedModel;
using engine::Logits;
using engine::Session;

class RecordedSteps : public testing::TestWithParam<std::string> {};

TEST_P(RecordedSteps, GiveTheBitsOfPlainOnes) {
  const std::string directory = kModelDir + GetParam();
  const auto plain_model = Must(LoadedModel::Load(directory, backend::CreateReference()));
  auto made = std::make_unique<RecordingBackend>(backend::CreateReference());
  const RecordingBackend& recording = *made;
  const auto recorded_model = Must(LoadedModel::Load(directory, std::move(made)));
  const auto plain = Must(Session::Create(*plain_model, {.context_max = 160, .chunk = 16}));
  const auto recorded = Must(Session::Create(*recorded_model, {.context_max = 160, .chunk = 16}));
  // Sizes that are recorded as they are (1, 3, 8, 12, 16) and that are padded (9, 11, 13, 14, 15); each three times.
  int32_t token = 3;
  for (int round = 0; round < 3; ++round) {
    for (const size_t rows : {1, 9, 3, 11, 1, 14, 8, 1, 4}) {
      std::vector<TokenId> ids(rows);
      for (TokenId& id : ids) id = token = (token * 7 + 11) % 97 + 3;
      const auto expected = Must(plain->Append({.ids = ids, .logits = Logits::kAll}));
      const auto actual = Must(recorded->Append({.ids = ids, .logits = Logits::kAll}));
      ASSERT_EQ(actual, expected) << "round " << round << ", " << rows << " rows";
    }
  }
  EXPECT_GT(recording.replays(), 10);
  // A chunked prompt, in which rows are dropped and row arrays change places, then recorded steps again.
  plain->Clear();
  recorded->Clear();
  for (const size_t rows : {50, 1, 1, 1, 9, 30, 1, 9, 9, 1}) {
    std::vector<TokenId> ids(rows);
    for (TokenId& id : ids) id = token = (token * 5 + 17) % 97 + 3;
    ASSERT_EQ(Must(recorded->Append({.ids = ids})), Must(plain->Append({.ids = ids}))) << rows;
  }
}

TEST_P(RecordedSteps, BranchesNeedNothingOfWhatRunsBesideThem) {
  const std::string directory = kModelDir + GetParam();
  const auto plain_model = Must(LoadedModel::Load(directory, backend::CreateReference()));
  auto made = std::make_unique<LateBranchBackend>(backend::CreateReference());
  const LateBranchBackend& late = *made;
  const auto late_model = Must(LoadedModel::Load(directory, std::move(made)));
  const auto plain = Must(Session::Create(*plain_model, {.context_max = 160, .chunk = 16}));
  const auto branched = Must(Session::Create(*late_model, {.context_max = 160, .chunk = 16}));
  int32_t token = 3;
  for (const size_t rows : {1, 9, 3, 1, 14, 8, 1, 50, 1, 4}) {
    std::vector<TokenId> ids(rows);
    for (TokenId& id : ids) id = token = (token * 7 + 11) % 97 + 3;
    const auto expected = Must(plain->Append({.ids = ids, .logits = Logits::kAll}));
    ASSERT_EQ(Must(branched->Append({.ids = ids, .logits = Logits::kAll})), expected) << rows;
  }
  EXPECT_GT(late.late_ops(), 50);
}

INSTANTIATE_TEST_SUITE_P(All, RecordedSteps, testing::Values("base", "window", "sources", "engram", "yarn", "image"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace deepinfer::golden
