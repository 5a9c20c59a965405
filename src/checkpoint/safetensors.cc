// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "core/json.h"

namespace deepinfer::checkpoint {
namespace {

constexpr size_t kLengthBytes = 8;
static_assert(std::endian::native == std::endian::little, "tensor bytes are used as they lie in the file");

Status Bad(std::string_view name, std::string_view what) {
  return Error(Code::kDataLoss, "tensor {}: {}",
               WriteJson(Json(std::string(name.substr(0, 200))), {.ascii_only = true}), what);
}

std::optional<uint64_t> ToOffset(const Json& value) {
  const std::optional<int64_t> number = value.ToInt64();
  if (!number || *number < 0) return std::nullopt;
  return static_cast<uint64_t>(*number);
}

Result<Shape> ParseShape(std::string_view name, const Json& value) {
  if (!value.IsArray()) return Bad(name, "shape is no array");
  if (value.Items().size() > Shape::kRankMax) {
    return Bad(name, fmt::format("{} dimensions, more than {}", value.Items().size(), Shape::kRankMax));
  }
  std::vector<int64_t> dims;
  for (const Json& item : value.Items()) {
    const std::optional<int64_t> dim = item.ToInt64();
    if (!dim || *dim < 0) return Bad(name, fmt::format("dimension {} is no integer from 0 to 2^63-1", dims.size()));
    dims.push_back(*dim);
  }
  return Shape(dims);
}

// Bytes of a tensor, or nothing where they exceed what a file can have.
std::optional<uint64_t> SizeBytes(DType dtype, const Shape& shape) {
  const std::optional<int64_t> count = shape.NumElements();
  int64_t size = 0;
  if (!count || __builtin_mul_overflow(*count, static_cast<int64_t>(DTypeSize(dtype)), &size)) return std::nullopt;
  return static_cast<uint64_t>(size);
}

Result<TensorInfo> ParseTensor(const std::string& name, const Json& value) {
  if (!value.IsObject()) return Bad(name, "expected an object");
  const Json* dtype = nullptr;
  const Json* shape = nullptr;
  const Json* offsets = nullptr;
  for (const auto& [key, field] : value.Members()) {
    const Json** slot = key == "dtype" ? &dtype : key == "shape" ? &shape : key == "data_offsets" ? &offsets : nullptr;
    if (slot == nullptr) return Bad(name, "has a field other than dtype, shape and data_offsets");
    if (*slot != nullptr) return Bad(name, fmt::format("has {} twice", key));
    *slot = &field;
  }
  if (dtype == nullptr || shape == nullptr || offsets == nullptr) {
    return Bad(name, "lacks dtype, shape or data_offsets");
  }
  TensorInfo info;
  info.name = name;
  if (!dtype->IsString()) return Bad(name, "dtype is no string");
  const std::optional<DType> parsed = ParseDType(dtype->AsString());
  if (!parsed) {
    return Bad(name, "unknown dtype " + WriteJson(Json(dtype->AsString().substr(0, 40)), {.ascii_only = true}));
  }
  info.dtype = *parsed;
  DI_ASSIGN_OR_RETURN(info.shape, ParseShape(name, *shape));
  if (!offsets->IsArray() || offsets->Items().size() != 2) return Bad(name, "data_offsets is no pair");
  const std::optional<uint64_t> begin = ToOffset(offsets->Items()[0]);
  const std::optional<uint64_t> end = ToOffset(offsets->Items()[1]);
  if (!begin || !end || *begin > *end) return Bad(name, "data_offsets is no ascending pair of integers");
  const std::optional<uint64_t> size = SizeBytes(info.dtype, info.shape);
  if (!size || *size != *end - *begin) {
    return Bad(name, fmt::format("{} {} does not have the {} bytes that data_offsets give it", DTypeName(info.dtype),
                                 info.shape.ToString(), *end - *begin));
  }
  info.begin = *begin;
  info.end = *end;
  return info;
}

Status ParseMetadata(const Json& value, SafetensorsHeader* header) {
  if (!value.IsObject()) return Error(Code::kDataLoss, "__metadata__ is no object");
  for (const auto& [key, text] : value.Members()) {
    if (!text.IsString()) return Error(Code::kDataLoss, "__metadata__ holds something other than strings");
    header->metadata.emplace_back(key, text.AsString());
  }
  return Status();
}

// The tensors must cover the data exactly: what lies between or after them could be read differently by others.
Status CheckCover(std::vector<TensorInfo>* tensors, uint64_t data_begin, uint64_t file_size) {
  const uint64_t data_size = file_size - data_begin;
  uint64_t data_end = 0;
  for (const TensorInfo& info : *tensors) data_end = std::max(data_end, info.end);
  if (data_end > data_size) {
    return Error(Code::kDataLoss, "truncated: the header describes a file of {} bytes, found {}", data_begin + data_end,
                 file_size);
  }
  std::stable_sort(tensors->begin(), tensors->end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = 0;
  for (const TensorInfo& info : *tensors) {
    if (info.begin < covered) return Bad(info.name, "overlaps another tensor");
    if (info.begin > covered) {
      return Bad(info.name, fmt::format("{} bytes before it belong to no tensor", info.begin - covered));
    }
    covered = info.end;
  }
  if (covered != data_size) {
    return Error(Code::kDataLoss, "{} bytes after the last tensor: expected a file of {} bytes, found {}",
                 data_size - covered, data_begin + covered, file_size);
  }
  return Status();
}

// What a file is that was saved in place of a shard, if that can be told.
std::string_view Recognise(std::string_view start) {
  if (start.starts_with("version https://git-lfs.github.com/spec/")) {
    return "this is a Git LFS pointer, not the file itself; fetch it with `git lfs pull` or download it again";
  }
  const size_t text = start.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (text == std::string_view::npos) return {};
  start.remove_prefix(text);
  for (const std::string_view mark : {"<!DOCTYPE", "<!doctype", "<html", "<HTML", "<?xml"}) {
    if (start.starts_with(mark)) return "this is a web page, not a safetensors file; download it again";
  }
  return {};
}

}  // namespace

Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> head, uint64_t file_size) {
  if (file_size < kLengthBytes || head.size() < kLengthBytes) {
    return Error(Code::kDataLoss, "{} bytes are too few for a safetensors file", file_size);
  }
  uint64_t length = 0;
  std::memcpy(&length, head.data(), kLengthBytes);
  if (length > kSafetensorsHeaderMax) {
    return Error(Code::kDataLoss, "header length {} is above the limit of {}", length, kSafetensorsHeaderMax);
  }
  if (length > file_size - kLengthBytes || length > head.size() - kLengthBytes) {
    return Error(Code::kDataLoss, "truncated: expected a header of {} bytes, found {} bytes after the length", length,
                 file_size - kLengthBytes);
  }
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + kLengthBytes, length);
  if (text.empty() || text.front() != '{') return Error(Code::kDataLoss, "header is no JSON object");
  Result<Json> json = ParseJson(text, {.size_bytes_max = kSafetensorsHeaderMax, .depth_max = 8});
  if (!json.ok()) return Error(Code::kDataLoss, "header: {}", json.status().message());

  SafetensorsHeader header;
  header.data_begin = kLengthBytes + length;
  std::unordered_set<std::string_view> names;
  for (const auto& [name, value] : json->Members()) {
    if (name.size() > kTensorNameMax) return Bad(name, fmt::format("name longer than {} bytes", kTensorNameMax));
    if (!names.insert(name).second) return Bad(name, "appears twice");
    if (name == "__metadata__") {
      DI_RETURN_IF_ERROR(ParseMetadata(value, &header));
      continue;
    }
    DI_ASSIGN_OR_RETURN(TensorInfo info, ParseTensor(name, value));
    header.tensors.push_back(std::move(info));
  }
  DI_RETURN_IF_ERROR(CheckCover(&header.tensors, header.data_begin, file_size));
  return header;
}

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  DI_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  Result<SafetensorsHeader> header = ParseSafetensorsHeader(file.bytes(), file.bytes().size());
  if (!header.ok()) {
    const std::string_view start(reinterpret_cast<const char*>(file.bytes().data()),
                                 std::min<size_t>(file.bytes().size(), 256));
    if (const std::string_view what = Recognise(start); !what.empty()) {
      return Error(Code::kDataLoss, "{}: {}", path, what);
    }
    return header.status().In(path);
  }
  DI_RETURN_IF_ERROR(file.CheckIntact());
  return SafetensorsFile(std::move(file), *std::move(header));
}

TensorView SafetensorsFile::View(const TensorInfo& info) const {
  return {info.dtype, info.shape, file_.bytes().data() + header_.data_begin + info.begin};
}

Result<TensorView> SafetensorsFile::Find(std::string_view name) const {
  for (const TensorInfo& info : header_.tensors) {
    if (info.name == name) return View(info);
  }
  return Error(Code::kNotFound, "{}: no tensor {} in it", path(), name);
}

Status WriteSafetensors(const std::string& path, std::span<const NamedTensor> tensors,
                        std::span<const std::pair<std::string, std::string>> metadata) {
  Json::Object header;
  if (!metadata.empty()) {
    Json::Object strings;
    for (const auto& [key, text] : metadata) strings.emplace_back(key, Json(text));
    header.emplace_back("__metadata__", Json(std::move(strings)));
  }
  int64_t offset = 0;
  for (const NamedTensor& named : tensors) {
    Json::Array dims;
    for (const int64_t dim : named.tensor.shape.dims()) dims.push_back(Json::Integer(dim));
    const auto end = offset + static_cast<int64_t>(named.tensor.size_bytes());
    header.emplace_back(named.name, Json(Json::Object{
                                        {"dtype", Json(std::string(DTypeName(named.tensor.dtype)))},
                                        {"shape", Json(std::move(dims))},
                                        {"data_offsets", Json(Json::Array{Json::Integer(offset), Json::Integer(end)})},
                                    }));
    offset = end;
  }
  std::string text = WriteJson(Json(std::move(header)));
  constexpr size_t kDataAlignment = 64;
  text.append((kDataAlignment - (kLengthBytes + text.size()) % kDataAlignment) % kDataAlignment, ' ');

  const auto length = static_cast<uint64_t>(text.size());
  DI_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  DI_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(&length, 1))));
  DI_RETURN_IF_ERROR(file.Write(text));
  for (const NamedTensor& named : tensors) DI_RETURN_IF_ERROR(file.Write(named.tensor.bytes()));
  return file.Commit();
}

}  // namespace deepinfer::checkpoint
