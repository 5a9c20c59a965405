// SPDX-License-Identifier: Apache-2.0
// Sums of rows: the streams of the hyper-connections without a norm, and one array added to another. Bound by memory.
#include "backend/cuda/launch.h"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/ptx/grid.cuh"
#include "core/check.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;

// Streams ascending, from zero.
__global__ void HcSumKernel(HcSumParams p) {
  ptx::GridBegin();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= p.rows * p.hidden) return;
  const int64_t row = at / p.hidden, i = at % p.hidden;
  const float mean = 1.0f / static_cast<float>(p.streams);
  float sum = 0.0f;
  for (int64_t s = 0; s < p.streams; ++s) {
    const float weight = p.weights == nullptr ? mean : p.weights[row * p.streams + s];
    sum += weight * p.x[(row * p.streams + s) * p.hidden + i];
  }
  p.y[row * p.y_stride + i] = sum;
}

__global__ void AddKernel(AddParams p) {
  ptx::GridBegin();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= p.rows * p.dim) return;
  const int64_t row = at / p.dim, i = at % p.dim;
  p.y[row * p.y_stride + i] += p.x[row * p.x_stride + i];
}

unsigned Blocks(int64_t items) { return static_cast<unsigned>((items + kThreads - 1) / kThreads); }

}  // namespace

void HcSum(Context& context, const HcSumParams& p) {
  DI_CHECK(p.y_stride >= p.hidden);
  if (p.rows > 0) LaunchAfter(context, HcSumKernel, Blocks(p.rows * p.hidden), kThreads, 0, p);
}

void Add(Context& context, const AddParams& p) {
  DI_CHECK(p.x_stride >= p.dim && p.y_stride >= p.dim);
  if (p.rows * p.dim > 0) LaunchAfter(context, AddKernel, Blocks(p.rows * p.dim), kThreads, 0, p);
}

}  // namespace deepinfer::backend::cuda
