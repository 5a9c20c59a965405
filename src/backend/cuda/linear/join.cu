// SPDX-License-Identifier: Apache-2.0
// The sums of spans that were work items of their own, in their order.
#include "backend/cuda/launch_after.h"
#include "backend/cuda/linear/gemm_launch.h"
#include "backend/cuda/ptx/grid.cuh"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;

__device__ float Sum(float a, float b) { return a + b; }
__device__ float4 Sum(const float4& a, const float4& b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// grid (values of a row / threads, rows). One thread a value of T: float4 where rows of the result are 16-byte aligned.
template <typename T>
__global__ void JoinKernel(const T* spans, int num_spans, int width, T* y, int64_t y_stride) {
  ptx::GridTrigger();
  ptx::GridWait();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= width) return;
  const int64_t row = blockIdx.y, span_stride = int64_t{gridDim.y} * width;
  const T* from = spans + row * width + i;
  T sum = from[0];
#pragma unroll 4
  for (int s = 1; s < num_spans; ++s) sum = Sum(sum, from[s * span_stride]);
  y[row * y_stride + i] = sum;
}

template <typename T>
void Launch(Context& context, const SpanSums& sums, int64_t rows, int64_t outputs, float* y, int64_t y_stride) {
  constexpr int kValues = sizeof(T) / sizeof(float);
  const auto width = static_cast<int>(outputs / kValues);
  const dim3 grid(static_cast<unsigned>((width + kThreads - 1) / kThreads), static_cast<unsigned>(rows));
  LaunchAfter(context, JoinKernel<T>, grid, kThreads, 0, reinterpret_cast<const T*>(sums.data), sums.spans, width, reinterpret_cast<T*>(y),
              y_stride / kValues);
}

}  // namespace

void JoinSpans(Context& context, const SpanSums& sums, int64_t rows, int64_t outputs, float* y, int64_t y_stride) {
  if (outputs % 4 == 0 && y_stride % 4 == 0 && reinterpret_cast<uintptr_t>(y) % 16 == 0) {
    Launch<float4>(context, sums, rows, outputs, y, y_stride);
  } else {
    Launch<float>(context, sums, rows, outputs, y, y_stride);
  }
}

}  // namespace deepinfer::backend::cuda
