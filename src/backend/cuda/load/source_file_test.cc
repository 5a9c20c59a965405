// SPDX-License-Identifier: Apache-2.0
// Property: any run of a file's bytes is read as it lies there, from the page cache or past it, whatever its alignment; a file that
// is gone, or has become shorter, is an error that names it.
#include "backend/cuda/load/source_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "core/temporary_directory.h"

namespace deepinfer::backend::cuda {
namespace {

using ::testing::HasSubstr;

class SourceFileTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = (size_t{3} << 20) + 77;

  void SetUp() override {
    std::mt19937 random(1);
    bytes_.resize(kBytes);
    for (char& byte : bytes_) byte = static_cast<char>(random());
    file_.path = directory_ / "weights";
    std::ofstream(file_.path).write(bytes_.data(), static_cast<std::streamsize>(kBytes));
    const int fd = open(file_.path.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    fsync(fd);
    void* mapped = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    file_.base = static_cast<const std::byte*>(mapped);
    file_.size_bytes = kBytes;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);  // not everywhere: then reads go through the page cache here too
    close(fd);
  }
  void TearDown() override { munmap(const_cast<std::byte*>(file_.base), kBytes); }

  void ExpectReads(SourceFileReader& reader) {
    std::mt19937 random(2);
    std::vector<std::byte> room(kBytes + 2 * SourceFileReader::kSlack);
    void* aligned = room.data();
    size_t space = room.size();
    auto* buffer = static_cast<std::byte*>(std::align(SourceFileReader::kAlignment, kBytes, aligned, space));
    const auto check = [&](size_t at, size_t size) {
      const auto read = reader.Read(file_.base + at, size, buffer);
      ASSERT_TRUE(read.ok()) << read.status().message();
      EXPECT_EQ(std::memcmp(*read, bytes_.data() + at, size), 0) << size << " bytes at " << at;
    };
    check(0, kBytes);
    check(kBytes - 1, 1);
    check(4095, 2);
    for (int i = 0; i < 100; ++i) {
      const size_t at = random() % kBytes;
      check(at, 1 + random() % (kBytes - at));
    }
  }

  const core::TemporaryDirectory directory_;
  std::vector<char> bytes_;
  SourceFile file_;
};

TEST_F(SourceFileTest, ReadsTheBytesOfTheMapping) {
  auto reader = SourceFileReader::Open(file_);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  RecordProperty("direct", (*reader)->direct());
  ExpectReads(**reader);
  for (size_t at = 0; at < kBytes; at += 4096) EXPECT_EQ(std::memcmp(file_.base + at, bytes_.data() + at, 1), 0);  // now it is in memory
  auto cached = SourceFileReader::Open(file_);
  ASSERT_TRUE(cached.ok());
  EXPECT_FALSE((*cached)->direct());
  ExpectReads(**cached);
}

TEST_F(SourceFileTest, SaysThatTheFileHasBecomeShorter) {
  auto reader = SourceFileReader::Open(file_);
  ASSERT_TRUE(reader.ok());
  std::filesystem::resize_file(file_.path, kBytes / 2);
  std::vector<std::byte> room(kBytes + 2 * SourceFileReader::kSlack);
  auto* buffer = room.data() + (SourceFileReader::kAlignment - reinterpret_cast<uintptr_t>(room.data()) % SourceFileReader::kAlignment);
  const auto read = (*reader)->Read(file_.base + kBytes / 2 - 100, 200, buffer);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), Code::kDataLoss);
  EXPECT_THAT(read.status().message(), HasSubstr(file_.path));
  EXPECT_THAT(read.status().message(), HasSubstr("shorter"));
}

TEST_F(SourceFileTest, SaysThatTheFileIsGone) {
  std::filesystem::remove(file_.path);
  const auto reader = SourceFileReader::Open(file_);
  ASSERT_FALSE(reader.ok());
  EXPECT_THAT(reader.status().message(), HasSubstr(file_.path));
}

}  // namespace
}  // namespace deepinfer::backend::cuda
