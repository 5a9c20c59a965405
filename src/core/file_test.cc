// SPDX-License-Identifier: Apache-2.0
// Properties: reads respect their limit and refuse what is no regular file; a write appears whole or not at all, also
// on a full disk; a mapping whose file shrinks reads zeros and says so, while a fault elsewhere still ends the process.
#include "core/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "core/temporary_directory.h"

namespace deepinfer {
namespace {

using core::TemporaryDirectory;
using testing::HasSubstr;

// Kept out of line and volatile so that every read is a real one.
__attribute__((noinline)) unsigned char ByteAt(const MappedFile& file, size_t offset) {
  return static_cast<unsigned char>(*static_cast<const volatile std::byte*>(file.bytes().data() + offset));
}

TEST(ReadFile, GivesTheBytesUpToTheLimit) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", std::string("a\0b", 3)).ok());
  const Result<std::string> text = ReadFile(dir / "f", 3);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, std::string("a\0b", 3));
  EXPECT_EQ(ReadFile(dir / "f", 2).status().code(), Code::kResourceExhausted);
}

TEST(ReadFile, NamesWhatIsWrong) {
  const TemporaryDirectory dir;
  const Status absent = ReadFile(dir / "absent", 10).status();
  EXPECT_EQ(absent.code(), Code::kNotFound);
  EXPECT_THAT(absent.message(), HasSubstr(dir / "absent"));
  EXPECT_EQ(ReadFile(dir.path(), 10).status().code(), Code::kInvalidArgument);
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(dir / "fifo", 10).status().code(), Code::kInvalidArgument);  // and does not wait for a writer
}

TEST(AtomicFile, AppearsOnlyOnCommit) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", "old").ok());
  {
    Result<AtomicFile> file = AtomicFile::Create(dir / "f");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write("new").ok());
    EXPECT_EQ(*ReadFile(dir / "f", 10), "old");
  }
  EXPECT_EQ(*ReadFile(dir / "f", 10), "old");
  const auto entries = std::filesystem::directory_iterator(dir.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "the temporary file stays";
}

TEST(AtomicFile, ReplacesRegularFilesOnlyAndFollowsLinks) {
  const TemporaryDirectory dir;
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(WriteFileAtomically(dir / "pipe", "x").code(), Code::kInvalidArgument);
  EXPECT_EQ(WriteFileAtomically(dir.path(), "x").code(), Code::kInvalidArgument);
  struct stat info = {};
  ASSERT_EQ(lstat((dir / "pipe").c_str(), &info), 0);
  EXPECT_TRUE(S_ISFIFO(info.st_mode));

  ASSERT_TRUE(WriteFileAtomically(dir / "file", "old").ok());
  ASSERT_EQ(symlink("file", (dir / "link").c_str()), 0);
  ASSERT_TRUE(WriteFileAtomically(dir / "link", "new").ok());
  EXPECT_EQ(*ReadFile(dir / "file", 100), "new");
  ASSERT_EQ(symlink("nowhere", (dir / "broken").c_str()), 0);
  EXPECT_EQ(WriteFileAtomically(dir / "broken", "x").code(), Code::kNotFound);
}

TEST(AtomicFile, FullDiskIsAnErrorAndKeepsTheOldFile) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", "old").ok());
  signal(SIGXFSZ, SIG_IGN);  // a file-size limit stands in for the full disk
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit low = {.rlim_cur = 4096, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const Status status = WriteFileAtomically(dir / "f", std::string(10000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr(dir / "f"));
  EXPECT_EQ(*ReadFile(dir / "f", 10), "old");
}

TEST(MappedFile, MapsTheBytes) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", "hello").ok());
  Result<MappedFile> opened = MappedFile::Open(dir / "f");
  ASSERT_TRUE(opened.ok());
  const MappedFile file = *std::move(opened);
  EXPECT_EQ(file.bytes().size(), 5u);
  EXPECT_EQ(ByteAt(file, 4), 'o');
  EXPECT_TRUE(file.CheckIntact().ok());
  file.Advise(MappedFile::Access::kWillNeed, 1, 4);
}

TEST(MappedFile, EmptyFileHasNoBytes) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", "").ok());
  const Result<MappedFile> file = MappedFile::Open(dir / "f");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_TRUE(file->CheckIntact().ok());
}

TEST(MappedFile, ShrunkFileReadsZerosAndSaysSo) {
  const TemporaryDirectory dir;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  ASSERT_TRUE(WriteFileAtomically(dir / "f", std::string(64 * page, 'x')).ok());
  ASSERT_TRUE(WriteFileAtomically(dir / "g", std::string(page, 'y')).ok());
  const Result<MappedFile> file = MappedFile::Open(dir / "f");
  const Result<MappedFile> other = MappedFile::Open(dir / "g");
  ASSERT_TRUE(file.ok() && other.ok());
  ASSERT_EQ(truncate((dir / "f").c_str(), static_cast<off_t>(2 * page)), 0);
  EXPECT_FALSE(file->damaged());
  // Several threads fault at once.
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (size_t p = 2; p < 64; ++p) EXPECT_EQ(ByteAt(*file, p * page + 7), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(file->damaged());
  EXPECT_EQ(ByteAt(*file, page), 'x');
  EXPECT_EQ(file->CheckIntact().code(), Code::kDataLoss);
  EXPECT_FALSE(other->damaged());
  EXPECT_TRUE(other->CheckIntact().ok());
}

TEST(MappedFile, CutInsideItsLastPageIsNoticedWithoutAFault) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", "hello").ok());
  const Result<MappedFile> file = MappedFile::Open(dir / "f");
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate((dir / "f").c_str(), 2), 0);
  EXPECT_EQ(ByteAt(*file, 4), 0);
  EXPECT_FALSE(file->damaged());
  const Status status = file->CheckIntact();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("had 5 bytes when it was opened, has 2 now"));
}

TEST(MappedFile, WritingInPlaceIsNoticed) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", "hello").ok());
  std::filesystem::last_write_time(dir / "f", std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const Result<MappedFile> file = MappedFile::Open(dir / "f");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->CheckIntact().ok());
  FILE* stream = fopen((dir / "f").c_str(), "r+");
  ASSERT_NE(stream, nullptr);
  fputs("HELLO", stream);
  fclose(stream);
  EXPECT_THAT(file->CheckIntact().message(), HasSubstr("was modified after it was opened"));
  // Replacing it by name changes nothing for the mapping.
  const Result<MappedFile> second = MappedFile::Open(dir / "f");
  ASSERT_TRUE(WriteFileAtomically(dir / "f", "other").ok());
  EXPECT_TRUE(second->CheckIntact().ok());
  EXPECT_EQ(ByteAt(*second, 0), 'H');
}

// A mapping of our own that the guard does not know, over a file without pages.
void FaultOutsideRegisteredMappings(const std::string& path) {
  const Result<MappedFile> installs_the_guard = MappedFile::Open(path);
  FILE* empty = tmpfile();
  void* address = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fileno(empty), 0);
  (void)*static_cast<volatile char*>(address);
}

TEST(MappedFileDeathTest, FaultsElsewhereStillEndTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", "hello").ok());
  EXPECT_DEATH(FaultOutsideRegisteredMappings(dir / "f"), "");
}

void FaultWithAHandlerThatWasThereBefore(const std::string& path) {
  struct sigaction action = {};
  action.sa_handler = [](int) { _exit(42); };
  sigaction(SIGBUS, &action, nullptr);
  FaultOutsideRegisteredMappings(path);
}

TEST(MappedFileDeathTest, FaultsElsewhereGoToThePreviousHandler) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", "hello").ok());
  EXPECT_EXIT(FaultWithAHandlerThatWasThereBefore(dir / "f"), testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace deepinfer
