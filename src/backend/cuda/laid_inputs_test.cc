// SPDX-License-Identifier: Apache-2.0
// Property: what an op leaves as the inputs of a linear (Backend::input_bytes) gives the linear the bits that the op's rows
// give it, rounded to bf16 or to FP8; and ops that run as one have the bits of the two. The room behind the last row is full of NaN.
#include "backend/cuda/twin_test_util.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int64_t kManyRows = 1100;  // which mixes have a kernel of their own for
const std::vector<int64_t> kRowsTried = kSmall ? std::vector<int64_t>{1, 7, 130} : std::vector<int64_t>{1, 7, 32, 257, kManyRows};
constexpr Activations kLaid[] = {Activations::kBf16, Activations::kFp8};

class LaidInputs : public TwinTest {
 protected:
  // The outputs of a linear of x, or of inputs in its place.
  static std::vector<float> Multiply(Side& side, const HostMatrix& after, Activations as, int64_t rows, const float* x,
                                     const void* inputs) {
    const Matrix w = side.Bind(after.matrix, as);
    auto* y = side.Out<float>(rows * w.rows);
    side->Linear({.rows = rows, .w = w, .activations = as, .x = x, .x_stride = w.cols, .inputs = inputs, .y = y,
                  .y_stride = w.rows});
    return side.Get(y, rows * w.rows);
  }
  static uint8_t* Room(Side& side, const HostMatrix& after, Activations as, int64_t rows) {
    const int64_t bytes = side->input_bytes(side.Bind(after.matrix, as), 1, as, rows);
    EXPECT_GT(bytes, 0);
    return side.Out<uint8_t>(bytes);
  }
};

// With and without spans, in groups, and a matrix that tensor cores do not take.
TEST_F(LaidInputs, OfALinear) {
  struct Case {
    int64_t outputs, inputs, groups;
    WeightFormat format;
  };
  for (const Case& c : {Case{512, 2048, 1, WeightFormat::kFp8Tile32}, Case{512, 256, 4, WeightFormat::kFp8Tile32},
                        Case{256, 64, 1, WeightFormat::kBf16}, Case{128, 96, 1, WeightFormat::kF32}}) {
    const HostMatrix w = Weights(c.format, c.outputs, c.inputs), after = Weights(WeightFormat::kFp8Tile32, 96, c.outputs);
    for (const int64_t rows : kRowsTried) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << c.outputs << " x " << c.inputs << ", groups " << c.groups);
      for (const Activations as : kLaid) {
        Side side(*card());
        auto* y = side.Out<float>(rows * c.outputs);
        LinearParams p{.rows = rows, .w = side.Bind(w.matrix), .groups = c.groups, .activations = Activations::kBf16,
                       .x = side.Put(Normal(rows * c.groups * c.inputs)), .x_stride = c.groups * c.inputs, .y = y, .y_stride = c.outputs};
        side->Linear(p);
        const auto expected = Multiply(side, after, as, rows, y, nullptr);
        p.y = nullptr;
        p.y_inputs = Room(side, after, as, rows);
        p.y_inputs_as = as;
        side->Linear(p);
        EXPECT_EQ(expected, Multiply(side, after, as, rows, nullptr, p.y_inputs));
      }
    }
  }
}

// Dims that a thread holds, and more; a matrix that is not packed.
TEST_F(LaidInputs, OfANormAlsoBehindALinear) {
  struct Case {
    int64_t dim;
    WeightFormat format;
    Activations as;
  };
  constexpr auto kTile = WeightFormat::kFp8Tile32;
  for (const auto& [dim, format, as] :
       {Case{64, kTile, Activations::kBf16}, Case{1280, kTile, Activations::kBf16}, Case{1664, kTile, Activations::kBf16},
        Case{64, WeightFormat::kF32, Activations::kBf16}, Case{128, kTile, Activations::kFp8}, Case{1280, kTile, Activations::kFp8},
        Case{1664, kTile, Activations::kFp8}}) {
    const HostMatrix w = Weights(format, dim, 1024), after = Weights(kTile, 96, dim);
    for (const int64_t rows : kRowsTried) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << dim);
      Side side(*card());
      auto* x = side.Put(Normal(rows * 1024));
      auto* y = side.Out<float>(rows * dim);
      LinearParams linear{.rows = rows, .w = side.Bind(w.matrix), .activations = Activations::kBf16, .x = x, .x_stride = 1024,
                                .y = y, .y_stride = dim};
      RmsNormParams norm{.rows = rows, .dim = dim, .x = y, .x_stride = dim, .weight = side.Put(Normal(dim)), .eps = 1e-20f, .y = y};
      side->Linear(linear);
      const auto sums = side.Get(y, rows * dim);
      side->RmsNorm(norm);
      const auto normed = side.Get(y, rows * dim);
      const auto expected = Multiply(side, after, as, rows, y, nullptr);

      side->LinearNorm(linear, norm);
      EXPECT_EQ(normed, side.Get(y, rows * dim));
      norm.inputs = Room(side, after, as, rows);
      norm.inputs_as = as;
      side->LinearNorm(linear, norm);
      EXPECT_EQ(expected, Multiply(side, after, as, rows, nullptr, norm.inputs));
      linear.y = norm.y = nullptr;
      norm.x = nullptr;
      norm.inputs = Room(side, after, as, rows);
      side->LinearNorm(linear, norm);
      EXPECT_EQ(expected, Multiply(side, after, as, rows, nullptr, norm.inputs));
      norm.x = side.Put(sums);
      norm.inputs = Room(side, after, as, rows);
      side->RmsNorm(norm);
      EXPECT_EQ(expected, Multiply(side, after, as, rows, nullptr, norm.inputs));
    }
  }
}

// Streams and widths that the tensor cores take, and others.
TEST_F(LaidInputs, OfCollapsedRows) {
  struct Case {
    int64_t streams, hidden;
    Activations as;
  };
  for (const auto& [streams, hidden, as] :
       {Case{4, 320, Activations::kBf16}, Case{4, 5120, Activations::kBf16}, Case{2, 64, Activations::kBf16},
        Case{4, 384, Activations::kFp8}, Case{4, 5120, Activations::kFp8}, Case{2, 128, Activations::kFp8}}) {
    if (kSmall && hidden == 5120) continue;
    const int64_t flat = streams * hidden, mixes = (2 + streams) * streams;
    const HostMatrix fn = Weights(WeightFormat::kF32, mixes, flat), after = Weights(WeightFormat::kFp8Tile32, 96, hidden);
    for (const int64_t rows : kSmall ? std::vector<int64_t>{1, 130, kManyRows} : kRowsTried) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << streams << " x " << hidden);
      Side side(*card());
      auto* collapsed = side.Out<float>(rows * hidden);
      auto* inputs = Room(side, after, as, rows);
      side->HcMix({.rows = rows, .streams = streams, .hidden = hidden, .x = side.Put(Normal(rows * flat)), .fn = side.Bind(fn.matrix),
                   .base = side.Put(Normal(mixes)), .scale = side.Put(Normal(3)), .norm_eps = 1e-20f, .hc_eps = 1e-6f,
                   .sinkhorn_iters = 3, .collapse = side.Put(Normal(rows * streams)), .norm_weight = side.Put(Normal(hidden)),
                   .pre = side.Out<float>(rows * streams), .post = side.Out<float>(rows * streams),
                   .comb = side.Out<float>(rows * streams * streams), .collapsed = collapsed, .inputs = inputs,
                   .inputs_as = as});
      EXPECT_EQ(Multiply(side, after, as, rows, collapsed, nullptr), Multiply(side, after, as, rows, nullptr, inputs));
    }
  }
}

// Routed and shared. A linear with the unit matrix lays the rows out, which are bf16 before.
TEST_F(LaidInputs, OfTheExperts) {
  constexpr int64_t kHidden = 1664, kInter = 128, kExperts = 5, kTopk = 2;
  std::vector<HostMatrix> matrices;
  for (int64_t e = 0; e <= kExperts; ++e) {
    const WeightFormat format = e < kExperts ? WeightFormat::kFp4Row32 : WeightFormat::kFp8Tile32;
    for (const bool down : {false, false, true}) matrices.push_back(Weights(format, down ? kHidden : kInter, down ? kInter : kHidden));
  }
  HostMatrix unit = Weights(WeightFormat::kBf16, kHidden, kHidden);
  for (int64_t i = 0; i < kHidden * kHidden; ++i) {
    const uint16_t code = numeric::FloatToBf16(i / kHidden == i % kHidden ? 1.0f : 0.0f);
    std::memcpy(&unit.data[static_cast<size_t>(2 * i)], &code, 2);
  }
  for (const int64_t rows : kRowsTried) {
    std::vector<float> x = Normal(rows * kHidden);
    for (float& value : x) value = numeric::Bf16ToFloat(numeric::FloatToBf16(value));
    std::vector<int32_t> chosen;
    for (int64_t r = 0; r < rows; ++r) {
      const int first = Uniform(0, kExperts - 2);
      chosen.insert(chosen.end(), {first, Uniform(first + 1, kExperts - 1)});
    }
    for (const Activations as : kLaid) {
      Side side(*card());
      std::vector<ExpertWeights> bound;
      const auto bind = [&](size_t i) { return side.Bind(matrices[i].matrix, as); };
      for (size_t i = 0; i < matrices.size(); i += 3) bound.push_back({bind(i), bind(i + 1), bind(i + 2)});
      ExpertsParams p{.rows = rows, .hidden = kHidden, .topk = kTopk, .num_experts = kExperts, .x = side.Put(x),
                      .chosen = side.Put(chosen), .weights = side.Put(Normal(rows * kTopk)), .experts = bound.data(),
                      .shared = bound.back(), .has_shared = true, .limit = 1.5f, .activations = as,
                      .y = side.Out<float>(rows * kHidden)};
      side->Experts(p);
      const auto expected = side.Get(p.y, rows * kHidden);
      auto* inputs = Room(side, matrices[3 * kExperts], as, rows);
      side->Linear({.rows = rows, .w = side.Bind(unit.matrix), .activations = Activations::kBf16, .x = p.x, .x_stride = kHidden,
                    .y = nullptr, .y_stride = 0, .y_inputs = inputs, .y_inputs_as = as});
      p.inputs = inputs;
      p.y = side.Out<float>(rows * kHidden);
      side->Experts(p);
      EXPECT_EQ(expected, side.Get(p.y, rows * kHidden)) << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace deepinfer::backend::cuda
