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

// The table row of a column.
__device__ int64_t HashEntry(const EngramLookupParams& p, int64_t row, int column) {
  const int32_t* tokens = p.tokens + row * p.ngram_max;
  const int length = column / p.heads + 2;
  uint64_t hash = 0;  // products wrap like int64; the published sizes never do
  for (int n = 0; n < length; ++n) {
    const auto id = static_cast<uint64_t>(tokens[n] < 0 ? p.pad : p.compressed_ids[tokens[n]]);
    hash ^= id * static_cast<uint64_t>(p.multipliers[n]);
  }
  int64_t entry = static_cast<int64_t>(hash) % p.primes[column];
  if (entry < 0) entry += p.primes[column];
  return entry + p.offsets[column];
}

// A thread brings kUnit values of one table row. The table may lie in host memory, where each read takes microseconds: so there
// is one for the codes and one for their scale, and none waits for another thread's hash.
template <int kUnit>
__global__ void EngramLookupKernel(EngramLookupParams p, int columns, int units) {
  ptx::GridBegin();
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x, at = item / units, row = at / columns;
  if (row >= p.rows) return;
  const int unit = static_cast<int>(item - at * units);
  const int64_t entry = HashEntry(p, row, static_cast<int>(at - row * columns));
  if (unit == 0) p.table_rows[at] = entry;
  float* out = p.out + at * p.dim + unit * kUnit;
  if constexpr (kUnit == 1) {
    *out = WeightAt(p.table, entry, unit);
  } else {
    const auto* codes = static_cast<const uint8_t*>(p.table.data) + entry * p.dim + unit * kUnit;
    const uint4 words = *reinterpret_cast<const uint4*>(codes);
    const float scale = numeric::E8m0ToFloat(p.table.scale[(entry * p.dim + unit * kUnit) / 32]);
    const uint32_t four[] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto value = [&](int byte) { return numeric::E4m3ToFloat(static_cast<uint8_t>(four[i] >> 8 * byte)) * scale; };
      reinterpret_cast<float4*>(out)[i] = make_float4(value(0), value(1), value(2), value(3));
    }
  }
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
  const int columns = (p.ngram_max - 1) * p.heads;
  if (p.rows * columns == 0) return;
  const auto launch = [&](auto kernel, int unit) {
    const int units = p.dim / unit;
    const int64_t items = p.rows * columns * units;
    LaunchAfter(context, kernel, static_cast<unsigned>((items + kThreads - 1) / kThreads), kThreads, 0, p, columns, units);
  };
  constexpr int kUnit = 16;
  const bool in_units = p.table.format == WeightFormat::kFp8Row32 && p.dim % 32 == 0 && p.dim == p.table.cols &&
                        (reinterpret_cast<uintptr_t>(p.table.data) | reinterpret_cast<uintptr_t>(p.out)) % 16 == 0;
  if (in_units) {
    launch(EngramLookupKernel<kUnit>, kUnit);
  } else {
    launch(EngramLookupKernel<1>, 1);
  }
}

void EngramApply(Context& context, const EngramApplyParams& p) {
  if (p.rows == 0) return;
  LaunchAfter(context, EngramApplyKernel, static_cast<unsigned>(p.rows * p.streams), kThreads, 0, p);
}

}  // namespace deepinfer::backend::cuda
