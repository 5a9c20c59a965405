// SPDX-License-Identifier: Apache-2.0
// Property: a model is found as a directory, as org/name, or in the hub's cache layout by branch, tag or commit; what
// is not there is said with what was looked for, and no name leads out of the model directory.
#include "checkpoint/locate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint_files.h"

namespace deepinfer::checkpoint {
namespace {

namespace fs = std::filesystem;
using core::TemporaryDirectory;
using testing::AllOf;
using testing::HasSubstr;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

class LocateTest : public testing::Test {
 protected:
  LocateTest() {
    options_.model_dir = dir_.path();
    options_.offline = true;
  }
  void MakeModel(const std::string& directory) {
    fs::create_directories(directory);
    CheckpointFiles::Golden("model/base").Write(directory);
    WriteText(directory + "/tokenizer.json", "{}");
  }
  std::string Found(const std::string& model) {
    const Result<std::string> found = LocateModel(model, options_);
    return found.ok() ? *found : found.status().message();
  }

  TemporaryDirectory dir_;
  LocateOptions options_;
};

TEST_F(LocateTest, Directory) {
  EXPECT_EQ(Found(dir_.path()), dir_.path());
  EXPECT_THAT(Found(dir_ / "absent"), HasSubstr("no such directory"));
  EXPECT_THAT(Found("./absent/model"), HasSubstr("no such directory"));
}

TEST_F(LocateTest, PlainFolder) {
  MakeModel(dir_ / "org/name");
  EXPECT_EQ(Found("org/name"), dir_ / "org/name");
  EXPECT_THAT(Found("org/name@v2"), HasSubstr("org/name@v2: not in"));
}

TEST_F(LocateTest, HubCache) {
  const std::string folder = dir_ / "models--org--name";
  const std::string snapshot = folder + "/snapshots/" + kCommit;
  EXPECT_THAT(Found("org/name"), AllOf(HasSubstr("not in"), HasSubstr(folder), HasSubstr("offline")));
  MakeModel(snapshot);
  EXPECT_EQ(Found("org/name"), snapshot) << "the only one";
  EXPECT_EQ(Found(std::string("org/name@") + kCommit), snapshot);
  EXPECT_THAT(Found("org/name@main"), HasSubstr("not in"));
  fs::create_directories(folder + "/refs/pr");
  WriteText(folder + "/refs/main", std::string(kCommit) + "\n");
  WriteText(folder + "/refs/pr/1", kCommit);
  EXPECT_EQ(Found("org/name@main"), snapshot);
  EXPECT_EQ(Found("org/name@pr/1"), snapshot);
  MakeModel(folder + "/snapshots/ffffffffffffffffffffffffffffffffffffffff");
  EXPECT_EQ(Found("org/name"), snapshot);
  WriteText(folder + "/refs/main", "../../../../etc");
  EXPECT_THAT(Found("org/name"), HasSubstr("not in"));
  fs::remove(snapshot + "/tokenizer.json");
  EXPECT_THAT(Found("org/name@pr/1"), AllOf(HasSubstr("not complete"), HasSubstr("tokenizer.json")));
}

TEST_F(LocateTest, NamesStayInside) {
  for (const char* name : {"", "name", "a/b/c", "../x", "a/..", "a/../b", "a/b@", "a/b@../x", "a/b@x/../y", "a/b@/x",
                           "a/b@-x", "a b/c", "a/b\n", "a--b/c", "-a/b", "a/b%2F", ".a/b", "a/b@x//y"}) {
    const Status status = LocateModel(name, options_).status();
    EXPECT_FALSE(status.ok()) << name;
    EXPECT_TRUE(status.code() == Code::kInvalidArgument || std::string_view(name).starts_with("../")) << name;
  }
}

TEST_F(LocateTest, NoModelDirectory) {
  options_.model_dir = "";
  EXPECT_THAT(Found("org/name"), HasSubstr("no model directory is set"));
}

}  // namespace
}  // namespace deepinfer::checkpoint
