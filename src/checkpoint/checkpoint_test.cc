// SPDX-License-Identifier: Apache-2.0
// Property: the checkpoints of the repository open, whatever their geometry and storage, without unexpected tensors.
#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

namespace deepinfer::checkpoint {
namespace {

class OpenTest : public testing::TestWithParam<const char*> {};

TEST_P(OpenTest, OpensWithoutWarnings) {
  const Result<Checkpoint> opened = Checkpoint::Open(std::string(DI_SOURCE_DIR) + "/" + GetParam());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  std::vector<std::string> warnings = opened->warnings();
  std::erase(warnings, "files that are not part of the checkpoint, not read: golden.safetensors");
  std::erase(warnings, "files that are not part of the checkpoint, not read: golden.safetensors, replay.safetensors");
  EXPECT_EQ(warnings, std::vector<std::string>());
  EXPECT_EQ(opened->has_draft(), opened->config().draft.present());
  EXPECT_FALSE(opened->has_vision());
  EXPECT_TRUE(opened->CheckIntact().ok());
}

INSTANTIATE_TEST_SUITE_P(Repository, OpenTest,
                         testing::Values("tests/golden/model/base", "tests/golden/model/window",
                                         "tests/golden/model/sources", "tests/golden/model/engram",
                                         "tests/golden/model/yarn", "tests/golden/model/image", "tests/golden/dspark",
                                         "models/deepseek-v41-tiny"));

}  // namespace
}  // namespace deepinfer::checkpoint
