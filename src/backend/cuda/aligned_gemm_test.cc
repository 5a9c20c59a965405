// SPDX-License-Identifier: Apache-2.0
// Property: the matrix kernel gives an output of an aligned format the same bits with every width of products, every number of tiles a
// block, and whether one warpgroup or several sum it up; as bf16 it is the same value rounded.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstring>

#include "backend/cuda/linear/gemm_launch.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/twin_test_util.h"
#include "numeric/formats.h"

namespace deepinfer::backend::cuda {
namespace {

class AlignedGemm : public TwinTest {
 protected:
  void SetUp() override {
    TwinTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(context_.Init().ok());
    context_.BeginOp();
  }

  template <typename T>
  T* Put(const std::vector<T>& host) {
    auto* device = context_.Take<T>(static_cast<int64_t>(host.size()));
    EXPECT_EQ(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
    return device;
  }

  std::vector<uint8_t> Codes(size_t n) {
    std::vector<uint8_t> codes(n);
    for (uint8_t& code : codes) {
      code = static_cast<uint8_t>(Uniform(0, 255));
      if ((code & 0x7F) == 0x7F) code = 0;
    }
    return codes;
  }

  std::vector<float> Scales(int64_t n) {
    std::vector<float> scales;
    for (int64_t i = 0; i < n; ++i) scales.push_back(std::ldexp(1.0f, Uniform(-9, -5)));
    return scales;
  }

  // A bound matrix of so many tiles.
  uint8_t* PutMatrix(WeightFormat format, int64_t tiles, int64_t cols) {
    std::vector<uint8_t> bytes = Codes(static_cast<size_t>(tiles * TileBytes(format, cols)));
    for (int64_t tile = 0; tile < tiles; ++tile) {
      uint8_t* data = &bytes[static_cast<size_t>(tile * TileBytes(format, cols))];
      for (int64_t chunk = 0; format == WeightFormat::kFp4Aligned && chunk < NumChunks(format, cols); ++chunk) {
        uint8_t* scales = data + chunk * ChunkBytes(format) + Fp4AlignedScaleOffset(0, 0);
        for (int i = 0; i < kTileRows * 4; ++i) scales[i] = static_cast<uint8_t>(Uniform(0, kFp4ScaleMost));
      }
      const std::vector<float> scales = Scales(kTileRows);
      std::memcpy(data + RowScalesOffset(format, cols), scales.data(), kTileRows * sizeof(float));
    }
    return Put(bytes);
  }

  template <typename T>
  void Run(const GemmShape& shape, const GemmConfig& config, const GemmParams& p, std::vector<T>& y) {
    void* device = p.y != nullptr ? static_cast<void*>(p.y) : p.y_bf16;
    ASSERT_EQ(cudaMemset(device, 0xFF, y.size() * sizeof(T)), cudaSuccess);
    // Neither this nor the copies of Put are ordered with the context's stream, and both may return before they are done.
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    RunGemmAs(context_, shape, config, p);
    context_.Synchronize();
    const Status status = context_.TakeError();
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(cudaMemcpy(y.data(), device, y.size() * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
  }

  Context context_{0};
};

constexpr GemmConfig kConfigs[] = {{128, false, 4}, {64, false, 4}, {40, false, 4}, {32, false, 4}, {16, false, 4}, {8, false, 4},
                                   {64, false, 2},  {40, false, 2}, {32, false, 2}, {16, false, 2}, {8, false, 2},
                                   {64, false, 1},  {40, false, 1}, {32, false, 1}, {16, false, 1}, {8, false, 1}};

TEST_F(AlignedGemm, EveryKernelGivesTheSameBits) {
  constexpr int64_t kRows = 331, kTiles = 9;  // several items a block where they are small
  for (const WeightFormat format : {WeightFormat::kFp8Aligned, WeightFormat::kFp4Aligned}) {
    for (const int64_t chunks : {1, 2, 3, 7, 9, 40}) {
      for (const bool pairs : {false, true}) {
        context_.BeginOp();
        const int64_t cols = chunks * kAlignedChunkCols, outputs = kTiles * kTileRows;
        const uint8_t* const matrices[] = {PutMatrix(format, kTiles, cols), PutMatrix(format, kTiles, cols)};
        GemmParams p;
        p.matrices = Put(std::vector<const uint8_t*>(std::begin(matrices), std::end(matrices)));
        p.epilogue = pairs ? Epilogue::kSwiGlu : Epilogue::kStore;
        p.problem_matrices = pairs ? 2 : 1;
        p.limit = 10.0f;
        p.num_chunks = static_cast<int32_t>(chunks);
        p.problem_rows = static_cast<int32_t>(outputs);
        p.part_bytes = PartBytes(kRows);
        p.inputs = Put(Codes(static_cast<size_t>(chunks * p.part_bytes)));
        p.row_scales = Put(Scales(p.part_bytes / kAtomBytes * kGroupRows));
        p.rows = kRows;
        p.y_stride = outputs;
        p.y = context_.Take<float>(kRows * outputs);
        const GemmShape shape{.tiles = kTiles * p.problem_matrices, .num_chunks = chunks, .rows = kRows, .format = format, .pairs = pairs};
        std::vector<float> first, y(static_cast<size_t>(kRows * outputs));
        std::vector<uint16_t> rounded, y_bf16(y.size());
        for (const GemmConfig& config : kConfigs) {
          if (pairs && config.tiles == 1) continue;
          const std::string what = fmt::format("{} chunks, {} tokens, {} tiles, format {}, pairs {}", chunks, config.tokens, config.tiles,
                                               static_cast<int>(format), pairs);
          Run(shape, config, p, y);
          if (first.empty()) {
            first = y;
            for (const float value : first) rounded.push_back(numeric::FloatToBf16(value));
          }
          EXPECT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0) << what;
          GemmParams to_bf16 = p;
          to_bf16.y = nullptr;
          to_bf16.y_bf16 = reinterpret_cast<uint16_t*>(p.y);
          Run(shape, config, to_bf16, y_bf16);
          EXPECT_EQ(rounded, y_bf16) << what;
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::backend::cuda
