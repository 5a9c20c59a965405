// SPDX-License-Identifier: Apache-2.0
// Property: the vector exp, sigmoid and softplus are within two or three units in the last place of float64 wherever e^-|x|
// is a normal float (|x| < 87), and absolutely as close as floats allow beyond, with the right limits at infinities and
// NaN; and a value's bits do not depend on its place in a row.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cpu/variants.h"

namespace deepinfer::backend::cpu {
namespace {

// Floats of every sign and exponent: one of about 1,000 bit patterns.
std::vector<float> Samples() {
  std::vector<float> out;
  for (uint64_t bits = 0; bits < 1ull << 32; bits += 1009) {
    const auto word = static_cast<uint32_t>(bits);
    float x;
    std::memcpy(&x, &word, 4);
    if (!std::isnan(x)) out.push_back(x);
  }
  for (float x = -110; x < 100; x += 0.00037f) out.push_back(x);
  return out;
}

// The error in units of the last place of the right answer.
double UlpError(float got, double want) {
  if (std::isinf(got) && want > 3.4e38) return 0;
  int exponent;
  std::frexp(want, &exponent);
  return std::fabs(got - want) / std::ldexp(1.0, exponent - 24);
}

template <typename Kernel, typename Exact>
void Check(const std::vector<float>& x, double bound, const Kernel& kernel, const Exact& exact) {
  std::vector<float> y = x;
  kernel(y.data(), static_cast<int64_t>(y.size()));
  double worst = 0;
  float at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact(double{x[i]});
    if (x[i] < -87) {
      ASSERT_LE(std::fabs(y[i] - want), 1e-18) << x[i];
      continue;
    }
    const double error = UlpError(y[i], want);
    if (error > worst || std::isnan(error)) worst = error, at = x[i];
  }
  EXPECT_LE(worst, bound) << "at " << at;
  for (size_t i = 0; i < x.size(); i += 997) {
    float alone = x[i];
    kernel(&alone, 1);
    ASSERT_EQ(std::memcmp(&alone, &y[i], 4), 0) << x[i];
  }
}

class CpuMath : public testing::TestWithParam<const Kernels*> {};

TEST_P(CpuMath, Sigmoid) {
  Check(Samples(), 2.5, GetParam()->sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); });
}

TEST_P(CpuMath, SqrtSoftplus) {
  Check(Samples(), 2.5, GetParam()->sqrt_softplus,
        [](double x) { return std::sqrt(std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)))); });
}

TEST_P(CpuMath, Limits) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto sigmoid = [](float x) {
    GetParam()->sigmoid(&x, 1);
    return x;
  };
  EXPECT_EQ(sigmoid(kInf), 1.0f);
  EXPECT_EQ(sigmoid(-kInf), 0.0f);
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_TRUE(std::isnan(sigmoid(std::numeric_limits<float>::quiet_NaN())));
  const auto softplus = [](float x) {
    GetParam()->sqrt_softplus(&x, 1);
    return x;
  };
  EXPECT_EQ(softplus(kInf), kInf);
  EXPECT_EQ(softplus(-kInf), 0.0f);
  EXPECT_TRUE(std::isnan(softplus(std::numeric_limits<float>::quiet_NaN())));
}

// The gate is clamped from above, up on both sides; the rest is silu.
TEST_P(CpuMath, SwiGlu) {
  std::vector<float> g = Samples(), u(g.size()), h(g.size());
  for (size_t i = 0; i < u.size(); ++i) u[i] = g[(i * 7919 + 13) % g.size()];
  GetParam()->swiglu(g.data(), u.data(), 0.75f, 10.0f, static_cast<int64_t>(g.size()), h.data());
  for (size_t i = 0; i < g.size(); ++i) {
    const double gate = std::min(double{g[i]}, 10.0), up = std::min(std::max(double{u[i]}, -10.0), 10.0);
    const double want = 0.75 * gate / (1 + std::exp(-gate)) * up;
    ASSERT_LE(std::fabs(h[i] - want), 4e-7 * std::fabs(want) + 1e-35) << g[i] << " " << u[i];
  }
}

std::vector<const Kernels*> Supported() {
  std::vector<const Kernels*> out;
  for (const Variant& variant : AllVariants()) {
    if (variant.supported) out.push_back(variant.kernels);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Variants, CpuMath, testing::ValuesIn(Supported()),
                         [](const auto& variant) { return std::string(variant.param->name); });

}  // namespace
}  // namespace deepinfer::backend::cpu
