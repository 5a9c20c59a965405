// SPDX-License-Identifier: Apache-2.0
// Properties of the forms for FP8 products: a bound matrix has exactly the values that packed.h says, for scales near and far and
// blocks of zeros; inputs have exactly the codes and scales that MXFP8 and then the alignment make of a row, from rows, from sums of
// spans, and gathered.
#include <cuda_runtime_api.h>

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/aligned_inputs.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/linear/plain.h"
#include "backend/cuda/twin_test_util.h"
#include "backend/cuda/weights.h"
#include "numeric/quantize.h"

namespace deepinfer::backend::cuda {
namespace {

class Aligned : public TwinTest {
 protected:
  void SetUp() override {
    TwinTest::SetUp();
    if (!IsSkipped()) {
      ASSERT_TRUE(context_.Init().ok());
    }
  }
  template <typename T>
  std::vector<T> Get(const T* device, int64_t n) {
    std::vector<T> host(static_cast<size_t>(n));
    context_.Download(host.data(), device, host.size() * sizeof(T));
    context_.Synchronize();
    const Status status = context_.TakeError();
    EXPECT_TRUE(status.ok()) << status.message();
    return host;
  }

  // Some scales far below the others, some blocks of zeros, a row (of blocks) of zeros alone.
  HostMatrix Spread(WeightFormat format, int64_t rows, int64_t cols) {
    HostMatrix w = Weights(format, rows, cols);
    for (uint8_t& code : w.scale) {
      if (Uniform(0, 3) == 0) code = static_cast<uint8_t>(code - Uniform(0, 30));
    }
    const bool fp8 = format == WeightFormat::kFp8Tile32;
    for (int64_t row = 0; row < rows; row += 32) {
      for (int64_t col = 0; col < cols; col += 32) {
        if (row != 32 && Uniform(0, 4) > 0) continue;
        w.scale[static_cast<size_t>((fp8 ? row / 32 : row) * (cols / 32) + col / 32)] = static_cast<uint8_t>(130 + Uniform(0, 100));
        for (int64_t r = row; r < row + (fp8 ? 32 : 1); ++r) {
          const int64_t at = r * cols + col;
          std::fill_n(w.data.begin() + (fp8 ? at : at / 2), fp8 ? 32 : 16, uint8_t{0x80});
        }
      }
    }
    return w;
  }

  Context context_{0};
};

float Shifted(float value, int by) { return std::ldexp(value, by); }

// The value of an element in the aligned form.
std::vector<float> AlignedValues(const Matrix& m) {
  const bool fp8 = m.format == WeightFormat::kFp8Tile32;
  const auto* codes = static_cast<const uint8_t*>(m.data);
  const auto code_of = [&](int64_t row, int64_t col) {
    const int64_t at = row * m.cols + col;
    return fp8 ? codes[at] : static_cast<uint8_t>(codes[at / 2] >> at % 2 * 4 & 0xF);
  };
  const auto scale_of = [&](int64_t row, int64_t col) { return int{m.scale[(fp8 ? row / 32 : row) * (m.cols / 32) + col / 32]}; };
  std::vector<float> values;
  for (int64_t row = 0; row < m.rows; ++row) {
    const int64_t first = fp8 ? row / 32 * 32 : row, last = fp8 ? first + 32 : row + 1;
    int largest = -1;
    for (int64_t r = first; r < last; ++r) {
      for (int64_t col = 0; col < m.cols; ++col) {
        if ((code_of(r, col) & (fp8 ? 0x7F : 7)) != 0) largest = std::max(largest, scale_of(r, col));
      }
    }
    for (int64_t col = 0; col < m.cols; ++col) {
      const int below = largest - scale_of(row, col);
      const uint8_t code = code_of(row, col);
      if (largest < 0 || below < 0) {
        values.push_back(0.0f);
      } else if (fp8) {
        const uint8_t aligned = numeric::FloatToE4m3(Shifted(numeric::E4m3ToFloat(code), -below));
        values.push_back(Shifted(numeric::E4m3ToFloat(aligned), largest - 127));
      } else {
        const int lost = std::max(below - kFp4ScaleMost, 0);
        const uint8_t aligned = numeric::FloatToE2m1(Shifted(numeric::E2m1ToFloat(code), -lost));
        values.push_back(Shifted(numeric::E2m1ToFloat(aligned), largest - 127 - std::min(below, kFp4ScaleMost)));
      }
    }
  }
  return values;
}

// The unit matrix times the transpose: every element by itself.
TEST_F(Aligned, MatricesHaveTheValuesOfTheirForm) {
  for (const WeightFormat format : {WeightFormat::kFp8Tile32, WeightFormat::kFp4Row32}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{96, 128}, {192, 384}}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << cols << ", format " << static_cast<int>(format));
      const HostMatrix w = Spread(format, rows, cols);
      const std::vector<float> expected = AlignedValues(w.matrix);
      cuda::Weights weights(context_, false, /*aligned_cols_min=*/128);
      const auto bound = weights.Bind(w.matrix, Activations::kFp8);
      ASSERT_TRUE(bound.ok()) << bound.status().message();
      ASSERT_TRUE(IsAligned(bound->format));
      std::vector<float> unit(static_cast<size_t>(cols * cols));
      for (int64_t i = 0; i < cols; ++i) unit[static_cast<size_t>(i * cols + i)] = 1.0f;
      context_.BeginOp();
      auto *x = context_.Take<float>(cols * cols), *y = context_.Take<float>(cols * rows);
      context_.Upload(x, unit.data(), unit.size() * sizeof(float));
      const LinearParams p{.rows = cols, .w = *bound, .activations = Activations::kFp8, .x = x, .x_stride = cols, .y = y, .y_stride = rows};
      for (const auto& [name, run] : {std::pair{"plain", &PlainLinear}, std::pair{"tensor cores", &Linear}}) {
        run(context_, p);
        const std::vector<float> got = Get(y, cols * rows);
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t col = 0; col < cols; ++col) {
            ASSERT_EQ(got[static_cast<size_t>(col * rows + row)], expected[static_cast<size_t>(row * cols + col)])
                << name << ": " << row << ", " << col;
          }
        }
      }
    }
  }
}

// Codes [rows, cols] and scales [rows] of inputs.
struct Inputs {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};

Inputs Expected(const std::vector<float>& x, int64_t cols) {
  Inputs in;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(cols)) {
    std::vector<uint8_t> scales;
    const size_t begin = in.codes.size();
    for (int64_t col = 0; col < cols; col += 32) {
      uint8_t block[32];
      scales.push_back(numeric::QuantizeFp8Block(&x[row + static_cast<size_t>(col)], block));
      in.codes.insert(in.codes.end(), block, block + 32);
    }
    const int largest = *std::max_element(scales.begin(), scales.end());
    for (size_t i = 0; i < static_cast<size_t>(cols); ++i) {
      uint8_t& code = in.codes[begin + i];
      code = numeric::FloatToE4m3(Shifted(numeric::E4m3ToFloat(code), scales[i / 32] - largest));
    }
    in.scales.push_back(numeric::E8m0ToFloat(static_cast<uint8_t>(largest)));
  }
  return in;
}

// Rows of all magnitudes, blocks too.
std::vector<float> Scattered(std::mt19937& random, int64_t rows, int64_t cols) {
  std::normal_distribution<float> normal;
  std::vector<float> x;
  for (int64_t row = 0; row < rows; ++row) {
    const int of_row = std::uniform_int_distribution(-6, 6)(random);
    for (int64_t block = 0; block < cols / 32; ++block) {
      const int of_block = std::uniform_int_distribution(-9, 0)(random) * std::uniform_int_distribution(0, 2)(random);
      for (int i = 0; i < 32; ++i) x.push_back(std::ldexp(normal(random), of_row + of_block));
    }
  }
  return x;
}

constexpr InputForm kForm{.activations = Activations::kFp8, .aligned = true};

class AlignedInputs : public Aligned {
 protected:
  float* Put(const std::vector<float>& values) {
    auto* device = context_.Take<float>(static_cast<int64_t>(values.size()));
    context_.Upload(device, values.data(), values.size() * sizeof(float));
    return device;
  }
  void Expect(const PackedInputs& packed, int64_t rows, int64_t cols, const Inputs& expected) {
    const int64_t chunks = cols / kAlignedChunkCols;
    const std::vector<uint8_t> bytes = Get(packed.data, chunks * packed.part_bytes);
    EXPECT_EQ(Get(packed.row_scales, rows), expected.scales);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < cols; ++col) {
        const int64_t in_group = row % 8, unit = col % 128 / 16;
        const int64_t at = col / 128 * packed.part_bytes + row / 8 * 1024 + in_group * 128 +
                           (unit ^ in_group) * 16 + col % 16;
        ASSERT_EQ(int{bytes[static_cast<size_t>(at)]}, int{expected.codes[static_cast<size_t>(row * cols + col)]}) << row << ", " << col;
      }
    }
  }
};

TEST_F(AlignedInputs, AreThoseOfMxfp8RelativeToTheRow) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 128}, {13, 1280}, {8203, 384}, {9, 2304}, {5, 5120}, {3, 8192}, {2, 15360}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << cols);
    const std::vector<float> x = Scattered(random_, rows, cols);
    context_.BeginOp();
    const PackedInputs packed = PackInputs(context_, {.x = Put(x), .x_stride = cols, .rows = rows, .cols = cols, .form = kForm});
    Expect(packed, rows, cols, Expected(x, cols));
  }
}

TEST_F(AlignedInputs, OfSpansAndRowsThatStrideUnaligned) {
  constexpr int64_t kRows = 11, kCols = 256, kStride = 259, kSpans = 3;
  const std::vector<float> parts = Normal(kSpans * kRows * kStride);
  std::vector<float> x;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col) {
      float sum = 0.0f;
      for (int64_t s = 0; s < kSpans; ++s) sum += parts[static_cast<size_t>((s * kRows + row) * kStride + col)];
      x.push_back(sum);
    }
  }
  context_.BeginOp();
  const PackedInputs packed = PackInputs(context_, {.x = Put(parts), .x_stride = kStride, .spans = kSpans, .span_stride = kRows * kStride,
                                                    .rows = kRows, .cols = kCols, .form = kForm});
  Expect(packed, kRows, kCols, Expected(x, kCols));
}

// With rows that begin at multiples of 16 bytes, and others.
TEST_F(AlignedInputs, OfRowsInBf16) {
  constexpr int64_t kRows = 11, kCols = 384;
  for (const int64_t stride : {kCols, kCols + 3}) {
    std::vector<uint16_t> codes;
    std::vector<float> x;
    for (const float value : Scattered(random_, kRows, kCols)) {
      codes.push_back(numeric::FloatToBf16(value));
      x.push_back(numeric::Bf16ToFloat(codes.back()));
      if (x.size() % kCols == 0) codes.resize(x.size() / kCols * static_cast<size_t>(stride));
    }
    context_.BeginOp();
    auto* rows = context_.Take<uint16_t>(static_cast<int64_t>(codes.size()));
    context_.Upload(rows, codes.data(), codes.size() * sizeof(uint16_t));
    const PackedInputs packed = PackInputs(context_, {.x_bf16 = rows, .x_stride = stride, .rows = kRows, .cols = kCols, .form = kForm});
    Expect(packed, kRows, kCols, Expected(x, kCols));
  }
}

// Gathered, and rounded from gathered rows: the same; zeros where there is no row.
TEST_F(AlignedInputs, Gathered) {
  constexpr int64_t kRows = 21, kCols = 1280, kPositions = 40;
  const std::vector<float> x = Scattered(random_, kRows, kCols);
  std::vector<int32_t> map;
  std::vector<float> mapped;
  for (int64_t i = 0; i < kPositions; ++i) {
    map.push_back(i % 8 == 7 ? -1 : Uniform(0, kRows - 1));
    for (int64_t col = 0; col < kCols; ++col) mapped.push_back(map.back() < 0 ? 0.0f : x[static_cast<size_t>(map.back() * kCols + col)]);
  }
  const Inputs expected = Expected(mapped, kCols);
  context_.BeginOp();
  auto* rows = Put(x);
  auto* device_map = context_.Take<int32_t>(kPositions);
  context_.Upload(device_map, map.data(), map.size() * sizeof(int32_t));
  const PackedInputs packed = PackInputs(context_, {.x = rows, .x_stride = kCols, .rows = kRows, .cols = kCols, .form = kForm});
  Inputs gathered = expected;
  for (size_t i = 0; i < map.size(); ++i) gathered.scales[i] = map[i] < 0 ? 1.0f : gathered.scales[i];
  Expect(GatherAlignedInputs(context_, packed, kCols / kAlignedChunkCols, device_map, kPositions), kPositions, kCols, gathered);
  Expect(PackInputs(context_, {.x = rows, .x_stride = kCols, .rows = kPositions, .cols = kCols, .row_map = device_map, .form = kForm}),
         kPositions, kCols, expected);
}

}  // namespace
}  // namespace deepinfer::backend::cuda
