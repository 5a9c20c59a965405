// SPDX-License-Identifier: Apache-2.0
// Hyper-connections (spec/model.md 2): the mixes of a site with all Sinkhorn iterations in one kernel, collapse, expand.
#include <cmath>

#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/launch.h"
#include "core/check.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kStreamsMax = 4;

__device__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// C = softmax over rows + eps; columns; then iters - 1 times rows and columns. One thread holds the whole matrix.
template <int kStreams>
__device__ void Sinkhorn(float (&c)[kStreams][kStreams], float eps, int iters) {
  for (int j = 0; j < kStreams; ++j) {
    float top = c[j][0], sum = 0.0f;
    for (int k = 1; k < kStreams; ++k) top = fmaxf(top, c[j][k]);
    for (int k = 0; k < kStreams; ++k) sum += c[j][k] = expf(c[j][k] - top);
    for (int k = 0; k < kStreams; ++k) c[j][k] = c[j][k] / sum + eps;
  }
  for (int i = 0; i < iters; ++i) {
    for (int j = 0; j < kStreams && i > 0; ++j) {
      float sum = 0.0f;
      for (int k = 0; k < kStreams; ++k) sum += c[j][k];
      for (int k = 0; k < kStreams; ++k) c[j][k] /= sum + eps;
    }
    for (int k = 0; k < kStreams; ++k) {
      float sum = 0.0f;
      for (int j = 0; j < kStreams; ++j) sum += c[j][k];
      for (int j = 0; j < kStreams; ++j) c[j][k] /= sum + eps;
    }
  }
}

// collapsed = rms(sum_s weights[s] * x[s]; norm_weight) of one row, by the whole block.
template <int kStreams>
__device__ void Collapse(const float* x, const float* weights, int64_t hidden, const float* norm_weight, float eps,
                         float* out, float* shared) {
  float sum = 0.0f;
  const auto mixed = [&](int64_t i) {
    float value = 0.0f;
    for (int s = 0; s < kStreams; ++s) value += weights[s] * x[s * hidden + i];
    return value;
  };
  for (int64_t i = threadIdx.x; i < hidden; i += kThreads) {
    const float value = mixed(i);
    sum += value * value;
  }
  const float scale = 1.0f / sqrtf(BlockSum<kThreads>(sum, shared) / static_cast<float>(hidden) + eps);
  for (int64_t i = threadIdx.x; i < hidden; i += kThreads) out[i] = mixed(i) * scale * norm_weight[i];
}

// Thread 0 turns the products into pre, post and comb.
template <int kStreams>
__device__ void FinishMixes(const HcMixParams& p, int64_t row, const float* product, float rms) {
  for (int s = 0; s < kStreams; ++s) {
    p.pre[row * kStreams + s] = Sigmoid(product[s] * rms * p.scale[0] + p.base[s]) + p.hc_eps;
    p.post[row * kStreams + s] = 2.0f * Sigmoid(product[kStreams + s] * rms * p.scale[1] + p.base[kStreams + s]);
  }
  float comb[kStreams][kStreams];
  for (int i = 0; i < kStreams * kStreams; ++i) {
    const int o = 2 * kStreams + i;
    comb[i / kStreams][i % kStreams] = product[o] * rms * p.scale[2] + p.base[o];
  }
  Sinkhorn(comb, p.hc_eps, p.sinkhorn_iters);
  for (int i = 0; i < kStreams * kStreams; ++i) {
    p.comb[row * kStreams * kStreams + i] = comb[i / kStreams][i % kStreams];
  }
}

// One block a row. Each product: thread t sums elements t, t + 256, ... in order, then the fixed tree of BlockSum.
template <int kStreams>
__global__ void __launch_bounds__(kThreads) HcMixKernel(HcMixParams p) {
  constexpr int kOutputs = (2 + kStreams) * kStreams;
  __shared__ float shared[kThreads / kWarp];
  __shared__ float product[kOutputs];
  const int64_t row = blockIdx.x, flat = kStreams * p.hidden;
  const float* x = p.x + row * flat;
  const float* fn = static_cast<const float*>(p.fn.data);
  float sums[kOutputs] = {};
  float square = 0.0f;
  for (int64_t i = threadIdx.x; i < flat; i += kThreads) {
    const float value = x[i];
    square += value * value;
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) sums[o] = __fmaf_rn(value, fn[o * flat + i], sums[o]);
  }
  const float rms = 1.0f / sqrtf(BlockSum<kThreads>(square, shared) / static_cast<float>(flat) + p.norm_eps);
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
    const float sum = BlockSum<kThreads>(sums[o], shared);
    if (threadIdx.x == 0) product[o] = sum;
  }
  if (threadIdx.x == 0) FinishMixes<kStreams>(p, row, product, rms);
  Collapse<kStreams>(x, p.collapse + row * kStreams, p.hidden, p.norm_weight, p.norm_eps, p.collapsed + row * p.hidden,
                     shared);
}

template <int kStreams>
__global__ void __launch_bounds__(kThreads) HcCollapseKernel(HcCollapseParams p) {
  __shared__ float shared[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  Collapse<kStreams>(p.x + row * kStreams * p.hidden, p.collapse + row * kStreams, p.hidden, p.norm_weight, p.norm_eps,
                     p.collapsed + row * p.hidden, shared);
}

template <int kStreams>
__global__ void __launch_bounds__(kThreads) HcExpandKernel(HcExpandParams p) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= p.rows * p.hidden) return;
  const int64_t row = at / p.hidden, i = at % p.hidden;
  float* x = p.x + row * kStreams * p.hidden;
  float old[kStreams];
  for (int j = 0; j < kStreams; ++j) old[j] = x[j * p.hidden + i];
  for (int k = 0; k < kStreams; ++k) {
    float value = p.post[row * kStreams + k] * p.y[at];
    for (int j = 0; j < kStreams; ++j) value += p.comb[(row * kStreams + j) * kStreams + k] * old[j];
    x[k * p.hidden + i] = value;
  }
}

// Calls launch with the number of streams as a compile-time constant.
template <typename Launch>
void WithStreams(int64_t streams, const Launch& launch) {
  DI_CHECK(streams >= 1 && streams <= kStreamsMax);
  switch (streams) {
    case 1:
      return launch.template operator()<1>();
    case 2:
      return launch.template operator()<2>();
    case 3:
      return launch.template operator()<3>();
    default:
      return launch.template operator()<4>();
  }
}

}  // namespace

void HcMix(Context& context, const HcMixParams& p) {
  DI_CHECK(p.fn.format == WeightFormat::kF32 && p.fn.rows == (2 + p.streams) * p.streams && p.fn.cols == p.streams * p.hidden);
  if (p.rows == 0) return;
  WithStreams(p.streams, [&]<int kStreams>() {
    HcMixKernel<kStreams><<<static_cast<unsigned>(p.rows), kThreads, 0, context.stream()>>>(p);
  });
}

void HcCollapse(Context& context, const HcCollapseParams& p) {
  if (p.rows == 0) return;
  WithStreams(p.streams, [&]<int kStreams>() {
    HcCollapseKernel<kStreams><<<static_cast<unsigned>(p.rows), kThreads, 0, context.stream()>>>(p);
  });
}

void HcExpand(Context& context, const HcExpandParams& p) {
  if (p.rows == 0) return;
  const auto blocks = static_cast<unsigned>((p.rows * p.hidden + kThreads - 1) / kThreads);
  WithStreams(p.streams, [&]<int kStreams>() { HcExpandKernel<kStreams><<<blocks, kThreads, 0, context.stream()>>>(p); });
}

}  // namespace deepinfer::backend::cuda
