// SPDX-License-Identifier: Apache-2.0
// Files: whole reads under a size limit, writes that appear all at once or not at all, and read-only mappings that
// survive a file which shrinks under them.
// Mappings are registered with a SIGBUS guard, installed by the first one. A fault inside a registered mapping (the
// file was truncated, its disk failed) puts zero pages there and marks the mapping as damaged; the reader goes on
// with zeros and must ask CheckIntact() before it trusts what it computed. A fault elsewhere goes to the handler that
// was there before.
// Errors name the path, what was tried and why it failed; a full disk is kResourceExhausted, an absent file kNotFound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"

namespace deepinfer {

// The error of a system call that left `error_number` while doing `action` ("open", "write") with `path`.
Status FileError(int error_number, std::string_view action, std::string_view path);

// The bytes of a regular file of at most `size_bytes_max` bytes.
Result<std::string> ReadFile(const std::string& path, size_t size_bytes_max);

// Writes `path` so that readers see the old file or the whole new one: temporary name beside it, fsync, rename. A link is
// followed. A device, pipe or directory is refused with kInvalidArgument: the rename would replace it.
Status WriteFileAtomically(const std::string& path, std::string_view bytes);

// The same for a file that is written piece by piece. Not published (and removed) unless Commit() succeeds.
// Not thread-safe.
class AtomicFile {
 public:
  static Result<AtomicFile> Create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status Write(std::span<const std::byte> bytes);
  Status Write(std::string_view text) { return Write(std::as_bytes(std::span(text.data(), text.size()))); }
  Status Commit();

 private:
  AtomicFile(int fd, std::string path, std::string temporary)
      : fd_(fd), path_(std::move(path)), temporary_(std::move(temporary)) {}
  int fd_;
  std::string path_;
  std::string temporary_;
};

// A regular file mapped read-only as a whole. Const use from many threads is safe. Cheap to move; the bytes stay put.
// At most 4096 mappings at a time in a process.
class MappedFile {
 public:
  enum class Access { kNormal, kRandom, kSequential, kWillNeed };

  static Result<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const;
  std::span<const std::byte> bytes() const;  // empty for an empty file

  // True once a page could not be read; it reads as zeros since then. One atomic load.
  bool damaged() const;
  // kDataLoss where damaged(), or where the file no longer has the size or the time of modification that it had when it
  // was mapped. Costs one fstat: a file that is cut inside its last page, or written in place, changes what is mapped
  // without any fault. (A file that is replaced by renaming another one stays as it was for those who mapped it.)
  Status CheckIntact() const;

  // Tells the kernel how [offset, offset + size) will be read. A hint: failures are ignored.
  void Advise(Access access, size_t offset, size_t size) const;

 private:
  struct Mapping;
  explicit MappedFile(std::unique_ptr<Mapping> mapping);
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace deepinfer
