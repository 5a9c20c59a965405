// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/linear/plain.h"

#include "backend/cuda/device/matrix.cuh"
#include "backend/cuda/device/reduce.cuh"
#include "numeric/quantize.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kOutputs = kThreads / kWarp;

// The rounded value of a channel. For kFp8 all lanes of a warp call with the 32 channels of one block.
__device__ float RoundActivation(Activations activations, float value) {
  switch (activations) {
    case Activations::kFp32:
      return value;
    case Activations::kBf16:
      return numeric::Bf16ToFloat(numeric::FloatToBf16(value));
    case Activations::kFp8: {
      const float scale = numeric::E8m0ToFloat(numeric::Fp8Scale(WarpMax(fabsf(value))));
      return numeric::E4m3ToFloat(numeric::FloatToE4m3(value / scale)) * scale;
    }
  }
  return value;
}

// The largest scale of a row's blocks. All lanes of a warp call.
__device__ float LargestFp8Scale(const float* x, int64_t cols) {
  float largest = 0.0f;
  for (int64_t i = threadIdx.x % kWarp; i < cols; i += kWarp) largest = fmaxf(largest, fabsf(x[i]));
  return numeric::E8m0ToFloat(numeric::Fp8Scale(WarpMax(largest)));
}

// grid (rows, outputs / 8); x is rounded on the way.
__global__ void PlainLinearKernel(LinearParams p, Activations activations) {
  const int64_t output = int64_t{blockIdx.y} * kOutputs + threadIdx.x / kWarp, row = blockIdx.x;
  if (output >= p.w.rows) return;
  const float* x = p.x + row * p.x_stride + output / (p.w.rows / p.groups) * p.w.cols;
  const bool aligned = IsAligned(p.w.format);
  const float row_scale = aligned ? LargestFp8Scale(p.x + row * p.x_stride, p.groups * p.w.cols) : 1.0f;
  float sum = 0.0f;
  for (int64_t begin = 0; begin < p.w.cols; begin += kWarp) {
    const int64_t i = begin + threadIdx.x % kWarp;
    float value = RoundActivation(activations, i < p.w.cols ? x[i] : 0.0f);
    if (aligned) value = numeric::E4m3ToFloat(numeric::FloatToE4m3(value / row_scale)) * row_scale;
    if (i < p.w.cols) sum = __fmaf_rn(WeightAt(p.w, output, i), value, sum);
  }
  sum = WarpSum(sum);
  if (threadIdx.x % kWarp == 0) p.y[row * p.y_stride + output] = sum;
}

}  // namespace

void PlainLinear(Context& context, const LinearParams& p) {
  const dim3 grid(static_cast<unsigned>(p.rows), static_cast<unsigned>((p.w.rows + kOutputs - 1) / kOutputs));
  PlainLinearKernel<<<grid, kThreads, 0, context.stream()>>>(p, EffectiveActivations(p.activations, p.w));
}

}  // namespace deepinfer::backend::cuda
