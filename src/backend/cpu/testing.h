// SPDX-License-Identifier: Apache-2.0
// For the tests of this folder: random inputs, weight matrices in every format, and comparison with tolerance.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/api/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "numeric/quantize.h"

namespace deepinfer::backend::cpu {

inline std::unique_ptr<Backend> Make(std::string_view variant, int threads) {
  auto made = CreateCpu({.num_threads = threads, .variant = std::string(variant)});
  EXPECT_TRUE(made.ok());
  return std::move(*made);
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  float Normal() { return std::normal_distribution<float>()(engine_); }
  int64_t Int(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  std::vector<float> Normals(int64_t n, float scale = 1.0f) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = scale * Normal();
    return out;
  }
  // Rows whose values have very different sizes.
  std::vector<float> Wide(int64_t n) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = Normal() * std::exp2(static_cast<float>(Int(-8, 6)));
    return out;
  }
  std::vector<uint8_t> Bytes(int64_t n) {
    std::vector<uint8_t> out(static_cast<size_t>(n));
    for (uint8_t& x : out) x = static_cast<uint8_t>(Int(0, 255));
    return out;
  }

 private:
  std::mt19937 engine_;
};

// A weight matrix and its bytes, at an address without alignment. Every code occurs but those of NaN.
struct TestMatrix {
  TestMatrix(Random& random, WeightFormat format, int64_t rows, int64_t cols) {
    matrix = {.format = format, .rows = rows, .cols = cols};
    const auto bytes = static_cast<int64_t>(MatrixRowBytes(matrix)) * rows;
    data = random.Bytes(bytes + 1);
    uint8_t* to = data.data() + 1;
    const float spread = 1.0f / std::sqrt(static_cast<float>(cols));
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float value = random.Normal() * spread;
      if (format == WeightFormat::kF32) std::memcpy(to + 4 * i, &value, 4);
      const uint16_t code = numeric::FloatToBf16(value);
      if (format == WeightFormat::kBf16) std::memcpy(to + 2 * i, &code, 2);
    }
    if (format == WeightFormat::kFp8Tile32 || format == WeightFormat::kFp8Row32) {
      for (int64_t i = 0; i < bytes; ++i) to[i] = (to[i] & 0x7F) == 0x7F ? 0 : to[i];
    }
    const int64_t scale_rows = format == WeightFormat::kFp8Tile32 ? (rows + 31) / 32 : rows;
    scales.resize(static_cast<size_t>(scale_rows * (cols / 32) + 1));
    const int64_t middle = format == WeightFormat::kFp4Row32 ? 122 : 115;
    for (uint8_t& s : scales) s = static_cast<uint8_t>(random.Int(middle - 3, middle + 2));
    matrix.data = to;
    if (format != WeightFormat::kF32 && format != WeightFormat::kBf16) matrix.scale = scales.data() + 1;
  }
  TestMatrix(TestMatrix&&) = default;

  std::vector<uint8_t> data;
  std::vector<uint8_t> scales;
  Matrix matrix;
};

inline constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kFp8Tile32,
                                            WeightFormat::kFp8Row32, WeightFormat::kFp4Row32};
inline bool HasBlocks(WeightFormat f) { return f != WeightFormat::kF32 && f != WeightFormat::kBf16; }

// Poison for outputs.
inline std::vector<float> Poisoned(int64_t n) { return std::vector<float>(static_cast<size_t>(n), -777.25f); }

// |got - want| <= bound * (largest |want|).
inline void ExpectNear(const std::vector<float>& got, const std::vector<float>& want, double bound, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  double top = 1e-30;
  for (const float w : want) top = std::max(top, std::isfinite(w) ? std::fabs(double{w}) : 0);
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    if (got[i] == want[i]) continue;
    ASSERT_LE(std::fabs(double{got[i]} - want[i]), bound * top)
        << what << ": index " << i << ": " << got[i] << " instead of " << want[i];
  }
}

template <typename T>
void ExpectSameBytes(const std::vector<T>& got, const std::vector<T>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(T)), 0)
        << what << ": index " << i << ": " << +got[i] << " instead of " << +want[i];
  }
}

}  // namespace deepinfer::backend::cpu
