// SPDX-License-Identifier: Apache-2.0
// The query of an item, brought to shared memory by the consumers: they have registers for much of it at once as soon as their
// outputs are stored, and the producers fill the item's first keys meanwhile.
#pragma once

#include "backend/cuda/attention/sparse_shared_sm90.cuh"
#include "backend/cuda/ptx/bf16.cuh"

namespace deepinfer::backend::cuda::sparse {

// As bf16, in the order of the keys' channels (sparse_decode_sm90.cuh), by all consumers. Two neighbouring threads have eight
// channels: one makes half of a unit A, the other of a unit B. A thread has the same channels of every other head.
template <int kInFlight>
__device__ inline void FillQuery(const float* q, uint8_t* out) {
  constexpr int kStride = kConsumers / (kDim / 4), kRounds = kHeads / kStride / kInFlight;
  const int t = static_cast<int>(threadIdx.x), first = t / (kDim / 4), four = t % (kDim / 4), odd = t % 2;
  const int part = four / 4, chunk = part / 4, unit = part % 4 + (chunk % 2 ^ odd) * 4;
  q += first * kDim + four * 4;
  out += chunk * kChunkBytes + first * 128 + four % 4 / 2 * 8;
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    float4 v[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) v[j] = ptx::LoadStreamed(q + j * kStride * kDim);
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
