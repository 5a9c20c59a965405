// SPDX-License-Identifier: Apache-2.0
// From a row's products to its mixes (spec/model.md 2), by one warp. Every lane has the whole matrix in registers, so that an
// iteration of Sinkhorn is a few dependent instructions.
#pragma once

#include "backend/api/ops.h"

namespace deepinfer::backend::cuda {

// Within two units in the last place: what Sinkhorn's iterations correct anyway.
__device__ inline float Inverse(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}

__device__ inline float Sigmoid(float x) { return Inverse(1.0f + expf(-x)); }

// C = softmax over rows + eps; columns; then iters - 1 times rows and columns. c[j][k]; sums run in ascending order.
template <int kStreams>
__device__ void Sinkhorn(float (&c)[kStreams][kStreams], float eps, int iters) {
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
    for (int k = 0; k < kStreams; ++k) c[j][k] = c[j][k] * inverse + eps;
  }
  for (int i = 0; i < iters; ++i) {
    if (i > 0) {
#pragma unroll
      for (int j = 0; j < kStreams; ++j) {
        float sum = c[j][0];
#pragma unroll
        for (int k = 1; k < kStreams; ++k) sum += c[j][k];
        const float inverse = Inverse(sum + eps);
#pragma unroll
        for (int k = 0; k < kStreams; ++k) c[j][k] *= inverse;
      }
    }
#pragma unroll
    for (int k = 0; k < kStreams; ++k) {
      float sum = c[0][k];
#pragma unroll
      for (int j = 1; j < kStreams; ++j) sum += c[j][k];
      const float inverse = Inverse(sum + eps);
#pragma unroll
      for (int j = 0; j < kStreams; ++j) c[j][k] *= inverse;
    }
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
