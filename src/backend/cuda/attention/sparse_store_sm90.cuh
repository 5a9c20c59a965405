// SPDX-License-Identifier: Apache-2.0
// How both kernels of sparse attention hand outputs over.
#pragma once

#include "backend/cuda/attention/sparse_softmax_sm90.cuh"
#include "backend/cuda/linear/input_place.h"

namespace deepinfer::backend::cuda::sparse {

// Cosine and sine of the thread's turned channels: all lie in the last chunk, [part][e].
using Turns = float2[4][2];

// The first of a thread's channels in a part of 16: it has this one, the next, and those four further on
// (sparse_decode_sm90.cuh).
__device__ inline int FirstChannel() {
  const int c = static_cast<int>(threadIdx.x) % 4;
  return c / 2 * 8 + c % 2 * 2;
}

__device__ inline void LoadTurns(const SparseParams& p, int64_t row, Turns& turns) {
  const int plain = kDim - static_cast<int>(p.op.rope_dim);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int at = kDim - 64 + i / 2 * 16 + FirstChannel() + i % 2 * 4 - plain;
    turns[i / 2][i % 2] = at >= 0 ? *reinterpret_cast<const float2*>(p.op.table + row * p.op.rope_dim + at) : make_float2(1.0f, 0.0f);
  }
}

// Divides, turns the last channels back by the row's position, and stores, as rows or as inputs of a linear. The thread trades two
// of its four channels of a part with the next thread, so that both store four neighbours.
// kParts: runs of 16 channels, from first_chunk on; kOdd: whether that is an odd one of the key's layout; kTurns: whether the last
// chunk is the head's. kTurnsShared: turns_shared has those of the last 64 channels, in shared memory; else they are loaded here.
template <int kParts, int kOdd, bool kTurns, bool kAsInputs, bool kTurnsShared, typename Outputs>
__device__ inline void StoreOutputsAs(const SparseParams& p, int64_t row, int first_head, int first_chunk, const float (&inverse)[2],
                                      const Outputs& o, const float* turns_shared) {
  const int c = static_cast<int>(threadIdx.x) % 4, odd = c % 2;
  float* out = p.op.out + (row * p.op.heads + first_head + Head()) * kDim + first_chunk * 64 + c / 2 * 8 + odd * 4;
  const auto in_group = static_cast<int>(row % kGroupRows);
  uint8_t* inputs = static_cast<uint8_t*>(p.op.inputs) + ((first_head + Head()) * kChunks + first_chunk) * p.input_part_bytes +
                    InputRow(row) + odd * 8;
  constexpr int kUnits = sizeof(o[0]) / (4 * sizeof(float));
  Turns turns;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    // Late, since there are no registers before.
    if (kTurns && !kTurnsShared && part == (kParts > 8 ? kParts - 8 : 0)) LoadTurns(p, row, turns);
    const int chunk = part / 4, odd_chunk = (chunk + kOdd) % 2;
    if (kTurns && kTurnsShared && part >= kParts - 4) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        turns[part % 4][e] = *reinterpret_cast<const float2*>(turns_shared + part % 4 * 16 + FirstChannel() + e * 4);
      }
    }
    const int a = chunk * 8 + part % 4 + odd_chunk * 4, b = chunk * 8 + part % 4 + (1 - odd_chunk) * 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float2 v[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        v[e] = make_float2(o[a / kUnits][a % kUnits * 4 + 2 * h + e] * inverse[h], o[b / kUnits][b % kUnits * 4 + 2 * h + e] * inverse[h]);
        if (kTurns && part >= kParts - 4) {
          const float2 t = turns[part % 4][e];
          v[e] = make_float2(v[e].x * t.x + v[e].y * t.y, v[e].y * t.x - v[e].x * t.y);
        }
      }
      const float2 send = odd != 0 ? v[0] : v[1], keep = odd != 0 ? v[1] : v[0];
      const float2 got = make_float2(__shfl_xor_sync(kAllLanes, send.x, 1), __shfl_xor_sync(kAllLanes, send.y, 1));
      const float4 four = odd != 0 ? make_float4(got.x, got.y, keep.x, keep.y) : make_float4(keep.x, keep.y, got.x, got.y);
      if constexpr (kAsInputs) {
        const int at = InputUnit(in_group, part % 4 * 2 + c / 2);
        *reinterpret_cast<uint2*>(inputs + (h * 8 * kChunks + part / 4) * p.input_part_bytes + at) =
            make_uint2(ptx::PackBf16x2(four.x, four.y), ptx::PackBf16x2(four.z, four.w));
      } else {
        ptx::StoreStreamed(out + h * 8 * kDim + part * 16, four);
      }
    }
  }
}

template <int kParts, int kOdd, bool kTurns, bool kTurnsShared = false, typename Outputs>
__device__ inline void StoreOutputs(const SparseParams& p, int64_t row, int first_head, int first_chunk, const float (&inverse)[2],
                                    const Outputs& o, const float* turns = nullptr) {
  if (p.op.inputs != nullptr) {
    StoreOutputsAs<kParts, kOdd, kTurns, true, kTurnsShared>(p, row, first_head, first_chunk, inverse, o, turns);
  } else {
    StoreOutputsAs<kParts, kOdd, kTurns, false, kTurnsShared>(p, row, first_head, first_chunk, inverse, o, turns);
  }
}

}  // namespace deepinfer::backend::cuda::sparse
