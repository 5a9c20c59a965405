// SPDX-License-Identifier: Apache-2.0
// Property: a download ends with a checkpoint that opens, or with an error that says what to do and leaves nothing that
// could be taken for one; broken transfers go on where they ended; the token never leaves the endpoint's host.
// Method: a server on the loopback interface plays the hub.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>

#include "checkpoint/hub_cache.h"
#include "checkpoint/locate.h"
#include "checkpoint_files.h"
#include "core/file.h"
#include "fake_hub.h"

namespace deepinfer::checkpoint {
namespace {

namespace fs = std::filesystem;
using core::TemporaryDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kShard[] = "model-00002-of-00002.safetensors";

class HubTest : public testing::Test {
 protected:
  HubTest() {
    for (const char* name : {"http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"}) unsetenv(name);
    const TemporaryDirectory source;
    CheckpointFiles::Golden("model/base").WriteSharded(source.path(), 2);
    for (const fs::directory_entry& entry : fs::directory_iterator(source.path())) {
      hub_.files[entry.path().filename().string()] = *ReadFile(entry.path().string(), size_t{1} << 24);
    }
    hub_.files["tokenizer.json"] =
        *ReadFile(std::string(DI_SOURCE_DIR) + "/tests/golden/model/base/tokenizer.json", size_t{1} << 24);
    hub_.files["README.md"] = "not needed";
    hub_.files["consolidated.safetensors"] = "not needed";
    options_.model_dir = dir_.path();
    options_.hub.endpoint = hub_.url();
    options_.hub.wait_first = std::chrono::milliseconds(1);
    options_.hub.attempts_max = 3;
  }

  Result<std::string> Locate() { return LocateModel("org/tiny", options_); }
  std::string folder() const { return dir_ / "models--org--tiny"; }

  // The part of a file that an interrupted run leaves.
  void LeaveIncomplete(const std::string& name, size_t size) {
    options_.hub.attempts_max = 1;
    hub_.intercept = [&](const std::string& asked, int, const FakeRequest&) -> std::optional<FakeResponse> {
      if (asked != name) return std::nullopt;
      return FakeResponse{.body = hub_.files[name], .cut_after = size};
    };
    EXPECT_EQ(Locate().status().code(), Code::kUnavailable);
    options_.hub.attempts_max = 3;
    hub_.intercept = nullptr;
  }

  int CountIncomplete() const {
    int count = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder() + "/blobs")) {
      count += entry.path().extension() == ".incomplete" ? 1 : 0;
    }
    return count;
  }

  TemporaryDirectory dir_;
  FakeHub hub_;
  LocateOptions options_;
};

TEST_F(HubTest, FetchesWhatACheckpointNeeds) {
  std::vector<DownloadProgress> reports;
  options_.hub.progress = [&](const DownloadProgress& report) {
    reports.push_back(report);
    return true;
  };
  const Result<std::string> directory = Locate();
  ASSERT_TRUE(directory.ok()) << directory.status().message();
  EXPECT_EQ(*directory, folder() + "/snapshots/" + FakeHub::kCommit);
  EXPECT_EQ(OpenError(*directory), "");
  EXPECT_EQ(*ReadFile(folder() + "/refs/main", 100), FakeHub::kCommit);
  EXPECT_EQ(*ReadFile(*directory + "/tokenizer.json", 1 << 24), hub_.files["tokenizer.json"]);
  EXPECT_TRUE(fs::is_symlink(*directory + "/" + kShard));
  EXPECT_FALSE(fs::exists(*directory + "/README.md"));
  EXPECT_FALSE(fs::exists(*directory + "/consolidated.safetensors"));
  EXPECT_EQ(CountIncomplete(), 0);
  for (const DownloadProgress& report : reports) {
    EXPECT_LE(report.file_done, report.file_size);
    EXPECT_LE(report.total_done, report.total_size);
  }
  // A second time nothing is asked for, also offline.
  const size_t requests = hub_.server().requests().size();
  options_.offline = true;
  EXPECT_EQ(*Locate(), *directory);
  EXPECT_EQ(hub_.server().requests().size(), requests);
}

TEST_F(HubTest, SingleFileCheckpoint) {
  const TemporaryDirectory source;
  CheckpointFiles::Golden("model/base").Write(source.path());
  std::erase_if(hub_.files, [](const auto& file) { return file.first.find("model-") == 0; });
  hub_.files.erase("model.safetensors.index.json");
  hub_.files["model.safetensors"] = *ReadFile(source / "model.safetensors", 1 << 24);
  const Result<std::string> directory = Locate();
  ASSERT_TRUE(directory.ok()) << directory.status().message();
  EXPECT_EQ(OpenError(*directory), "");
}

TEST_F(HubTest, BrokenTransferGoesOnWhereItEnded) {
  const size_t size = hub_.files[kShard].size();
  hub_.intercept = [&](const std::string& name, int count, const FakeRequest&) -> std::optional<FakeResponse> {
    if (name != kShard || count > 1) return std::nullopt;
    return FakeResponse{.body = hub_.files[kShard], .cut_after = size / 3};
  };
  const Result<std::string> directory = Locate();
  ASSERT_TRUE(directory.ok()) << directory.status().message();
  EXPECT_EQ(OpenError(*directory), "");
  EXPECT_THAT(hub_.Ranges(kShard), ElementsAre("", fmt::format("bytes={}-", size / 3)));
}

TEST_F(HubTest, LaterRunGoesOnWhereTheFirstEnded) {
  LeaveIncomplete(kShard, 1000);
  EXPECT_EQ(CountIncomplete(), 1);
  options_.offline = true;
  EXPECT_THAT(Locate().status().message(), AllOf(HasSubstr("offline"), HasSubstr("org/tiny")));
  EXPECT_FALSE(fs::exists(folder() + "/refs/main"));
  options_.offline = false;
  const Result<std::string> directory = Locate();
  ASSERT_TRUE(directory.ok()) << directory.status().message();
  EXPECT_EQ(OpenError(*directory), "");
  EXPECT_THAT(hub_.Ranges(kShard), ElementsAre("", "bytes=1000-"));
  EXPECT_THAT(hub_.Ranges("model-00001-of-00002.safetensors"), ElementsAre("")) << "fetched twice";
}

TEST_F(HubTest, ServerWithoutRangesStartsAgain) {
  LeaveIncomplete(kShard, 1000);
  hub_.ranges = false;
  const Result<std::string> directory = Locate();
  ASSERT_TRUE(directory.ok()) << directory.status().message();
  EXPECT_EQ(OpenError(*directory), "");
}

TEST_F(HubTest, WrongRemainderIsFetchedAgain) {
  LeaveIncomplete(kShard, 1000);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder() + "/blobs")) {
    if (entry.path().extension() == ".incomplete") WriteText(entry.path().string(), std::string(1000, 'x'));
  }
  const Result<std::string> directory = Locate();
  ASSERT_TRUE(directory.ok()) << directory.status().message();
  EXPECT_EQ(OpenError(*directory), "");
  EXPECT_THAT(hub_.Ranges(kShard), ElementsAre("", "bytes=1000-", ""));
}

TEST_F(HubTest, RangeThatWasNotAskedForIsRefused) {
  LeaveIncomplete(kShard, 1000);
  hub_.intercept = [&](const std::string& name, int, const FakeRequest&) -> std::optional<FakeResponse> {
    if (name != kShard) return std::nullopt;
    return FakeResponse{.status = 206, .headers = {{"Content-Range", "bytes 5-9/10"}}, .body = "abcde"};
  };
  EXPECT_EQ(Locate().status().code(), Code::kDataLoss);
}

TEST_F(HubTest, WrongChecksum) {
  for (const char* name : {kShard, "tokenizer.json"}) {
    const size_t digits = std::string(name) == kShard ? 64 : 40;
    hub_.listed_hashes = {{name, std::string(digits, 'a')}};
    const Status status = Locate().status();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(name), HasSubstr(std::string(digits, 'a'))));
    EXPECT_FALSE(fs::exists(folder() + "/blobs/" + std::string(digits, 'a')));
    EXPECT_FALSE(fs::exists(folder() + "/refs/main"));
    options_.offline = true;
    EXPECT_EQ(Locate().status().code(), Code::kNotFound);
    options_.offline = false;
  }
}

TEST_F(HubTest, MoreBytesThanListed) {
  hub_.intercept = [&](const std::string& name, int, const FakeRequest&) -> std::optional<FakeResponse> {
    if (name != kShard) return std::nullopt;
    return FakeResponse{.body = hub_.files[kShard] + "more"};
  };
  const Status status = Locate().status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("sends more"));
}

TEST_F(HubTest, TokenIsNeededAndSent) {
  hub_.token = "hf_secret";
  const Status without = Locate().status();
  EXPECT_EQ(without.code(), Code::kFailedPrecondition);
  EXPECT_THAT(without.message(), AllOf(HasSubstr("401"), HasSubstr("HF_TOKEN"), HasSubstr("is restricted")));
  options_.hub.token = "hf_wrong";
  EXPECT_THAT(Locate().status().message(), AllOf(HasSubstr("no access"), Not(HasSubstr("hf_wrong"))));
  options_.hub.token = "hf_secret";
  const Result<std::string> directory = Locate();
  EXPECT_TRUE(directory.ok()) << directory.status().message();
  options_.hub.token = "bad\r\nX-Evil: 1";
  EXPECT_EQ(LocateModel("org/other", options_).status().code(), Code::kInvalidArgument);
}

// Weights lie on another host: by name, or by port.
TEST_F(HubTest, TokenStaysWithTheHub) {
  FakeServer elsewhere(
      [&](const FakeRequest& request) { return FakeResponse{.body = hub_.files[request.target.substr(1)]}; });
  hub_.token = "hf_secret";
  options_.hub.token = "hf_secret";
  hub_.intercept = [&](const std::string& name, int, const FakeRequest&) -> std::optional<FakeResponse> {
    if (!name.ends_with(".safetensors")) return std::nullopt;
    const std::string host = name == kShard ? "127.0.0.1" : "localhost";
    return FakeResponse{.status = 302, .headers = {{"Location", elsewhere.url(host) + "/" + name}}};
  };
  const Result<std::string> directory = Locate();
  ASSERT_TRUE(directory.ok()) << directory.status().message();
  EXPECT_EQ(OpenError(*directory), "");
  const std::vector<FakeRequest> requests = elsewhere.requests();
  ASSERT_EQ(requests.size(), 2u);
  for (const FakeRequest& request : requests) {
    EXPECT_FALSE(request.headers.contains("authorization")) << request.target;
  }
}

TEST_F(HubTest, AbsentModelRevisionOrFile) {
  const Status model = LocateModel("org/other", options_).status();
  EXPECT_EQ(model.code(), Code::kNotFound);
  EXPECT_THAT(model.message(), AllOf(HasSubstr("org/other"), HasSubstr("404"), HasSubstr("Repository not found")));
  EXPECT_EQ(LocateModel("org/tiny@refs/pr/7", options_).status().code(), Code::kNotFound);
  EXPECT_EQ(hub_.server().requests().back().target, "/api/models/org/tiny/revision/refs%2Fpr%2F7?blobs=true");
  hub_.files.erase(kShard);
  EXPECT_THAT(Locate().status().message(), AllOf(HasSubstr("org/tiny@main"), HasSubstr(kShard)));
  hub_.files.erase("tokenizer.json");
  EXPECT_THAT(Locate().status().message(), HasSubstr("lists no tokenizer.json"));
}

TEST_F(HubTest, OtherArchitectureIsRefusedBeforeItsWeights) {
  hub_.files["config.json"] = R"({"architectures":["DeepseekV4ForCausalLM"],"model_type":"deepseek_v4"})";
  const Status status = Locate().status();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("DeepSeek-V4.0"));
  EXPECT_THAT(hub_.Ranges(kShard), ElementsAre());
}

TEST_F(HubTest, BusyServerIsAskedAgainAndNotForEver) {
  hub_.intercept = [&](const std::string& name, int count, const FakeRequest&) -> std::optional<FakeResponse> {
    if (name != kShard || count > 2) return std::nullopt;
    return FakeResponse{.status = count == 1 ? 503 : 429, .headers = {{"Retry-After", "0"}}};
  };
  EXPECT_TRUE(Locate().ok());
  TemporaryDirectory other;
  options_.model_dir = other.path();
  hub_.intercept = [&](const std::string& name, int, const FakeRequest&) -> std::optional<FakeResponse> {
    if (name != kShard) return std::nullopt;
    return FakeResponse{.status = 500};
  };
  const size_t before = hub_.Ranges(kShard).size();
  const Status status = Locate().status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("HTTP 500"), HasSubstr("after 3 attempts")));
  EXPECT_EQ(hub_.Ranges(kShard).size() - before, 3u);
}

TEST_F(HubTest, NoServer) {
  std::string url;
  {
    const FakeServer gone([](const FakeRequest&) { return FakeResponse(); });
    url = gone.url();
  }
  options_.hub.endpoint = url;
  EXPECT_EQ(Locate().status().code(), Code::kUnavailable);
  options_.hub.endpoint = "ftp://127.0.0.1";
  EXPECT_EQ(Locate().status().code(), Code::kInvalidArgument);
}

TEST_F(HubTest, NonsenseListing) {
  for (const char* body : {"", "<html>", "[]", "{}", R"({"sha":"../../x","siblings":[]})",
                           R"({"sha":"0123456789abcdef0123456789abcdef01234567"})"}) {
    FakeServer server([&](const FakeRequest&) { return FakeResponse{.body = body}; });
    options_.hub.endpoint = server.url();
    EXPECT_EQ(Locate().status().code(), Code::kDataLoss) << body;
  }
}

TEST_F(HubTest, Cancel) {
  options_.hub.progress = [](const DownloadProgress&) { return false; };
  EXPECT_EQ(Locate().status().code(), Code::kCancelled);
  EXPECT_FALSE(fs::exists(folder() + "/refs/main"));
}

TEST_F(HubTest, FullDiskIsSaidAndTheRestIsKept) {
  signal(SIGXFSZ, SIG_IGN);  // a file-size limit stands in for the full disk
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit low = {.rlim_cur = 100000, .rlim_max = old.rlim_max};
  ASSERT_GT(hub_.files[kShard].size(), low.rlim_cur);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const Status status = Locate().status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(folder()), HasSubstr("free some space")));
  const Result<std::string> directory = Locate();
  ASSERT_TRUE(directory.ok()) << directory.status().message();
  EXPECT_EQ(OpenError(*directory), "");
  EXPECT_THAT(hub_.Ranges("model-00001-of-00002.safetensors").back(), HasSubstr("bytes=100000-"));
}

TEST_F(HubTest, TooSmallDiskIsSaidBeforeTheWeights) {
  if (mount("tmpfs", dir_.path().c_str(), "tmpfs", 0, "size=160k") != 0) GTEST_SKIP() << "cannot mount a tmpfs here";
  const Status status = Locate().status();
  EXPECT_EQ(umount2(dir_.path().c_str(), MNT_DETACH), 0);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("bytes more on this disk"), HasSubstr("are free")));
  EXPECT_THAT(hub_.Ranges(kShard), ElementsAre());
}

TEST_F(HubTest, OneProcessAtATime) {
  hub_.intercept = [&](const std::string& name, int count, const FakeRequest&) -> std::optional<FakeResponse> {
    if (name == "config.json" && count == 1) {
      EXPECT_THAT(Locate().status().message(), HasSubstr("another process is fetching"));
    }
    return std::nullopt;
  };
  EXPECT_TRUE(Locate().ok());
}

TEST_F(HubTest, IncompleteSnapshotIsFetchedAgain) {
  const std::string directory = *Locate();
  fs::remove(fs::read_symlink(directory + "/" + kShard).is_absolute()
                 ? fs::read_symlink(directory + "/" + kShard)
                 : fs::path(directory) / fs::read_symlink(directory + "/" + kShard));
  options_.offline = true;
  EXPECT_THAT(Locate().status().message(), AllOf(HasSubstr("not complete"), HasSubstr(kShard)));
  options_.offline = false;
  EXPECT_EQ(OpenError(*Locate()), "");
  EXPECT_EQ(hub_.Ranges(kShard).size(), 2u);
  EXPECT_EQ(hub_.Ranges("model-00001-of-00002.safetensors").size(), 1u);
}

}  // namespace
}  // namespace deepinfer::checkpoint
