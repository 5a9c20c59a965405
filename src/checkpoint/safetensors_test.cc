// SPDX-License-Identifier: Apache-2.0
// Property: what is written reads back; tensors that lie misaligned in their file are usable through a Checkpoint.
// Damaged files: tests/checkpoint.
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/checkpoint.h"
#include "core/temporary_directory.h"

namespace deepinfer::checkpoint {
namespace {

using core::TemporaryDirectory;
using testing::HasSubstr;

TEST(Safetensors, WhatIsWrittenReadsBack) {
  const TemporaryDirectory dir;
  const float logits[] = {1.5f, -2, 3, 4, 5, 6};
  const uint8_t bytes[] = {1, 2, 3};
  const std::vector<NamedTensor> tensors = {
      {"logits", {DType::kF32, Shape({2, 3}), reinterpret_cast<const std::byte*>(logits)}},
      {"a \"name\"\n", {DType::kU8, Shape({3}), reinterpret_cast<const std::byte*>(bytes)}},
      {"empty", {DType::kBF16, Shape({0, 4}), nullptr}},
      {"scalar", {DType::kF32, Shape(), reinterpret_cast<const std::byte*>(logits)}},
  };
  const std::vector<std::pair<std::string, std::string>> metadata = {{"model", "x"}};
  ASSERT_TRUE(WriteSafetensors(dir / "f", tensors, metadata).ok());
  const Result<SafetensorsFile> file = SafetensorsFile::Open(dir / "f");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->header().metadata, metadata);
  EXPECT_EQ(file->header().data_begin % 64, 0u);
  const Result<TensorView> read = file->Find("logits");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->shape, Shape({2, 3}));
  EXPECT_EQ(read->As<float>()[0], 1.5f);
  EXPECT_EQ(read->As<float>()[5], 6);
  EXPECT_EQ(file->Find("a \"name\"\n")->As<uint8_t>()[2], 3);
  EXPECT_EQ(file->Find("empty")->num_elements(), 0);
  EXPECT_EQ(file->Find("scalar")->num_elements(), 1);
  const Status absent = file->Find("none").status();
  EXPECT_EQ(absent.code(), Code::kNotFound);
  EXPECT_THAT(absent.message(), HasSubstr("none"));
}

// The bundled checkpoint with one blank more in its header: every tensor lies at an odd address.
TEST(Safetensors, MisalignedTensorsAreUsable) {
  const std::string golden = std::string(DI_SOURCE_DIR) + "/tests/golden/model/base";
  const TemporaryDirectory dir;
  std::string bytes = *ReadFile(golden + "/model.safetensors", size_t{1} << 24);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  bytes.insert(8 + length, 1, ' ');
  ++length;
  std::memcpy(bytes.data(), &length, sizeof(length));
  ASSERT_TRUE(WriteFileAtomically(dir / "model.safetensors", bytes).ok());
  ASSERT_TRUE(WriteFileAtomically(dir / "config.json", *ReadFile(golden + "/config.json", kConfigSizeMax)).ok());
  const Result<Checkpoint> aligned = Checkpoint::Open(golden);
  const Result<Checkpoint> shifted = Checkpoint::Open(dir.path());
  ASSERT_TRUE(aligned.ok() && shifted.ok()) << shifted.status().message();
  for (const char* name : {"norm.weight", "layers.0.hc_attn_fn", "embed.weight", "layers.1.attn.wkv.weight"}) {
    const TensorView expected = aligned->Tensor(name);
    const TensorView found = shifted->Tensor(name);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found.data) % DTypeSize(found.dtype), 0u) << name;
    EXPECT_EQ(std::memcmp(found.data, expected.data, expected.size_bytes()), 0) << name;
  }
}

}  // namespace
}  // namespace deepinfer::checkpoint
