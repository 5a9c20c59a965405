// SPDX-License-Identifier: Apache-2.0
// The sums of spans that were work items of their own, in their order.
#include <algorithm>

#include "backend/cuda/launch_after.h"
#include "backend/cuda/linear/gemm_launch.h"
#include "backend/cuda/ptx/grid.cuh"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;

// One thread a value of T: float4 where rows of the result are 16-byte aligned.
template <typename T>
__global__ void JoinKernel(const T* spans, int num_spans, int64_t count, int64_t width, T* y, int64_t y_stride) {
  ptx::GridTrigger();
  ptx::GridWait();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= count) return;
  T sum = spans[at];
#pragma unroll 4
  for (int s = 1; s < num_spans; ++s) {
    const T next = spans[s * count + at];
    if constexpr (sizeof(T) == sizeof(float)) {
      sum += next;
    } else {
      sum.x += next.x;
      sum.y += next.y;
      sum.z += next.z;
      sum.w += next.w;
    }
  }
  y[at / width * y_stride + at % width] = sum;
}

}  // namespace

void JoinSpans(Context& context, const float* spans, int num_spans, int64_t rows, int64_t outputs, float* y, int64_t y_stride) {
  const int64_t count = rows * outputs;
  const auto blocks = [](int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); };
  if (outputs % 4 == 0 && y_stride % 4 == 0 && reinterpret_cast<uintptr_t>(y) % 16 == 0) {
    LaunchAfter(context, JoinKernel<float4>, blocks(count / 4), kThreads, 0, reinterpret_cast<const float4*>(spans), num_spans, count / 4,
                outputs / 4, reinterpret_cast<float4*>(y), y_stride / 4);
  } else {
    LaunchAfter(context, JoinKernel<float>, blocks(count), kThreads, 0, spans, num_spans, count, outputs, y, y_stride);
  }
}

}  // namespace deepinfer::backend::cuda
