// SPDX-License-Identifier: Apache-2.0
// For the tests: runs an op on the card and on the reference backend over the same inputs, and compares. Outputs are
// poisoned with NaN first, and the card runs first. Tests skip where there is no card that the backend takes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/reference/reference_backend.h"
#include "numeric/formats.h"

namespace deepinfer::backend::cuda {

// One backend with the buffers of a test.
class Side {
 public:
  explicit Side(Backend& backend) : backend_(backend) {}
  Backend& operator*() { return backend_; }
  Backend* operator->() { return &backend_; }

  template <typename T>
  T* Put(const std::vector<T>& values) {
    auto buffer = Upload<T>(backend_, values);
    EXPECT_TRUE(buffer.ok()) << buffer.status().message();
    buffers_.push_back(*std::move(buffer));
    return buffers_.back().template as<T>();
  }
  // Poisoned: every byte is 0xFF, a NaN.
  template <typename T>
  T* Out(int64_t n) {
    T poison;
    std::memset(&poison, 0xFF, sizeof(T));
    return Put(std::vector<T>(static_cast<size_t>(std::max<int64_t>(n, 1)), poison));
  }
  template <typename T>
  std::vector<T> Get(const T* device, int64_t n) {
    std::vector<T> host(static_cast<size_t>(n));
    backend_.CopyToHost(host.data(), device, host.size() * sizeof(T));
    const Status status = backend_.Synchronize();
    EXPECT_TRUE(status.ok()) << status.message();
    return host;
  }
  Matrix Bind(const Matrix& host, Activations activations = Activations::kFp32) {
    auto bound = backend_.BindMatrix(host, activations);
    EXPECT_TRUE(bound.ok()) << bound.status().message();
    return bound.ok() ? *bound : Matrix();
  }

 private:
  Backend& backend_;
  std::vector<Buffer> buffers_;
};

// A weight matrix in host memory.
struct HostMatrix {
  std::vector<uint8_t> data, scale;
  Matrix matrix;
};

class TwinTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto made = CreateCuda({.aligned_cols_min = 128});
    reason() = made.status().message();
    if (made.ok()) card() = *std::move(made);
    reference() = CreateReference();
  }
  static void TearDownTestSuite() { card().reset(); }
  void SetUp() override {
    if (card() == nullptr) GTEST_SKIP() << reason();
  }

  static std::unique_ptr<Backend>& card() {
    static std::unique_ptr<Backend> backend;
    return backend;
  }
  static std::unique_ptr<Backend>& reference() {
    static std::unique_ptr<Backend> backend;
    return backend;
  }
  static std::string& reason() {
    static std::string text;
    return text;
  }

  std::vector<float> Normal(int64_t n, float deviation = 1.0f) {
    std::normal_distribution<float> draw(0.0f, deviation);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = draw(random_);
    return values;
  }
  int Uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  std::vector<int32_t> Integers(int64_t n, int low, int high) {
    std::vector<int32_t> values(static_cast<size_t>(n));
    for (int32_t& value : values) value = Uniform(low, high);
    return values;
  }

  // Random codes, none of them NaN; scales around cols^-0.5.
  HostMatrix Weights(WeightFormat format, int64_t rows, int64_t cols) {
    HostMatrix m;
    m.matrix = {.format = format, .rows = rows, .cols = cols};
    m.data.resize(static_cast<size_t>(rows) * MatrixRowBytes(m.matrix));
    if (format == WeightFormat::kF32 || format == WeightFormat::kBf16) {
      const std::vector<float> values = Normal(rows * cols, 1.0f / std::sqrt(static_cast<float>(cols)));
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t code = numeric::FloatToBf16(values[i]);
        if (format == WeightFormat::kF32) {
          std::memcpy(&m.data[4 * i], &values[i], 4);
        } else {
          std::memcpy(&m.data[2 * i], &code, 2);
        }
      }
    } else {
      for (uint8_t& code : m.data) code = static_cast<uint8_t>(Uniform(0, 255));
      const bool is_fp8 = format != WeightFormat::kFp4Row32;
      for (uint8_t& code : m.data) code = is_fp8 && (code & 0x7F) == 0x7F ? code ^ 1 : code;
      m.scale.resize(static_cast<size_t>((format == WeightFormat::kFp8Tile32 ? rows / 32 : rows) * (cols / 32)));
      const int middle = is_fp8 ? 113 : 120;
      for (uint8_t& code : m.scale) code = static_cast<uint8_t>(Uniform(middle - 3, middle + 3));
      m.matrix.scale = m.scale.data();
    }
    m.matrix.data = m.data.data();
    return m;
  }

  std::mt19937 random_{20261129};
};

// Rows of `width` values: the largest difference of a row is at most tolerance times the largest magnitude of the row.
inline void ExpectRowsNear(const std::vector<float>& got, const std::vector<float>& want, int64_t width, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double worst = 0;
  for (size_t begin = 0; begin < got.size(); begin += static_cast<size_t>(width)) {
    double scale = 1e-30;
    for (size_t i = begin; i < begin + static_cast<size_t>(width); ++i) scale = std::max(scale, std::fabs(double{want[i]}));
    for (size_t i = begin; i < begin + static_cast<size_t>(width); ++i) {
      const double error = std::fabs(double{got[i]} - double{want[i]}) / scale;
      if (!(error <= tolerance)) {
        FAIL() << "row " << begin / static_cast<size_t>(width) << " column " << i - begin << ": " << got[i] << ", expected "
               << want[i] << " (error " << error << ", at most " << tolerance << ")";
      }
      worst = std::max(worst, error);
    }
  }
  ::testing::Test::RecordProperty("largest_error", std::to_string(worst));
}

// At least 99.9 % of the bytes are equal: values on a rounding boundary may fall on either side.
inline void ExpectCodesEqual(const std::vector<uint8_t>& got, const std::vector<uint8_t>& want) {
  ASSERT_EQ(got.size(), want.size());
  size_t different = 0, first = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != want[i] && different++ == 0) first = i;
  }
  EXPECT_LE(different * 1000, got.size()) << different << " of " << got.size() << " bytes differ, the first at " << first;
}

// Under a sanitizer, which slows kernels down a hundredfold, DI_TEST_SMALL is set (tests/cuda_sanitizer.sh): few rows, which all
// kernels of an op still see.
inline const bool kSmall = std::getenv("DI_TEST_SMALL") != nullptr;
inline const int64_t kRowsMax = kSmall ? 80 : 4096;
// So many rows, or all there are.
inline int64_t AtMost(int64_t rows) { return std::min(rows, kRowsMax); }

// The row counts at which rows must keep their bits.
inline const std::vector<int64_t>& RowCounts() {
  static const std::vector<int64_t> counts =
      kSmall ? std::vector<int64_t>{1, 7, 65} : std::vector<int64_t>{1, 2, 6, 7, 31, 64, 255, 256, 257, 4096};
  return counts;
}

// run(begin, rows) computes rows [begin, begin + rows) of one fixed input. Whatever the count and the neighbours, a row
// has the same bits.
template <typename T>
void ExpectRowsInvariant(int64_t width, const std::function<std::vector<T>(int64_t begin, int64_t rows)>& run) {
  const std::vector<T> all = run(0, kRowsMax);
  for (const int64_t rows : RowCounts()) {
    for (const int64_t begin : {int64_t{0}, std::min<int64_t>(kRowsMax - rows, 1237)}) {
      const std::vector<T> some = run(begin, rows);
      ASSERT_EQ(static_cast<int64_t>(some.size()), rows * width);
      const T* expected = all.data() + begin * width;
      for (int64_t i = 0; i < rows * width; ++i) {
        ASSERT_EQ(std::memcmp(&some[static_cast<size_t>(i)], expected + i, sizeof(T)), 0)
            << "rows [" << begin << ", +" << rows << "): row " << i / width << " column " << i % width << ": "
            << +some[static_cast<size_t>(i)] << ", in the large batch " << +expected[i];
      }
    }
  }
}

}  // namespace deepinfer::backend::cuda
