// SPDX-License-Identifier: Apache-2.0
// Engram: hashing n-grams, gathering table rows, and the gate (spec/model.md 6).
#include "backend/cuda/device/matrix.cuh"
#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/ptx/grid.cuh"
#include "core/check.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kNgramMax = 8;

__global__ void EngramHashKernel(EngramLookupParams p) {
  ptx::GridBegin();
  const int64_t columns = int64_t{p.ngram_max - 1} * p.heads;
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= p.rows * columns) return;
  const int64_t row = at / columns, column = at % columns;
  const int32_t* tokens = p.tokens + row * p.ngram_max;
  const auto length = static_cast<int32_t>(column / p.heads + 2);
  uint64_t hash = 0;  // products wrap like int64; the published sizes never do
  for (int32_t n = 0; n < length; ++n) {
    const auto id = static_cast<uint64_t>(tokens[n] < 0 ? p.pad : p.compressed_ids[tokens[n]]);
    hash ^= id * static_cast<uint64_t>(p.multipliers[n]);
  }
  int64_t entry = static_cast<int64_t>(hash) % p.primes[column];
  if (entry < 0) entry += p.primes[column];
  p.table_rows[at] = entry + p.offsets[column];
}

__global__ void EngramGatherKernel(EngramLookupParams p) {
  ptx::GridBegin();
  const int64_t at = blockIdx.x;
  const int64_t entry = p.table_rows[at];
  for (int i = threadIdx.x; i < p.dim; i += blockDim.x) p.out[at * p.dim + i] = WeightAt(p.table, entry, i);
}

// One block a (row, stream).
__global__ void EngramApplyKernel(EngramApplyParams p) {
  ptx::GridBegin();
  __shared__ float shared[kThreads / kWarp];
  const int64_t r = blockIdx.x / p.streams, s = blockIdx.x % p.streams;
  if (p.dead != nullptr && p.dead[r]) return;
  float* x = p.x + (r * p.streams + s) * p.hidden;
  const float* key = p.kv + (r * (p.streams + 1) + s) * p.hidden;
  const float* value = p.kv + (r * (p.streams + 1) + p.streams) * p.hidden;
  const float* weight = p.qk_weight + s * p.hidden;
  float dot = 0.0f, xx = 0.0f, kk = 0.0f;
  for (int64_t i = threadIdx.x; i < p.hidden; i += kThreads) {
    dot += x[i] * weight[i] * key[i];
    xx += x[i] * x[i];
    kk += key[i] * key[i];
  }
  const float n = static_cast<float>(p.hidden);
  dot = BlockSum<kThreads>(dot, shared);
  xx = 1.0f / sqrtf(BlockSum<kThreads>(xx, shared) / n + p.eps);
  kk = 1.0f / sqrtf(BlockSum<kThreads>(kk, shared) / n + p.eps);
  dot = dot * xx * kk / sqrtf(n);
  const float gate = 1.0f / (1.0f + expf(-copysignf(sqrtf(fmaxf(fabsf(dot), 1e-6f)), dot)));
  for (int64_t i = threadIdx.x; i < p.hidden; i += kThreads) x[i] += gate * value[i];
}

}  // namespace

void EngramLookup(Context& context, const EngramLookupParams& p) {
  DI_CHECK(p.ngram_max >= 2 && p.ngram_max <= kNgramMax);
  const int64_t items = p.rows * (p.ngram_max - 1) * p.heads;
  if (items == 0) return;
  LaunchAfter(context, EngramHashKernel, static_cast<unsigned>((items + kThreads - 1) / kThreads), kThreads, 0, p);
  LaunchAfter(context, EngramGatherKernel, static_cast<unsigned>(items), 64, 0, p);
}

void EngramApply(Context& context, const EngramApplyParams& p) {
  if (p.rows == 0) return;
  LaunchAfter(context, EngramApplyKernel, static_cast<unsigned>(p.rows * p.streams), kThreads, 0, p);
}

}  // namespace deepinfer::backend::cuda
