// SPDX-License-Identifier: Apache-2.0
// From a row's products to its mixes (spec/model.md 2), by one warp: every lane has the whole matrix in registers, so that an
// iteration of Sinkhorn is a few dependent instructions. And where collapsed rows go.
#pragma once

#include "backend/api/ops.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/ptx/bf16.cuh"

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

// Where exp(-x) is infinite, Newton's step would make it NaN.
__device__ inline float Sigmoid(float x) {
  const float e = expf(-x);
  return isinf(e) ? 0.0f : Inverse(1.0f + e);
}

// One half of an iteration: scale[i] is divided by the sum of line i of the scaled matrix, plus eps. Line i of m is m[i][..], or
// m[..][i] where kColumns; others are the scales across it. The last halves are exact, what came before them they correct.
template <int kStreams, bool kColumns, bool kExact>
__device__ void Normalise(const float (&m)[kStreams][kStreams], const float (&others)[kStreams], float eps, float (&scale)[kStreams]) {
#pragma unroll
  for (int i = 0; i < kStreams; ++i) {
    float sum[2] = {};  // even and odd: shorter than one after the other
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      const float value = kColumns ? m[j][i] : m[i][j];
      sum[j % 2] = j < 2 ? value * others[j] : __fmaf_rn(value, others[j], sum[j % 2]);
    }
    const float divisor = __fmaf_rn(scale[i], sum[0] + sum[1], eps);
    scale[i] *= kExact ? Inverse(divisor) : ApproximateInverse(divisor);
  }
}

// C = softmax over rows + eps; columns; then iters - 1 times rows and columns. c[j][k]. Scales of rows and columns
// are kept apart from the matrix until the end: so rounding does not add up over the iterations.
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

// Stores four collapsed channels as inputs of a linear, where these are wanted.
__device__ inline void StoreInputs(const HcMixParams& p, int64_t row, int64_t channel, const float4& y, int64_t part_bytes) {
  if (p.inputs == nullptr) return;
  *reinterpret_cast<uint2*>(static_cast<uint8_t*>(p.inputs) + InputPlace(row, channel, part_bytes)) =
      make_uint2(ptx::PackBf16x2(y.x, y.y), ptx::PackBf16x2(y.z, y.w));
}

// Lane o of a warp: product o of kProducts of a row, slices in order; of_row: those of the first slice.
template <int kProducts>
__device__ float JoinSlices(const float* of_row, int slice_stride, int num_slices, int o) {
  float sum = 0.0f;
  if (o >= kProducts) return sum;
#pragma unroll 32
  for (int slice = 0; slice < num_slices; ++slice) sum += of_row[slice * slice_stride + o];
  return sum;
}

constexpr int Outputs(int streams) { return (2 + streams) * streams; }

// What lane o of the warp needs for output o; nobody's result, so it can be read early.
template <int kStreams>
struct OutputScale {
  float scale = 0.0f, base = 0.0f;

  __device__ OutputScale(const HcMixParams& p, int o) {
    if (o >= Outputs(kStreams)) return;
    scale = p.scale[o < kStreams ? 0 : o < 2 * kStreams ? 1 : 2];
    base = p.base[o];
  }
};

// product: lane o's output, then that of lane Outputs(), the row's square sum.
template <int kStreams>
__device__ void FinishMixes(const HcMixParams& p, int64_t row, float product, const OutputScale<kStreams>& output) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float squares = __shfl_sync(0xFFFFFFFFu, product, Outputs(kStreams));
  const float rms = 1.0f / sqrtf(squares / static_cast<float>(kStreams * p.hidden) + p.norm_eps);
  const float mix = product * rms * output.scale + output.base;
  float c[kStreams][kStreams];
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
#pragma unroll
    for (int k = 0; k < kStreams; ++k) c[j][k] = __shfl_sync(0xFFFFFFFFu, mix, 2 * kStreams + j * kStreams + k);
  }
  Sinkhorn<kStreams>(c, p.hc_eps, p.sinkhorn_iters);
  if (lane < kStreams) p.pre[row * kStreams + lane] = Sigmoid(mix) + p.hc_eps;
  if (lane >= kStreams && lane < 2 * kStreams) p.post[row * kStreams + lane - kStreams] = 2.0f * Sigmoid(mix);
  if (lane != 0) return;
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
#pragma unroll
    for (int k = 0; k < kStreams; ++k) p.comb[(row * kStreams + j) * kStreams + k] = c[j][k];
  }
}

}  // namespace deepinfer::backend::cuda
