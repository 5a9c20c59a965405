// SPDX-License-Identifier: Apache-2.0
// The query of an item, brought to shared memory by the producers as soon as the last scores of the item before are done: the
// consumers sum and store that one's outputs meanwhile. A block's first is brought by the consumers, who have nothing else to do.
#pragma once

#include "backend/cuda/attention/sparse_shared_sm90.cuh"
#include "backend/cuda/ptx/bf16.cuh"

namespace deepinfer::backend::cuda::sparse {

// As bf16, in the order of the keys' channels (sparse_decode_sm90.cuh), by 256 threads. Two neighbouring threads have eight
// channels: one makes half of a unit A, the other of a unit B. A thread has the same channels of every other head. The first loads
// are on their way before `empty`, if given, is waited for.
template <int kInFlight>
__device__ inline void FillQuery(int t, const float* q, uint8_t* out, uint64_t* empty, uint32_t phase) {
  static_assert(kProducers == kConsumers);
  constexpr int kStride = kProducers / (kDim / 4), kRounds = kHeads / kStride / kInFlight;
  const int first = t / (kDim / 4), four = t % (kDim / 4), odd = t % 2;
  const int part = four / 4, chunk = part / 4, unit = part % 4 + (chunk % 2 ^ odd) * 4;
  q += first * kDim + four * 4;
  out += chunk * kChunkBytes + first * 128 + four % 4 / 2 * 8;
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    float4 v[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) v[j] = ptx::LoadStreamed(q + j * kStride * kDim);
    if (empty != nullptr && round == 0) ptx::BarrierWait(empty, phase);
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      const float a = __shfl_xor_sync(kAllLanes, odd ? v[j].x : v[j].y, 1), b = __shfl_xor_sync(kAllLanes, odd ? v[j].z : v[j].w, 1);
      const uint2 words = odd ? make_uint2(ptx::PackBf16x2(a, v[j].y), ptx::PackBf16x2(b, v[j].w))
                              : make_uint2(ptx::PackBf16x2(v[j].x, a), ptx::PackBf16x2(v[j].z, b));
      // UnitOffset(first + kStride * (round * kInFlight + j), unit): first is below kStride.
      const int row = j * kStride;
      *reinterpret_cast<uint2*>(out + row / 8 * 1024 + row % 8 * 128 + ((unit ^ first ^ row % 8) * 16)) = words;
    }
    q += kInFlight * kStride * kDim;
    out += kInFlight * kStride / 8 * 1024;
  }
}

__device__ inline void ArriveOfWarp(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) ptx::BarrierArrive(barrier);
}

// Brings a quarter of the next item's query into the second-level cache, each in a pair of its own: a whole one would go beside the
// outputs of the last item, which all blocks store at about the same time.
__device__ inline void PrefetchQuery(const SparseParams& p, int item, int pair_of_item, int quarter) {
  if (pair_of_item != quarter) return;
  item += static_cast<int>(gridDim.x);
  if (item >= p.num_items) return;
  const float* q = p.op.q + (p.RowOf(item) * p.op.heads + p.FirstHead(item) + quarter * (kHeads / 4)) * kDim;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(q), "r"(kHeads / 4 * kDim * 4) : "memory");
}

}  // namespace deepinfer::backend::cuda::sparse
