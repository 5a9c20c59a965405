// SPDX-License-Identifier: Apache-2.0
#include "core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/sigbus_guard.h"

namespace deepinfer {
namespace {

Code CodeOf(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return Code::kResourceExhausted;
    case EIO:
      return Code::kDataLoss;
    default:
      return Code::kFailedPrecondition;
  }
}

// Owns a descriptor until released.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Opens a regular file for reading. O_NONBLOCK: opening a FIFO must fail the check below, not wait for a writer.
Result<int> OpenRegular(const std::string& path, struct stat* info) {
  Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return FileError(errno, "open", path);
  if (fstat(fd.get(), info) != 0) return FileError(errno, "stat", path);
  if (!S_ISREG(info->st_mode)) return Error(Code::kInvalidArgument, "{}: not a regular file", path);
  return fd.Release();
}

Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return FileError(errno, "write", path);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return Status();
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Status FileError(int error_number, std::string_view action, std::string_view path) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  return Error(CodeOf(error_number), "{}: cannot {}: {}{}", path, action, std::strerror(error_number),
               full ? "; free some space and try again" : "");
}

Result<std::string> ReadFile(const std::string& path, size_t size_bytes_max) {
  struct stat info = {};
  DI_ASSIGN_OR_RETURN(const int opened, OpenRegular(path, &info));
  const Descriptor fd(opened);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > size_bytes_max) {
    return Error(Code::kResourceExhausted, "{}: {} bytes, more than the {} allowed here", path, size, size_bytes_max);
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, "read", path);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  if (done < text.size()) {
    return Error(Code::kDataLoss, "{}: ended after {} of {} bytes while it was read", path, done, size);
  }
  return text;
}

Status WriteFileAtomically(const std::string& path, std::string_view bytes) {
  DI_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  DI_RETURN_IF_ERROR(file.Write(bytes));
  return file.Commit();
}

Result<AtomicFile> AtomicFile::Create(const std::string& name) {
  static std::atomic<uint64_t> counter = 0;
  std::string path = name;
  struct stat info = {};
  if (lstat(name.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {
    char* real = realpath(name.c_str(), nullptr);
    if (real == nullptr) return FileError(errno, "follow the link", name);
    path = real;
    std::free(real);
  }
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Error(Code::kInvalidArgument, "{}: not a regular file, and a rename would put one in its place", name);
  }
  const std::string temporary = fmt::format("{}.tmp.{}.{}", path, getpid(), counter.fetch_add(1));
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return FileError(errno, "create", temporary);
  return AtomicFile(fd, path, temporary);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), temporary_(std::move(other.temporary_)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  DI_CHECK(fd_ >= 0);
  return WriteAll(fd_, bytes, path_);
}

Status AtomicFile::Commit() {
  DI_CHECK(fd_ >= 0);
  if (fsync(fd_) != 0) return FileError(errno, "write", path_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return FileError(errno, "rename to", path_);
  close(std::exchange(fd_, -1));
  // The rename itself is durable once the directory is.
  const Descriptor directory(open(DirectoryOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) (void)fsync(directory.get());
  return Status();
}

struct MappedFile::Mapping {
  std::string path;
  int fd = -1;
  void* address = nullptr;
  size_t size = 0;
  timespec modified = {};
  core::SigbusGuard::Slot* slot = nullptr;

  ~Mapping() {
    if (slot != nullptr) core::SigbusGuard::Unregister(slot);
    if (address != nullptr) munmap(address, size);
    if (fd >= 0) close(fd);
  }
};

MappedFile::MappedFile(std::unique_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
MappedFile::MappedFile(MappedFile&& other) noexcept = default;
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept = default;
MappedFile::~MappedFile() = default;

Result<MappedFile> MappedFile::Open(const std::string& path) {
  auto mapping = std::make_unique<Mapping>();
  mapping->path = path;
  struct stat info = {};
  DI_ASSIGN_OR_RETURN(mapping->fd, OpenRegular(path, &info));
  const auto size = static_cast<size_t>(info.st_size);
  mapping->size = size;
  mapping->modified = info.st_mtim;
  if (size == 0) return MappedFile(std::move(mapping));
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, mapping->fd, 0);
  if (address == MAP_FAILED) return FileError(errno, "map", path);
  mapping->address = address;
  mapping->slot = core::SigbusGuard::Register(address, size);
  if (mapping->slot == nullptr) {
    return Error(Code::kResourceExhausted, "{}: cannot map: {} files are mapped already", path,
                 core::SigbusGuard::kSlotsMax);
  }
  return MappedFile(std::move(mapping));
}

const std::string& MappedFile::path() const { return mapping_->path; }

std::span<const std::byte> MappedFile::bytes() const {
  return {static_cast<const std::byte*>(mapping_->address), mapping_->size};
}

bool MappedFile::damaged() const { return mapping_->slot != nullptr && core::SigbusGuard::Damaged(mapping_->slot); }

Status MappedFile::CheckIntact() const {
  if (damaged()) {
    return Error(Code::kDataLoss, "{}: could not be read any more (truncated, or its disk failed) after it was opened",
                 mapping_->path);
  }
  struct stat info = {};
  if (fstat(mapping_->fd, &info) != 0) return FileError(errno, "stat", mapping_->path);
  if (static_cast<uint64_t>(info.st_size) != mapping_->size) {
    return Error(Code::kDataLoss, "{}: had {} bytes when it was opened, has {} now", mapping_->path, mapping_->size,
                 info.st_size);
  }
  const timespec& modified = mapping_->modified;
  if (info.st_mtim.tv_sec != modified.tv_sec || info.st_mtim.tv_nsec != modified.tv_nsec) {
    return Error(Code::kDataLoss, "{}: was modified after it was opened; load it again", mapping_->path);
  }
  return Status();
}

void MappedFile::Advise(Access access, size_t offset, size_t size) const {
  DI_CHECK(offset <= mapping_->size && size <= mapping_->size - offset);
  if (size == 0) return;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page * page;
  static constexpr int kAdvice[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED};
  (void)madvise(static_cast<char*>(mapping_->address) + begin, offset + size - begin,
                kAdvice[static_cast<int>(access)]);
}

}  // namespace deepinfer
