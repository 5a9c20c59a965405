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

}  // namespace deepinfer::backend::cuda::sparse
