// SPDX-License-Identifier: Apache-2.0
// Property: damaged, hostile or stray weight files are refused with a message that names the file and what is wrong,
// at once and without memory in proportion to what they claim; what can be read is read right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/identity.h"
#include "checkpoint_files.h"
#include "core/file.h"

namespace deepinfer::checkpoint {
namespace {

namespace fs = std::filesystem;
using core::TemporaryDirectory;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The largest resident size of the process so far, in bytes.
size_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

// Runs `work`; it must take less than a second and little memory.
template <typename Work>
void ExpectCheap(const Work& work) {
  const size_t before = PeakResidentBytes();
  const double start = CpuSeconds();
  work();
  const double seconds = CpuSeconds() - start;
  EXPECT_LT(seconds, 1.0);
  EXPECT_LT(PeakResidentBytes() - before, size_t{64} << 20);
}

std::string OpenFileError(const std::string& path) { return SafetensorsFile::Open(path).status().message(); }

TEST(CasesH, H02_TruncatedShard) {
  const CheckpointFiles files = CheckpointFiles::Golden("model/base");
  const TemporaryDirectory dir;
  files.WriteSharded(dir.path(), 2);
  const std::string shard = dir / "model-00002-of-00002.safetensors";
  const std::string whole = *ReadFile(shard, 1 << 24);
  const uint64_t header = SafetensorsFile::Open(shard)->header().data_begin;
  ASSERT_EQ(OpenError(dir.path()), "");
  for (const uint64_t size : {whole.size() - 1, whole.size() / 2, whole.size() - 10, header, header / 2, uint64_t{8},
                              uint64_t{7}, uint64_t{0}}) {
    SCOPED_TRACE(size);
    WriteText(shard, whole.substr(0, size));
    const std::string error = OpenError(dir.path());
    EXPECT_THAT(error, HasSubstr("model-00002-of-00002.safetensors"));
    // Both sizes are named: of the file, or of the header where that is cut.
    if (size >= header) {
      EXPECT_THAT(error, HasSubstr(fmt::format("a file of {} bytes, found {}", whole.size(), size)));
    } else if (size > 8 && size < header) {
      EXPECT_THAT(error, AllOf(HasSubstr(fmt::format("a header of {} bytes", header - 8)),
                               HasSubstr(fmt::format("found {} bytes", size - 8))));
    }
  }
}

TEST(CasesH, H02_FileThatShrinksAfterItWasOpened) {
  const TemporaryDirectory dir;
  CheckpointFiles::Golden("model/base").Write(dir.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok());
  ASSERT_TRUE(checkpoint->CheckIntact().ok());
  const uint64_t cut = checkpoint->shards()[0].header().data_begin + 20000;
  ASSERT_EQ(truncate((dir / "model.safetensors").c_str(), static_cast<off_t>(cut)), 0);
  unsigned sum = 0;
  for (const TensorInfo& info : checkpoint->shards()[0].header().tensors) {
    for (const std::byte byte : checkpoint->shards()[0].View(info).bytes()) sum += std::to_integer<unsigned>(byte);
  }
  EXPECT_GT(sum, 0u);  // read to its end, with zeros where nothing is left
  const Status status = checkpoint->CheckIntact();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("model.safetensors"));
}

TEST(CasesH, H04_HeaderLength) {
  const TemporaryDirectory dir;
  const std::string path = dir / "model.safetensors";
  const std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 60, uint64_t{1} << 63, ~uint64_t{0},
                                uint64_t{200'000'000}, uint64_t{8 + header.size() + 4 + 1}}) {
    SCOPED_TRACE(length);
    WriteRaw(path, length, header, "abcd");
    ExpectCheap([&] { EXPECT_THAT(OpenFileError(path), HasSubstr("header")); });
  }
  // As long as it says, with a (sparse) file behind it.
  WriteRaw(path, 200'000'000, header, "abcd");
  fs::resize_file(path, 300'000'000);
  ExpectCheap([&] { EXPECT_THAT(OpenFileError(path), HasSubstr("above the limit")); });
}

TEST(CasesH, H04_HeaderNumbers) {
  const TemporaryDirectory dir;
  const std::string path = dir / "model.safetensors";
  const auto tensor = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"a":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
  };
  std::string many_dims = "[1";
  for (int i = 1; i < 100; ++i) many_dims += ",1";
  many_dims += "]";
  const std::string kHeaders[] = {
      tensor("U8", "[4294967296,4294967296]", "[0,4]"),
      tensor("U8", "[9223372036854775807,2]", "[0,4]"),
      tensor("U8", "[9223372036854775808,2]", "[0,4]"),
      tensor("F64", "[2305843009213693952]", "[0,4]"),
      tensor("U8", "[-1]", "[0,4]"),
      tensor("U8", "[4.0]", "[0,4]"),
      tensor("U8", "[\"4\"]", "[0,4]"),
      tensor("U8", "4", "[0,4]"),
      tensor("U8", many_dims, "[0,4]"),
      tensor("F3", "[4]", "[0,4]"),
      tensor("U8", "[4]", "[0,18446744073709551615]"),
      tensor("U8", "[4]", "[-4,0]"),
      tensor("U8", "[4]", "[4,0]"),
      tensor("U8", "[4]", "[0]"),
      tensor("U8", "[4]", "[0,4,8]"),
      tensor("U8", "[5]", "[0,4]"),
      tensor("U16", "[4]", "[0,4]"),
      R"({"a":{"dtype":"U8","shape":[4]}})",
      R"({"a":[]})",
      R"({"a":null})",
      R"([])",
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}x)",
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)",
      R"({"a":{"dtype":"U8","dtype":"I8","shape":[4],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"more":1}})",
      R"({"__metadata__":{"a":1},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
      "{\"\xff\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
      std::string(100000, '['),
      "{\"a\":" + std::string(100000, '['),
      "{" + fmt::format("\"{}\"", std::string(5000, 'n')) + R"(:{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
  };
  for (const std::string& header : kHeaders) {
    SCOPED_TRACE(header.substr(0, 200));
    WriteRaw(path, header, "abcd");
    ExpectCheap([&] { EXPECT_THAT(OpenFileError(path), HasSubstr(path)); });
  }
  WriteRaw(path, tensor("U8", "[4]", "[0,4]"), "abcd");
  EXPECT_EQ(OpenFileError(path), "") << "the frame of the cases above is itself in order";
}

TEST(CasesH, H04_OverlapsAndGaps) {
  const TemporaryDirectory dir;
  const std::string path = dir / "model.safetensors";
  const auto two = [](std::string_view first, std::string_view second) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[2],"data_offsets":{}}},)"
                       R"("b":{{"dtype":"U8","shape":[2],"data_offsets":{}}}}})",
                       first, second);
  };
  WriteRaw(path, two("[0,2]", "[1,3]"), "abc");
  EXPECT_THAT(OpenFileError(path), AllOf(HasSubstr("\"b\""), HasSubstr("overlaps")));
  WriteRaw(path, two("[0,2]", "[0,2]"), "ab");
  EXPECT_THAT(OpenFileError(path), HasSubstr("overlaps"));
  WriteRaw(path, two("[0,2]", "[3,5]"), "abcde");
  EXPECT_THAT(OpenFileError(path), HasSubstr("1 bytes before it belong to no tensor"));
  WriteRaw(path, two("[1,3]", "[3,5]"), "abcde");
  EXPECT_THAT(OpenFileError(path), HasSubstr("1 bytes before it belong to no tensor"));
  WriteRaw(path, two("[2,4]", "[0,2]"), "abcd");
  EXPECT_EQ(OpenFileError(path), "") << "any order is fine";
}

TEST(CasesH, H05_DuplicateTensor) {
  const TemporaryDirectory dir;
  const std::string one = R"("norm.weight":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  const std::string two = R"("norm.weight":{"dtype":"U8","shape":[2],"data_offsets":[2,4]})";
  WriteRaw(dir / "model.safetensors", "{" + one + "," + two + "}", "abcd");
  EXPECT_THAT(OpenFileError(dir / "model.safetensors"), HasSubstr("\"norm.weight\": appears twice"));
}

TEST(CasesH, H05_SameNameInTwoShards) {
  const CheckpointFiles files = CheckpointFiles::Golden("model/base");
  const TemporaryDirectory dir;
  files.WriteSharded(dir.path(), 2);
  // norm.weight goes into the other shard too, with other values.
  const std::string index = *ReadFile(dir / "model.safetensors.index.json", 1 << 24);
  const Json parsed = *ParseJson(index);
  const std::string owner = parsed.Find("weight_map")->Find("norm.weight")->AsString();
  const int other = owner.starts_with("model-00001") ? 2 : 1;
  Tensors shard;
  for (const auto& [name, file] : parsed.Find("weight_map")->Members()) {
    if (file.AsString() != owner) shard[name] = files.tensors.at(name);
  }
  shard["norm.weight"] = files.tensors.at("norm.weight");
  shard["norm.weight"].bytes[0] ^= 1;
  WriteTensors(dir / fmt::format("model-0000{}-of-00002.safetensors", other), shard);
  EXPECT_THAT(OpenError(dir.path()), AllOf(HasSubstr("norm.weight"), HasSubstr(owner)));
}

TEST(CasesH, H05_IndexPointsToAShardWithoutTheTensor) {
  const CheckpointFiles files = CheckpointFiles::Golden("model/base");
  const TemporaryDirectory dir;
  files.WriteSharded(dir.path(), 2);
  Json index = *ParseJson(*ReadFile(dir / "model.safetensors.index.json", 1 << 24));
  index.Find("weight_map")->Members().emplace_back("extra.weight", Json("model-00001-of-00002.safetensors"));
  WriteText(dir / "model.safetensors.index.json", WriteJson(index));
  EXPECT_THAT(OpenError(dir.path()), AllOf(HasSubstr("extra.weight"), HasSubstr("no such tensor")));
}

TEST(CasesH, H05_IndexReachingOutsideIsRefused) {
  const CheckpointFiles files = CheckpointFiles::Golden("model/base");
  const TemporaryDirectory dir;
  for (const char* name : {"../model-00001-of-00002.safetensors", "/etc/passwd", "sub/a.safetensors", "a.bin", ""}) {
    files.WriteSharded(dir.path(), 2);
    Json index = *ParseJson(*ReadFile(dir / "model.safetensors.index.json", 1 << 24));
    *index.Find("weight_map")->Find("norm.weight") = Json(name);
    WriteText(dir / "model.safetensors.index.json", WriteJson(index));
    EXPECT_THAT(OpenError(dir.path()), HasSubstr("norm.weight")) << name;
  }
}

TEST(CasesH, H06_TrailingBytes) {
  const TemporaryDirectory dir;
  CheckpointFiles::Golden("model/base").Write(dir.path());
  const std::string path = dir / "model.safetensors";
  const std::string whole = *ReadFile(path, 1 << 24);
  for (const size_t extra : {1, 8, 4096}) {
    WriteText(path, whole + std::string(extra, '\0'));
    EXPECT_THAT(OpenError(dir.path()), HasSubstr(fmt::format("{} bytes after the last tensor", extra)));
    EXPECT_THAT(OpenFileError(path), HasSubstr(fmt::format("{} bytes after the last tensor", extra)));
  }
}

TEST(CasesH, H06_PaddedHeaderIsFine) {
  const TemporaryDirectory dir;
  const std::string path = dir / "model.safetensors";
  for (const size_t blanks : {0, 1, 7, 4096}) {
    const std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})" + std::string(blanks, ' ');
    WriteRaw(path, header, "abcd");
    EXPECT_EQ(OpenFileError(path), "");
  }
}

TEST(CasesH, H13_StrayFiles) {
  const CheckpointFiles files = CheckpointFiles::Golden("model/base");
  for (const bool sharded : {false, true}) {
    const TemporaryDirectory dir;
    sharded ? files.WriteSharded(dir.path(), 2) : files.Write(dir.path());
    Tensors stray;
    stray["norm.weight"] = files.tensors.at("norm.weight");
    stray["norm.weight"].bytes[0] ^= 1;
    const std::vector<std::string> names = {"extra.safetensors", "consolidated.safetensors",
                                            ".model-1.safetensors.tmp"};
    for (const std::string& name : names) WriteTensors(dir / name, stray);
    const Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    for (const std::string& name : names) EXPECT_THAT(AllWarnings(*checkpoint), HasSubstr(name));
    const auto bytes = checkpoint->Tensor("norm.weight").bytes();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
              files.tensors.at("norm.weight").bytes);
  }
}

TEST(CasesH, H16_EmptyTensorsAndScalars) {
  CheckpointFiles files = CheckpointFiles::Golden("model/base");
  files.tensors["extra.empty"] = {DType::kF32, Shape({0}), ""};
  files.tensors["extra.empty_rows"] = {DType::kBF16, Shape({0, 5}), ""};
  files.tensors["extra.scalar"] = {DType::kF32, Shape(), std::string("\0\0\xc0\x3f", 4)};
  for (const bool sharded : {false, true}) {
    const TemporaryDirectory dir;
    sharded ? files.WriteSharded(dir.path(), 2) : files.Write(dir.path());
    const Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_THAT(AllWarnings(*checkpoint), HasSubstr("extra.empty, extra.empty_rows, extra.scalar"));
    EXPECT_EQ(checkpoint->Find("extra.empty_rows")->num_elements(), 0);
    EXPECT_EQ(checkpoint->Find("extra.scalar")->As<float>()[0], 1.5f);
  }
}

TEST(CasesH, H16_ShardWithoutTensors) {
  const TemporaryDirectory dir;
  WriteTensors(dir / "a.safetensors", {});
  const Result<SafetensorsFile> file = SafetensorsFile::Open(dir / "a.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(file->header().tensors.empty());
}

TEST(CasesH, H17_ReloadGivesTheNewWeights) {
  CheckpointFiles files = CheckpointFiles::Golden("model/base");
  const TemporaryDirectory dir;
  files.Write(dir.path());
  const std::string path = dir / "model.safetensors";
  const fs::file_time_type time = fs::last_write_time(path);
  const auto norm = [](const Checkpoint& checkpoint) { return checkpoint.Tensor("norm.weight").As<uint16_t>()[0]; };

  const Result<Checkpoint> first = Checkpoint::Open(dir.path());
  ASSERT_TRUE(first.ok());
  const uint16_t old_value = norm(*first);
  const std::string old_identity = *ModelIdentity(*first);

  files.tensors["norm.weight"].bytes[0] ^= 1;
  files.Write(dir.path());
  fs::last_write_time(path, time);  // same size, same time stamp
  const Result<Checkpoint> second = Checkpoint::Open(dir.path());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(norm(*second), old_value ^ 1);
  EXPECT_NE(*ModelIdentity(*second), old_identity);
  EXPECT_EQ(norm(*first), old_value) << "the replaced file stays what it was for those who have it open";

  files.Set("routed_scaling_factor", Json(Json::Number{"2.5"}));
  files.Write(dir.path());
  const Result<Checkpoint> third = Checkpoint::Open(dir.path());
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(third->config().routed_scaling_factor, 2.5);
  EXPECT_NE(*ModelIdentity(*third), *ModelIdentity(*second));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 2) << "nothing was cached beside the files";
}

TEST(CasesH, H18_NotTheFileItself) {
  const CheckpointFiles files = CheckpointFiles::Golden("model/base");
  const TemporaryDirectory dir;
  files.WriteSharded(dir.path(), 2);
  const std::string shard = dir / "model-00001-of-00002.safetensors";
  WriteText(shard, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 7389759032\n");
  EXPECT_THAT(OpenError(dir.path()), AllOf(HasSubstr("model-00001-of-00002"), HasSubstr("LFS pointer")));
  WriteText(shard, "<!DOCTYPE html>\n<html><body>Too many requests</body></html>\n");
  EXPECT_THAT(OpenError(dir.path()), AllOf(HasSubstr("model-00001-of-00002"), HasSubstr("web page")));
  WriteText(shard, "\n<html>\n");
  EXPECT_THAT(OpenError(dir.path()), HasSubstr("web page"));
  fs::remove(shard);
  EXPECT_THAT(OpenError(dir.path()), AllOf(HasSubstr("model-00001-of-00002"), HasSubstr("missing shard")));
}

TEST(CasesH, H18_ConfigOrWeightsAbsent) {
  const CheckpointFiles files = CheckpointFiles::Golden("model/base");
  const TemporaryDirectory dir;
  EXPECT_THAT(OpenError(dir / "absent"), HasSubstr("no such directory"));
  EXPECT_THAT(OpenError(dir.path()), HasSubstr("config.json"));
  files.WriteConfig(dir.path());
  EXPECT_THAT(OpenError(dir.path()), HasSubstr("neither model.safetensors.index.json nor model.safetensors"));
  WriteText(dir / "model.safetensors.incomplete", "half");
  EXPECT_THAT(OpenError(dir.path()), HasSubstr("model.safetensors.incomplete is an unfinished download"));
}

TEST(CasesH, H18_ManifestOfOtherSizes) {
  const TemporaryDirectory dir;
  CheckpointFiles::Golden("model/base").WriteSharded(dir.path(), 2);
  Json index = *ParseJson(*ReadFile(dir / "model.safetensors.index.json", 1 << 24));
  *index.Find("metadata")->Find("total_size") = Json::Integer(12345);
  WriteText(dir / "model.safetensors.index.json", WriteJson(index));
  EXPECT_THAT(OpenError(dir.path()), AllOf(HasSubstr("total_size"), HasSubstr("12345")));
}

}  // namespace
}  // namespace deepinfer::checkpoint
