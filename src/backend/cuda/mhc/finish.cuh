// SPDX-License-Identifier: Apache-2.0
// From a row's products to its mixes (spec/model.md 2), by one warp. Every lane has the whole matrix in registers, so that an
// iteration of Sinkhorn is a few dependent instructions.
#pragma once

#include "backend/api/ops.h"

namespace deepinfer::backend::cuda {

// Within a unit in the last place.
__device__ inline float ApproximateInverse(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}

// Nearly always the float next to 1 / x, by one step of Newton's.
__device__ inline float Inverse(float x) {
  const float inverse = ApproximateInverse(x);
  return __fmaf_rn(__fmaf_rn(-x, inverse, 1.0f), inverse, inverse);
}

__device__ inline float Sigmoid(float x) { return Inverse(1.0f + expf(-x)); }

// One half of an iteration: scale[i] is divided by the sum of line i of the scaled matrix, plus eps. Line i of m is m[i][..], or
// m[..][i] where kColumns; others are the scales across it. The last halves are exact, what came before them they correct.
template <int kStreams, bool kColumns, bool kExact>
__device__ void Normalise(const float (&m)[kStreams][kStreams], const float (&others)[kStreams], float eps, float (&scale)[kStreams]) {
#pragma unroll
  for (int i = 0; i < kStreams; ++i) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      const float value = kColumns ? m[j][i] : m[i][j];
      sum = j == 0 ? value * others[0] : __fmaf_rn(value, others[j], sum);
    }
    const float divisor = __fmaf_rn(scale[i], sum, eps);
    scale[i] *= kExact ? Inverse(divisor) : ApproximateInverse(divisor);
  }
}

// C = softmax over rows + eps; columns; then iters - 1 times rows and columns. c[j][k]; sums run in ascending order. Scales of rows
// and columns are kept apart from the matrix until the end: so rounding does not add up over the iterations.
template <int kStreams>
__device__ void Sinkhorn(float (&c)[kStreams][kStreams], float eps, int iters) {
  constexpr int kExactIters = 2;
  float rows[kStreams], columns[kStreams];
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    float top = c[j][0], sum = 0.0f;
#pragma unroll
    for (int k = 1; k < kStreams; ++k) top = fmaxf(top, c[j][k]);
#pragma unroll
    for (int k = 0; k < kStreams; ++k) {
      c[j][k] = expf(c[j][k] - top);
      sum += c[j][k];
    }
    const float inverse = Inverse(sum);
#pragma unroll
    for (int k = 0; k < kStreams; ++k) c[j][k] = __fmaf_rn(c[j][k], inverse, eps);
    rows[j] = columns[j] = 1.0f;
  }
  if (iters > 0) Normalise<kStreams, true, true>(c, rows, eps, columns);
  int i = 1;
#pragma unroll 1
  for (; i < iters - kExactIters; ++i) {
    Normalise<kStreams, false, false>(c, columns, eps, rows);
    Normalise<kStreams, true, false>(c, rows, eps, columns);
  }
#pragma unroll 1
  for (; i < iters; ++i) {
    Normalise<kStreams, false, true>(c, columns, eps, rows);
    Normalise<kStreams, true, true>(c, rows, eps, columns);
  }
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
#pragma unroll
    for (int k = 0; k < kStreams; ++k) c[j][k] *= rows[j] * columns[k];
  }
}

// product: the outputs in order, then the row's square sum.
template <int kStreams>
__device__ void FinishMixes(const HcMixParams& p, int64_t row, const float* product) {
  constexpr int kOutputs = (2 + kStreams) * kStreams;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float rms = 1.0f / sqrtf(product[kOutputs] / static_cast<float>(kStreams * p.hidden) + p.norm_eps);
  float c[kStreams][kStreams];
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
#pragma unroll
    for (int k = 0; k < kStreams; ++k) {
      const int o = 2 * kStreams + j * kStreams + k;
      c[j][k] = product[o] * rms * p.scale[2] + p.base[o];
    }
  }
  Sinkhorn<kStreams>(c, p.hc_eps, p.sinkhorn_iters);
  if (lane < kStreams) {
    p.pre[row * kStreams + lane] = Sigmoid(product[lane] * rms * p.scale[0] + p.base[lane]) + p.hc_eps;
    p.post[row * kStreams + lane] = 2.0f * Sigmoid(product[kStreams + lane] * rms * p.scale[1] + p.base[kStreams + lane]);
  }
  if (lane != 0) return;
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
#pragma unroll
    for (int k = 0; k < kStreams; ++k) p.comb[(row * kStreams + j) * kStreams + k] = c[j][k];
  }
}

}  // namespace deepinfer::backend::cuda
