// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/identity.h"

#include <algorithm>
#include <array>

#include "checkpoint/digest.h"
#include "core/file.h"

namespace deepinfer::checkpoint {
namespace {

constexpr size_t kPieceBytes = 64;
constexpr size_t kTokenizerSizeMax = size_t{256} << 20;

// A part of the digest, with its length in front so that no two lists of parts read the same.
void AddPart(std::string_view what, std::span<const std::byte> bytes, Digest* digest) {
  digest->Add(fmt::format("{} {}\n", what, bytes.size()));
  digest->Add(bytes);
}

void AddPart(std::string_view what, std::string_view text, Digest* digest) {
  AddPart(what, std::as_bytes(std::span(text.data(), text.size())), digest);
}

// Offsets of the pieces of a tensor of `size` bytes: they cover a small one and never overlap.
struct Pieces {
  std::array<size_t, 3> begin = {};
  std::array<size_t, 3> size = {};
};

Pieces PiecesOf(size_t size) {
  if (size <= 3 * kPieceBytes) return {.begin = {0, 0, 0}, .size = {size, 0, 0}};
  return {.begin = {0, size / 2 - kPieceBytes / 2, size - kPieceBytes},
          .size = {kPieceBytes, kPieceBytes, kPieceBytes}};
}

void AddSamples(const SafetensorsFile& shard, Digest* digest) {
  const std::vector<TensorInfo>& tensors = shard.header().tensors;
  const auto offset_of = [&](const TensorInfo& info, size_t begin) {
    return shard.header().data_begin + info.begin + begin;
  };
  // The pieces of many tensors are asked for ahead, so that a disk has many reads to work on at a time.
  constexpr size_t kAhead = 256;
  size_t asked = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (; asked < std::min(tensors.size(), i + kAhead); ++asked) {
      const Pieces pieces = PiecesOf(tensors[asked].end - tensors[asked].begin);
      for (size_t p = 0; p < 3; ++p) {
        shard.file().Advise(MappedFile::Access::kWillNeed, offset_of(tensors[asked], pieces.begin[p]), pieces.size[p]);
      }
    }
    const Pieces pieces = PiecesOf(tensors[i].end - tensors[i].begin);
    for (size_t p = 0; p < 3; ++p) {
      digest->Add(shard.file().bytes().subspan(offset_of(tensors[i], pieces.begin[p]), pieces.size[p]));
    }
  }
}

}  // namespace

Result<std::string> ModelIdentity(const Checkpoint& checkpoint) {
  Digest digest(Digest::Kind::kSha256);
  digest.Add("deepinfer model identity 1\n");
  AddPart("config", checkpoint.config_text(), &digest);
  Result<std::string> tokenizer = ReadFile(checkpoint.directory() + "/tokenizer.json", kTokenizerSizeMax);
  if (!tokenizer.ok() && tokenizer.status().code() != Code::kNotFound) return tokenizer.status();
  AddPart("tokenizer", tokenizer.ok() ? *tokenizer : std::string(), &digest);
  for (const SafetensorsFile& shard : checkpoint.shards()) {
    AddPart("header", shard.header_bytes(), &digest);
    AddSamples(shard, &digest);
  }
  DI_RETURN_IF_ERROR(checkpoint.CheckIntact());
  return digest.Finish();
}

}  // namespace deepinfer::checkpoint
