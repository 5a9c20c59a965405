// SPDX-License-Identifier: Apache-2.0
// The router (spec/model.md 5): scores in fp32, the best experts of each row, their weights.
//
// Each warp finds the best of its experts; of these candidates every one counts those that go before it.
#include <cmath>

#include "backend/cuda/device/order.cuh"
#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/moe/route_gate.h"
#include "backend/cuda/ptx/grid.cuh"
#include "core/check.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 384;
constexpr int kWarps = kThreads / kWarp;
constexpr int kExpertsMax = 1024;
constexpr int kTopkMax = 32;
static_assert(kWarps * kTopkMax <= kThreads);

struct Candidate {
  uint32_t key;  // orders biased scores; 0: none
  int expert;

  __device__ bool Before(const Candidate& other) const { return key > other.key || (key == other.key && expert < other.expert); }
};

struct RouteShared {
  float scores[kExpertsMax];
  Candidate candidates[kWarps * kTopkMax];
  int chosen[kTopkMax];     // best first
  int ascending[kTopkMax];  // by id
};

// The warp's best of its experts, kEach of a lane, into out[topk].
template <int kEach>
__device__ void FindCandidates(uint32_t (&keys)[kEach], int topk, Candidate* out) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int k = 0; k < topk; ++k) {
    uint32_t best = keys[0];
#pragma unroll
    for (int j = 1; j < kEach; ++j) best = max(best, keys[j]);
    best = __reduce_max_sync(kAllLanes, best);
    int expert = kExpertsMax;
#pragma unroll
    for (int j = kEach - 1; j >= 0; --j) expert = keys[j] == best ? j * kThreads + thread : expert;
    expert = __reduce_min_sync(kAllLanes, expert);
    if (thread % kWarp == 0) out[k] = {best, expert};
#pragma unroll
    for (int j = 0; j < kEach; ++j) keys[j] = expert == j * kThreads + thread ? 0 : keys[j];
  }
}

// One block a row; thread t has experts t, t + kThreads, .., kEach of them. Ties: the lower expert.
template <int kEach>
__global__ void __launch_bounds__(kThreads, 4) RouteKernel(const __grid_constant__ RouteParams p, GateProducts products) {
  __shared__ RouteShared shared;
  const int thread = static_cast<int>(threadIdx.x), experts = static_cast<int>(p.gate.rows), topk = static_cast<int>(p.topk);
  const int64_t row = blockIdx.x;
  ptx::GridBegin();
  const float* bias = p.is_image != nullptr && p.is_image[row] ? p.image_bias : p.bias;
  float sums[kEach] = {}, biases[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) biases[j] = j * kThreads + thread < experts ? bias[j * kThreads + thread] : 0.0f;
#pragma unroll 10
  for (int slice = 0; slice < products.slices; ++slice) {
    const float* from = products.sums + (slice * p.rows + row) * experts;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int e = j * kThreads + thread;
      if (e < experts) sums[j] += from[e];
    }
  }
  uint32_t keys[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int e = j * kThreads + thread;
    const float x = sums[j], score = sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
    if (e < experts) shared.scores[e] = score;
    keys[j] = e < experts ? ScoreKey(score + biases[j]) : 0;
  }
  FindCandidates<kEach>(keys, topk, shared.candidates + thread / kWarp * topk);
  __syncthreads();
  const int num_candidates = kWarps * topk;
  if (thread < num_candidates) {
    const Candidate mine = shared.candidates[thread];
    int before = 0;
    for (int i = 0; i < num_candidates; ++i) before += shared.candidates[i].Before(mine) ? 1 : 0;
    if (mine.key != 0 && before < topk) shared.chosen[before] = mine.expert;
  }
  __syncthreads();
  if (thread >= kWarp) return;
  const int expert = thread < topk ? shared.chosen[thread] : kExpertsMax;
  int place = 0;
  for (int k = 0; k < topk; ++k) place += shared.chosen[k] < expert ? 1 : 0;
  if (thread < topk) shared.ascending[place] = expert;
  __syncwarp();
  float sum = 0.0f;
  for (int k = 0; k < topk; ++k) sum += shared.scores[shared.ascending[k]];
  const float divisor = p.normalize && topk > 1 ? sum + 1e-20f : 1.0f;
  if (thread >= topk) return;
  p.experts[row * topk + place] = expert;
  p.weights[row * topk + place] = shared.scores[expert] / divisor * p.scale;
}

// Other gates than packed bf16 ones: one slice.
GateProducts PlainGate(Context& context, const RouteParams& p) {
  auto* sums = context.Take<float>(p.rows * p.gate.rows);
  if (sums == nullptr) return {};
  Linear(context, {.rows = p.rows, .w = p.gate, .groups = 1, .activations = Activations::kFp32, .x = p.x,
                   .x_stride = p.gate.cols, .y = sums, .y_stride = p.gate.rows});
  return {sums, 1};
}

}  // namespace

void Route(Context& context, const RouteParams& p) {
  DI_CHECK(p.gate.rows <= kExpertsMax && p.topk >= 1 && p.topk <= kTopkMax && p.topk <= p.gate.rows);
  if (p.rows == 0) return;
  const GateProducts products = MultiplyGateTakes(p) ? MultiplyGate(context, p) : PlainGate(context, p);
  if (products.sums == nullptr) return;
  constexpr int kFewEach = 1;
  const auto kernel = p.gate.rows <= kFewEach * kThreads ? RouteKernel<kFewEach> : RouteKernel<(kExpertsMax + kThreads - 1) / kThreads>;
  LaunchAfter(context, kernel, static_cast<unsigned>(p.rows), kThreads, 0, p, products);
}

}  // namespace deepinfer::backend::cuda
