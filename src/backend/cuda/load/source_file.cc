// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/load/source_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace deepinfer::backend::cuda {
namespace {

constexpr size_t kPage = 4096;

// Whether most of the mapped file lies in memory, by a sample of its pages.
bool MostlyInMemory(const SourceFile& file) {
  constexpr size_t kSamples = 128;
  size_t present = 0;
  for (size_t i = 0; i < kSamples; ++i) {
    const size_t at = file.size_bytes / kSamples * i / kPage * kPage;
    unsigned char in_memory = 0;
    // mincore wants an address, not a const one; it changes nothing.
    if (mincore(const_cast<std::byte*>(file.base) + at, 1, &in_memory) != 0) return true;
    present += in_memory & 1;
  }
  return 2 * present > kSamples;
}

}  // namespace

Result<std::unique_ptr<SourceFileReader>> SourceFileReader::Open(const SourceFile& file) {
  std::unique_ptr<SourceFileReader> reader(new SourceFileReader(file));
  reader->cached_fd_ = open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (reader->cached_fd_ < 0) return Error(Code::kDataLoss, "{}: {}", file.path, std::strerror(errno));
  if (!MostlyInMemory(file)) {
    reader->direct_fd_ = open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    reader->direct_ = reader->direct_fd_ >= 0;
  }
  return Result<std::unique_ptr<SourceFileReader>>(std::move(reader));
}

SourceFileReader::~SourceFileReader() {
  if (cached_fd_ >= 0) close(cached_fd_);
  if (direct_fd_ >= 0) close(direct_fd_);
}

Result<const std::byte*> SourceFileReader::Read(const void* data, size_t size_bytes, std::byte* buffer) {
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(data) - file_.base);
  const size_t before = direct_ ? offset % kAlignment : 0, begin = offset - before;
  size_t length = before + size_bytes;
  if (direct_) length = (length + kAlignment - 1) / kAlignment * kAlignment;
  for (size_t done = 0; done < before + size_bytes;) {
    const ssize_t n = pread(direct_ ? direct_fd_ : cached_fd_, buffer + done, length - done, static_cast<off_t>(begin + done));
    if (n > 0) {
      done += static_cast<size_t>(n);
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && direct_) {  // a file system that reads only through its cache
      direct_ = false;
      return Read(data, size_bytes, buffer);
    }
    return Error(Code::kDataLoss, "{}: reading {} bytes at {}: {}", file_.path, size_bytes, offset,
                 n == 0 ? "the file has become shorter" : std::strerror(errno));
  }
  return static_cast<const std::byte*>(buffer) + before;
}

}  // namespace deepinfer::backend::cuda
