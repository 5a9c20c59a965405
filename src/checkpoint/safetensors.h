// SPDX-License-Identifier: Apache-2.0
// The safetensors container: u64 little-endian header length N, N bytes of JSON {name: {dtype, shape, data_offsets}},
// then the tensors' bytes, without gaps, overlaps or anything after them. Reading maps the file; nothing is copied.
// A file is hostile until its header has been checked: limits on length, depth, names and dimensions, no arithmetic
// that can overflow, and memory in proportion to the header alone.
// SafetensorsFile: const use from many threads is safe; views point into it and live as long as it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/status.h"
#include "tensor/tensor_view.h"

namespace deepinfer::checkpoint {

// The format's own limit on the header.
inline constexpr uint64_t kSafetensorsHeaderMax = 100'000'000;
inline constexpr size_t kTensorNameMax = 1024;

struct TensorInfo {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  uint64_t begin = 0;  // of its bytes, from the end of the header
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;                            // in the order of their bytes
  std::vector<std::pair<std::string, std::string>> metadata;  // "__metadata__"
  uint64_t data_begin = 0;                                    // in the file
};

// Parses the head of a file of `file_size` bytes. `head` holds its first bytes: all of the header, or fewer bytes than
// that only if the file is truncated. Errors (kDataLoss) say what is wrong, without the file's name.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> head, uint64_t file_size);

class SafetensorsFile {
 public:
  // Errors name the file; what is no safetensors file at all but a Git LFS pointer or a web page is called that.
  static Result<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }
  // The bytes of the header, length included.
  std::span<const std::byte> header_bytes() const { return file_.bytes().first(header_.data_begin); }
  const MappedFile& file() const { return file_; }

  // REQUIRES: `info` is one of header().tensors.
  TensorView View(const TensorInfo& info) const;
  // The tensor of that name; kNotFound names it and the file.
  Result<TensorView> Find(std::string_view name) const;

 private:
  SafetensorsFile(MappedFile file, SafetensorsHeader header) : file_(std::move(file)), header_(std::move(header)) {}
  MappedFile file_;
  SafetensorsHeader header_;
};

// Writes a file with these tensors, appearing under its name only when it is whole. Data begin at a multiple of 64.
struct NamedTensor {
  std::string name;
  TensorView tensor;
};
Status WriteSafetensors(const std::string& path, std::span<const NamedTensor> tensors,
                        std::span<const std::pair<std::string, std::string>> metadata = {});

}  // namespace deepinfer::checkpoint
