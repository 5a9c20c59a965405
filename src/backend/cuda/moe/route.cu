// SPDX-License-Identifier: Apache-2.0
// The router (spec/model.md 5): scores in fp32, the best experts of each row, their weights.
#include <cmath>

#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/ptx/grid.cuh"
#include "core/check.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kExpertsMax = 1024;
constexpr int kTopkMax = 32;

// One warp a row. scores [rows, experts] holds the gate's products. Ties: the lower expert.
__global__ void RouteKernel(RouteParams p, const float* products) {
  ptx::GridBegin();
  __shared__ float score[kExpertsMax];
  __shared__ float biased[kExpertsMax];
  __shared__ int32_t chosen[kTopkMax];
  const int lane = threadIdx.x, experts = static_cast<int>(p.gate.rows), topk = static_cast<int>(p.topk);
  const int64_t row = blockIdx.x;
  const float* bias = p.is_image != nullptr && p.is_image[row] ? p.image_bias : p.bias;
  for (int e = lane; e < experts; e += kWarp) {
    const float x = products[row * experts + e];
    score[e] = sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
    biased[e] = score[e] + bias[e];
  }
  for (int k = 0; k < topk; ++k) {
    float best = -INFINITY;
    int expert = experts;
    for (int e = lane; e < experts; e += kWarp) {
      if (biased[e] > best || expert == experts) {
        best = biased[e];
        expert = e;
      }
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(kAllLanes, best, offset);
      const int other_expert = __shfl_xor_sync(kAllLanes, expert, offset);
      const bool better = other_expert < experts && (expert == experts || other > best || (other == best && other_expert < expert));
      best = better ? other : best;
      expert = better ? other_expert : expert;
    }
    if (lane == 0) {
      // Insertion by ascending id.
      int at = k;
      for (; at > 0 && chosen[at - 1] > expert; --at) chosen[at] = chosen[at - 1];
      chosen[at] = expert;
      biased[expert] = -INFINITY;
    }
    __syncwarp();
  }
  if (lane != 0) return;
  float sum = 0.0f;
  for (int k = 0; k < topk; ++k) sum += score[chosen[k]];
  const float divisor = p.normalize && topk > 1 ? sum + 1e-20f : 1.0f;
  for (int k = 0; k < topk; ++k) {
    p.experts[row * topk + k] = chosen[k];
    p.weights[row * topk + k] = score[chosen[k]] / divisor * p.scale;
  }
}

}  // namespace

void Route(Context& context, const RouteParams& p) {
  DI_CHECK(p.gate.rows <= kExpertsMax && p.topk >= 1 && p.topk <= kTopkMax && p.topk <= p.gate.rows);
  if (p.rows == 0) return;
  auto* products = context.Take<float>(p.rows * p.gate.rows);
  if (products == nullptr) return;
  Linear(context, {.rows = p.rows, .w = p.gate, .groups = 1, .activations = Activations::kFp32, .x = p.x,
                   .x_stride = p.gate.cols, .y = products, .y_stride = p.gate.rows});
  LaunchAfter(context, RouteKernel, static_cast<unsigned>(p.rows), kWarp, 0, p, products);
}

}  // namespace deepinfer::backend::cuda
