// SPDX-License-Identifier: Apache-2.0
// Properties of linears, the router and the experts on the card: equal to the reference within fp32's worth on ragged
// shapes, for every weight format and activation type; and a row's bits do not depend on how many rows there are, hence
// not on which instance of the matrix kernel ran.
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/twin_test_util.h"

namespace deepinfer::backend::cuda {
namespace {

using MatrixOps = TwinTest;

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kFp8Tile32,
                                     WeightFormat::kFp8Row32, WeightFormat::kFp4Row32};
constexpr Activations kActivations[] = {Activations::kFp32, Activations::kBf16, Activations::kFp8};

struct LinearCase {
  int64_t rows, outputs, inputs, groups;
};

std::vector<float> RunLinear(Side side, const HostMatrix& w, const LinearCase& c, Activations activations,
                             const std::vector<float>& x, int64_t begin, int64_t rows) {
  const int64_t width = c.groups * c.inputs;
  const std::vector<float> part(x.begin() + begin * width, x.begin() + (begin + rows) * width);
  float* y = side.Out<float>(rows * c.outputs);
  side->Linear({.rows = rows, .w = side.Bind(w.matrix, activations), .groups = c.groups, .activations = activations,
                .x = side.Put(part), .x_stride = width, .y = y, .y_stride = c.outputs});
  return side.Get(y, rows * c.outputs);
}

TEST_F(MatrixOps, LinearEqualsTheReference) {
  const LinearCase cases[] = {{1, 32, 32, 1}, {3, 96, 64, 1}, {5, 64, 160, 2}, {9, 160, 96, 1}, {33, 96, 512, 3},
                              {65, 224, 1280, 1}, {130, 128, 640, 2}, {300, 4160, 192, 1}, {7, 64, 5120, 1}};
  for (const LinearCase& c : cases) {
    if (kSmall && c.rows != 1 && c.rows != 9 && c.rows != 33 && c.rows != 130) continue;
    const std::vector<float> x = Normal(c.rows * c.groups * c.inputs);
    for (const WeightFormat format : kFormats) {
      const HostMatrix w = Weights(format, c.outputs, c.inputs);
      for (const Activations activations : kActivations) {
        SCOPED_TRACE(testing::Message() << c.rows << " x " << c.outputs << " x " << c.inputs << ", groups " << c.groups
                                        << ", format " << int(format) << ", activations " << int(activations));
        const auto got = RunLinear(Side(*card()), w, c, activations, x, 0, c.rows);
        const auto want = RunLinear(Side(*reference()), w, c, activations, x, 0, c.rows);
        // Products of FP8 round inputs and weights a second time, relative to their row, and sum 256 of them with some 14 bits.
        ExpectRowsNear(got, want, c.outputs, IsAligned(BoundFormat(w.matrix, activations, 128)) ? 2e-3 : 1e-5);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MatrixOps, LinearKeepsTheBitsOfARow) {
  // Few tiles (split over warpgroups), many tiles, and groups.
  for (const LinearCase& c : {LinearCase{0, 160, 1024, 1}, LinearCase{0, 4128, 320, 1}, LinearCase{0, 128, 192, 2},
                              LinearCase{0, 4128, 384, 1}}) {
    const std::vector<float> x = Normal(kRowsMax * c.groups * c.inputs);
    for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kFp8Tile32, WeightFormat::kFp4Row32}) {
      const HostMatrix w = Weights(format, c.outputs, c.inputs);
      for (const Activations activations : kActivations) {
        SCOPED_TRACE(testing::Message() << c.outputs << " x " << c.inputs << ", format " << int(format) << ", activations "
                                        << int(activations));
        ExpectRowsInvariant<float>(c.outputs, [&](int64_t begin, int64_t rows) {
          return RunLinear(Side(*card()), w, c, activations, x, begin, rows);
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

struct ExpertsCase {
  int64_t rows, hidden, inter, experts, topk;
  WeightFormat routed, shared;
  bool has_shared;
};

// Choices of a row: distinct, ascending; a few popular experts.
std::vector<int32_t> Choices(std::mt19937& random, const ExpertsCase& c, int64_t rows) {
  std::vector<int32_t> chosen;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int32_t> row;
    while (static_cast<int64_t>(row.size()) < c.topk) {
      const double u = std::uniform_real_distribution<double>(0, 1)(random);
      const auto e = static_cast<int32_t>(u * u * static_cast<double>(c.experts));
      if (std::find(row.begin(), row.end(), e) == row.end()) row.push_back(e);
    }
    std::sort(row.begin(), row.end());
    chosen.insert(chosen.end(), row.begin(), row.end());
  }
  return chosen;
}

struct ExpertsInput {
  std::vector<HostMatrix> matrices;  // w1, w3, w2 of each expert, the shared one last
  std::vector<float> x, weights;
  std::vector<int32_t> chosen;
};

std::vector<float> RunExperts(Side side, const ExpertsInput& in, const ExpertsCase& c, Activations activations,
                              int64_t begin, int64_t rows) {
  std::vector<ExpertWeights> bound;
  for (size_t i = 0; i < in.matrices.size(); i += 3) {
    const auto bind = [&](size_t matrix) { return side.Bind(in.matrices[matrix].matrix, activations); };
    bound.push_back({bind(i), bind(i + 1), bind(i + 2)});
  }
  const auto part = [&](const auto& all, int64_t width) {
    return std::vector(all.begin() + begin * width, all.begin() + (begin + rows) * width);
  };
  ExpertsParams p{.rows = rows, .hidden = c.hidden, .topk = c.topk, .num_experts = c.experts, .x = side.Put(part(in.x, c.hidden)),
                  .chosen = side.Put(part(in.chosen, c.topk)), .weights = side.Put(part(in.weights, c.topk)),
                  .experts = bound.data(), .shared = bound.back(), .has_shared = c.has_shared, .limit = 1.5f,
                  .activations = activations, .y = side.Out<float>(rows * c.hidden)};
  side->Experts(p);
  std::vector<float> y = side.Get(p.y, rows * c.hidden);
  if (!c.has_shared || !side->can_record()) return y;
  // The shared expert in a branch of its own, and then the sum: the same bits.
  ExpertsParams shared = p;
  shared.topk = 0;
  shared.y = side.Out<float>(rows * c.hidden);
  side->BeginBranch();
  side->Experts(shared);
  side->EndBranch();
  p.has_shared = false;
  p.last = shared.y;
  p.joins_last = true;
  p.y = side.Out<float>(rows * c.hidden);
  side->Experts(p);
  EXPECT_EQ(std::memcmp(y.data(), side.Get(p.y, rows * c.hidden).data(), y.size() * sizeof(float)), 0);
  return y;
}

class ExpertOps : public TwinTest {
 protected:
  ExpertsInput MakeInput(const ExpertsCase& c, int64_t rows) {
    ExpertsInput in;
    for (int64_t e = 0; e <= c.experts; ++e) {
      const WeightFormat format = e < c.experts ? c.routed : c.shared;
      in.matrices.push_back(Weights(format, c.inter, c.hidden));
      in.matrices.push_back(Weights(format, c.inter, c.hidden));
      in.matrices.push_back(Weights(format, c.hidden, c.inter));
    }
    in.x = Normal(rows * c.hidden);
    in.weights = Normal(rows * c.topk);
    in.chosen = Choices(random_, c, rows);
    return in;
  }
};

TEST_F(ExpertOps, ExpertsEqualTheReference) {
  const ExpertsCase cases[] = {
      {1, 32, 32, 4, 2, WeightFormat::kBf16, WeightFormat::kBf16, true},
      {7, 64, 32, 6, 3, WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, true},
      {40, 256, 96, 24, 3, WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, true},
      {150, 192, 160, 8, 1, WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, false},
      {40, 512, 128, 24, 3, WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, true},
      {600, 128, 2112, 3, 2, WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, true},
      {5, 1024, 576, 3, 1, WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, true}};
  for (ExpertsCase c : cases) {
    c.rows = AtMost(c.rows);
    const ExpertsInput in = MakeInput(c, c.rows);
    for (const Activations activations : kActivations) {
      SCOPED_TRACE(testing::Message() << c.rows << " rows, " << c.hidden << " x " << c.inter << ", activations " << int(activations));
      const auto got = RunExperts(Side(*card()), in, c, activations, 0, c.rows);
      const auto want = RunExperts(Side(*reference()), in, c, activations, 0, c.rows);
      // An inner value on a rounding boundary may fall on either side: then its row is off by one step of that format. With FP8 products
      // many do.
      const bool products = IsAligned(BoundFormat(in.matrices[0].matrix, activations, 128));
      ExpectRowsNear(got, want, c.hidden, activations == Activations::kFp32 ? 1e-5 : products ? 0.1 : 2e-2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ExpertOps, ExpertsKeepTheBitsOfARow) {
  // With 640 inputs the shared expert's sums are split, with few rows over blocks.
  for (const ExpertsCase& c : {ExpertsCase{0, 512, 128, 24, 3, WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, true},
                               ExpertsCase{0, 256, 96, 24, 3, WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, true},
                               ExpertsCase{0, 640, 96, 3, 1, WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, true}}) {
    const ExpertsInput in = MakeInput(c, kRowsMax);
    for (const Activations activations : kActivations) {
      ExpectRowsInvariant<float>(c.hidden, [&](int64_t begin, int64_t rows) {
        return RunExperts(Side(*card()), in, c, activations, begin, rows);
      });
      if (HasFatalFailure()) return;
    }
  }
}

struct RouteCase {
  WeightFormat format;
  int64_t experts, hidden, topk;
};

TEST_F(MatrixOps, RouteEqualsTheReferenceAndKeepsBits) {
  // Slices of 256 inputs, the last one ragged; one, three and more tiles of 64 experts.
  for (const RouteCase& c : {RouteCase{WeightFormat::kBf16, 40, 192, 6}, RouteCase{WeightFormat::kBf16, 384, 1060, 6},
                             RouteCase{WeightFormat::kBf16, 1000, 32, 32}, RouteCase{WeightFormat::kBf16, 4, 64, 1},
                             RouteCase{WeightFormat::kF32, 130, 96, 3}}) {
    SCOPED_TRACE(testing::Message() << c.experts << " experts, " << c.hidden << " inputs");
    const HostMatrix gate = Weights(c.format, c.experts, c.hidden);
    const auto x = Normal(kRowsMax * c.hidden), bias = Normal(c.experts, 0.3f), image_bias = Normal(c.experts, 0.3f);
    std::vector<uint8_t> is_image(kRowsMax);
    for (uint8_t& flag : is_image) flag = static_cast<uint8_t>(Uniform(0, 1));
    // Choices and weights side by side, the choices as floats.
    const auto run = [&](Backend& backend, int64_t begin, int64_t rows) {
      Side side(backend);
      const std::vector<float> part(x.begin() + begin * c.hidden, x.begin() + (begin + rows) * c.hidden);
      const std::vector<uint8_t> image(is_image.begin() + begin, is_image.begin() + begin + rows);
      auto* experts = side.Out<int32_t>(rows * c.topk);
      auto* weights = side.Out<float>(rows * c.topk);
      side->Route({.rows = rows, .topk = c.topk, .x = side.Put(part), .gate = side.Bind(gate.matrix), .bias = side.Put(bias),
                   .image_bias = side.Put(image_bias), .is_image = side.Put(image), .normalize = true, .scale = 1.5f,
                   .experts = experts, .weights = weights});
      const auto ids = side.Get(experts, rows * c.topk);
      const auto values = side.Get(weights, rows * c.topk);
      std::vector<float> result;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t k = 0; k < c.topk; ++k) result.push_back(static_cast<float>(ids[static_cast<size_t>(r * c.topk + k)]));
        for (int64_t k = 0; k < c.topk; ++k) result.push_back(values[static_cast<size_t>(r * c.topk + k)]);
      }
      return result;
    };
    const int64_t compared = c.hidden > 1000 ? 48 : AtMost(300);  // the reference is slow
    ExpectRowsNear(run(*card(), 0, compared), run(*reference(), 0, compared), 2 * c.topk, 1e-5);
    ExpectRowsInvariant<float>(2 * c.topk, [&](int64_t begin, int64_t rows) { return run(*card(), begin, rows); });
  }
}

TEST_F(MatrixOps, RouteTakesTheLowerOfEqualExperts) {
  constexpr int64_t kExperts = 384, kHidden = 256, kTopk = 5, kRows = 3;
  HostMatrix gate = Weights(WeightFormat::kBf16, kExperts, kHidden);
  // Experts e and e + 192 have the same weights, so that each row's best come in pairs.
  std::copy_n(gate.data.begin(), gate.data.size() / 2, gate.data.begin() + static_cast<std::ptrdiff_t>(gate.data.size() / 2));
  const auto x = Normal(kRows * kHidden);
  const std::vector<float> bias(kExperts, 0.0f);
  const auto run = [&](Backend& backend) {
    Side side(backend);
    auto* experts = side.Out<int32_t>(kRows * kTopk);
    auto* weights = side.Out<float>(kRows * kTopk);
    side->Route({.rows = kRows, .topk = kTopk, .x = side.Put(x), .gate = side.Bind(gate.matrix), .bias = side.Put(bias),
                 .image_bias = side.Put(bias), .is_image = nullptr, .normalize = false, .scale = 1.0f, .experts = experts,
                 .weights = weights});
    return side.Get(experts, kRows * kTopk);
  };
  EXPECT_EQ(run(*card()), run(*reference()));
}

TEST_F(MatrixOps, RefusesScalesThatItCannotDecode) {
  HostMatrix w = Weights(WeightFormat::kFp4Row32, 32, 32);
  w.scale[5] = 140;
  const auto bound = card()->BindMatrix(w.matrix, Activations::kBf16);
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.status().code(), Code::kUnimplemented);
}

}  // namespace
}  // namespace deepinfer::backend::cuda
