// SPDX-License-Identifier: Apache-2.0
// Property: linears, the router and the experts agree with the reference backend in every weight format and activation
// setting on ragged shapes, and a row's bits depend neither on the other rows nor on the number of threads.
#include <numeric>

#include "backend/cpu/testing.h"
#include "backend/reference/reference_backend.h"

namespace deepinfer::backend::cpu {
namespace {

constexpr Activations kActivations[] = {Activations::kFp32, Activations::kBf16, Activations::kFp8};

struct LinearShape {
  int64_t rows, outputs, cols, groups;
};

std::vector<float> RunLinear(Backend& backend, const Matrix& w, Activations activations, const std::vector<float>& x,
                             int64_t rows, int64_t groups) {
  const int64_t y_stride = w.rows + 3, x_stride = groups * w.cols + 5;
  std::vector<float> y = Poisoned(rows * y_stride);
  backend.Linear({.rows = rows, .w = w, .groups = groups, .activations = activations, .x = x.data(), .x_stride = x_stride,
                  .y = y.data(), .y_stride = y_stride});
  return y;
}

class CpuLinear : public testing::TestWithParam<std::string_view> {};

TEST_P(CpuLinear, AgreesWithReference) {
  Random random(1);
  const auto reference = CreateReference();
  const auto backend = Make(GetParam(), 2);
  const LinearShape shapes[] = {{0, 5, 32, 1},  {1, 1, 32, 1},   {1, 33, 64, 1},   {2, 7, 96, 1},    {3, 96, 256, 2},
                                {5, 130, 32, 1}, {4, 64, 512, 4}, {17, 35, 160, 1}, {64, 48, 320, 1}, {7, 640, 256, 1}};
  for (const WeightFormat format : kFormats) {
    for (const LinearShape& shape : shapes) {
      for (const int64_t extra : {0, 1, 15, 16, 17, 31}) {
        if (extra != 0 && HasBlocks(format)) continue;
        const TestMatrix w(random, format, shape.outputs, shape.cols + extra);
        const auto x = random.Wide(shape.rows * (shape.groups * w.matrix.cols + 5));
        for (const Activations activations : kActivations) {
          const auto got = RunLinear(*backend, w.matrix, activations, x, shape.rows, shape.groups);
          const auto want = RunLinear(*reference, w.matrix, activations, x, shape.rows, shape.groups);
          ExpectNear(got, want, 2e-6, "linear");
        }
      }
    }
  }
}

TEST_P(CpuLinear, BitsDependOnTheRowAlone) {
  Random random(2);
  const auto one = Make(GetParam(), 1);
  for (const WeightFormat format : kFormats) {
    const TestMatrix w(random, format, 70, HasBlocks(format) ? 320 : 331);
    constexpr int64_t kRows = 257;
    const int64_t stride = w.matrix.cols + 5;
    const auto x = random.Wide(kRows * stride);
    std::vector<float> alone;
    for (int64_t r = 0; r < kRows; ++r) {
      const std::vector<float> row(x.begin() + r * stride, x.begin() + (r + 1) * stride);
      const auto y = RunLinear(*one, w.matrix, Activations::kFp32, row, 1, 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (int threads = 1; threads <= 4; ++threads) {
      const auto backend = Make(GetParam(), threads);
      for (const int64_t rows : {1, 2, 3, 5, 16, 17, 64, 257}) {
        const std::vector<float> want(alone.begin(), alone.begin() + rows * 73);
        ExpectSameBytes(RunLinear(*backend, w.matrix, Activations::kFp32, x, rows, 1), want, "rows");
      }
    }
  }
}

// One weight of each code in a row of zeros: every code and scale comes out right, NaN included.
TEST_P(CpuLinear, EveryCode) {
  const auto backend = Make(GetParam(), 1);
  for (const int rows : {1, 9}) {
    for (const int scale : {0, 1, 100, 127, 200, 246, 247, 250}) {
      std::vector<uint8_t> codes(256 * 32, 0), scales(256, static_cast<uint8_t>(scale));
      for (int i = 0; i < 256; ++i) codes[static_cast<size_t>(i * 32 + i % 32)] = static_cast<uint8_t>(i);
      const Matrix w = {WeightFormat::kFp8Row32, 256, 32, codes.data(), scales.data()};
      const std::vector<float> x(static_cast<size_t>(32 * rows + 5 * rows), 1.0f);
      const auto y = RunLinear(*backend, w, Activations::kFp32, x, rows, 1);
      for (int i = 0; i < 256; ++i) {
        const float want = numeric::E4m3ToFloat(static_cast<uint8_t>(i)) * numeric::E8m0ToFloat(static_cast<uint8_t>(scale));
        for (int r = 0; r < rows; ++r) {
          const float got = y[static_cast<size_t>(r * 259 + i)];
          if (std::isnan(want)) {
            EXPECT_TRUE(std::isnan(got));
          } else {
            EXPECT_EQ(got, want) << i << " scale " << scale;
          }
        }
      }
    }
  }
}

struct MoeCase {
  MoeCase(Random& random, int64_t rows_in, int64_t hidden_in, int64_t inter, int64_t experts, int64_t topk_in,
          WeightFormat routed, WeightFormat common, bool shared_in)
      : rows(rows_in), hidden(hidden_in), topk(topk_in), has_shared(shared_in) {
    for (int64_t i = 0; i < 3 * experts; ++i) {
      const bool down = i % 3 == 2;
      matrices.emplace_back(random, routed, down ? hidden : inter, down ? inter : hidden);
    }
    for (int64_t i = 0; i < 3; ++i) matrices.emplace_back(random, common, i == 2 ? hidden : inter, i == 2 ? inter : hidden);
    const auto expert = [&](int64_t e) {
      const auto at = static_cast<size_t>(3 * e);
      return ExpertWeights{matrices[at].matrix, matrices[at + 1].matrix, matrices[at + 2].matrix};
    };
    for (int64_t e = 0; e < experts; ++e) weights_of.push_back(expert(e));
    shared = expert(experts);
    x = random.Normals(rows * hidden, 3.0f);
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<int32_t> all(static_cast<size_t>(experts));
      std::iota(all.begin(), all.end(), 0);
      for (int64_t i = 0; i < topk; ++i) std::swap(all[static_cast<size_t>(i)], all[static_cast<size_t>(random.Int(i, experts - 1))]);
      std::sort(all.begin(), all.begin() + topk);
      chosen.insert(chosen.end(), all.begin(), all.begin() + topk);
      for (int64_t i = 0; i < topk; ++i) weights.push_back(std::fabs(random.Normal()));
    }
  }

  std::vector<float> Run(Backend& backend, Activations activations, int64_t first, int64_t count) const {
    std::vector<float> y = Poisoned(count * hidden);
    backend.Experts({.rows = count, .hidden = hidden, .topk = topk, .num_experts = static_cast<int64_t>(weights_of.size()),
                     .x = x.data() + first * hidden, .chosen = chosen.data() + first * topk,
                     .weights = weights.data() + first * topk, .experts = weights_of.data(), .shared = shared,
                     .has_shared = has_shared, .limit = 1.5f, .activations = activations, .y = y.data()});
    return y;
  }

  int64_t rows, hidden, topk;
  bool has_shared;
  std::vector<TestMatrix> matrices;
  std::vector<ExpertWeights> weights_of;
  ExpertWeights shared;
  std::vector<float> x, weights;
  std::vector<int32_t> chosen;
};

TEST_P(CpuLinear, ExpertsAgreeWithReference) {
  Random random(3);
  const auto reference = CreateReference();
  const auto backend = Make(GetParam(), 3);
  const MoeCase cases[] = {
      {random, 1, 64, 96, 5, 3, WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, true},
      {random, 21, 64, 32, 4, 2, WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, true},
      {random, 9, 96, 64, 3, 3, WeightFormat::kFp8Row32, WeightFormat::kFp8Row32, false},
      {random, 7, 33, 45, 6, 1, WeightFormat::kBf16, WeightFormat::kBf16, true},
      {random, 0, 64, 32, 2, 1, WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, true},
  };
  for (const MoeCase& c : cases) {
    ExpectNear(c.Run(*backend, Activations::kFp32, 0, c.rows), c.Run(*reference, Activations::kFp32, 0, c.rows), 3e-6, "fp32");
    // An inner value may tip over a rounding boundary: one step of the format.
    ExpectNear(c.Run(*backend, Activations::kBf16, 0, c.rows), c.Run(*reference, Activations::kBf16, 0, c.rows), 3e-3, "bf16");
    ExpectNear(c.Run(*backend, Activations::kFp8, 0, c.rows), c.Run(*reference, Activations::kFp8, 0, c.rows), 3e-2, "fp8");
  }
}

TEST_P(CpuLinear, ExpertBitsDependOnTheRowAlone) {
  Random random(4);
  const MoeCase c(random, 257, 64, 96, 12, 3, WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, true);
  const auto one = Make(GetParam(), 1);
  for (const Activations activations : kActivations) {
    std::vector<float> alone;
    for (int64_t r = 0; r < c.rows; ++r) {
      const auto y = c.Run(*one, activations, r, 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (int threads = 1; threads <= 4; ++threads) {
      const auto backend = Make(GetParam(), threads);
      for (const int64_t rows : {2, 3, 5, 16, 17, 64, 257}) {
        const std::vector<float> want(alone.begin(), alone.begin() + rows * c.hidden);
        ExpectSameBytes(c.Run(*backend, activations, 0, rows), want, "experts");
      }
    }
  }
}

TEST_P(CpuLinear, RouteAgreesWithReference) {
  Random random(5);
  const auto reference = CreateReference();
  for (const int64_t experts : {1, 6, 24, 384}) {
    const TestMatrix gate(random, WeightFormat::kBf16, experts, 70);
    const auto bias = random.Normals(experts, 0.3f), image_bias = random.Normals(experts, 0.3f);
    constexpr int64_t kRows = 19;
    const int64_t topk = std::min<int64_t>(6, experts);
    const auto x = random.Normals(kRows * 70, 4.0f);
    std::vector<uint8_t> is_image(kRows);
    for (uint8_t& i : is_image) i = random.Int(0, 1) != 0;
    const auto run = [&](Backend& backend, bool normalize, std::vector<int32_t>* chosen) {
      auto weights = Poisoned(kRows * topk);
      chosen->assign(static_cast<size_t>(kRows * topk), -5);
      backend.Route({.rows = kRows, .topk = topk, .x = x.data(), .gate = gate.matrix, .bias = bias.data(),
                     .image_bias = image_bias.data(), .is_image = is_image.data(), .normalize = normalize, .scale = 1.5f,
                     .experts = chosen->data(), .weights = weights.data()});
      return weights;
    };
    for (const bool normalize : {false, true}) {
      std::vector<int32_t> got_experts, want_experts;
      const auto want = run(*reference, normalize, &want_experts);
      for (int threads = 1; threads <= 3; ++threads) {
        const auto backend = Make(GetParam(), threads);
        const auto got = run(*backend, normalize, &got_experts);
        EXPECT_EQ(got_experts, want_experts);
        ExpectNear(got, want, 1e-6, "route");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, CpuLinear, testing::ValuesIn(CpuVariants()),
                         [](const auto& variant) { return std::string(variant.param); });

}  // namespace
}  // namespace deepinfer::backend::cpu
