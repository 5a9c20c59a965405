// SPDX-License-Identifier: Apache-2.0
// From a chunk of packed weights in shared memory to the operand registers of its four wgmma steps, exactly.
//
// Both small formats are decoded without tables: the sign, exponent and mantissa bits of a code are moved to their
// places in a bf16, which reads the code with bf16's exponent bias, and one multiplication by a power of two repairs the
// bias and applies the block's scale (it also makes subnormal codes normal).
#pragma once

#include "backend/cuda/linear/packed.h"
#include "backend/cuda/ptx/bf16.cuh"

namespace deepinfer::backend::cuda {

using Fragments = uint32_t[4][4];  // [step][register]

// 2^(scale code - 127 + repair) twice, as bf16.
__device__ inline uint32_t ScalePair(uint32_t code, uint32_t repair) { return ((code + repair) << 7) * 0x10001u; }

template <WeightFormat kFormat>
struct ChunkDecoder;

template <>
struct ChunkDecoder<WeightFormat::kBf16> {
  __device__ static void Load(const uint8_t* chunk, int thread, Fragments& a) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const uint4 words = *reinterpret_cast<const uint4*>(chunk + step * 2048 + thread * 16);
      a[step][0] = words.x;
      a[step][1] = words.y;
      a[step][2] = words.z;
      a[step][3] = words.w;
    }
  }
};

template <>
struct ChunkDecoder<WeightFormat::kFp8Tile32> {
  // e4m3's bias is 7, bf16's 127.
  static constexpr uint32_t kRepair = 120;

  // Bytes 1 and 3 of the word become two bf16 of the wrong bias.
  __device__ static uint32_t Spread(uint32_t word) { return (word & 0x80008000u) | (word >> 4 & 0x07F007F0u); }

  __device__ static void Load(const uint8_t* chunk, int thread, Fragments& a) {
    const uint16_t scales = *reinterpret_cast<const uint16_t*>(chunk + 4096 + thread / 64 * 2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 words = *reinterpret_cast<const uint4*>(chunk + half * 2048 + thread * 16);
      const uint32_t scale = ScalePair(scales >> (8 * half) & 0xFF, kRepair);
      const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[2 * half + i / 2][i % 2 * 2] = ptx::MulBf16x2(Spread(word[i]), scale);
        a[2 * half + i / 2][i % 2 * 2 + 1] = ptx::MulBf16x2(Spread(word[i] << 8), scale);
      }
    }
  }
};

template <>
struct ChunkDecoder<WeightFormat::kFp4Row32> {
  // e2m1's bias is 1.
  static constexpr uint32_t kRepair = 126;

  // The lowest nibble of either half, or the next, becomes a bf16 of the wrong bias: one product puts the sign and the rest of
  // both in place, on another pipe than the masks.
  template <int kNibble>
  __device__ static uint32_t Spread(uint32_t word) {
    return (word & 0x000F000Fu << 4 * kNibble) * (0x1040u >> 4 * kNibble) & 0x81C081C0u;
  }

  __device__ static void Load(const uint8_t* chunk, int thread, Fragments& a) {
    const uint4 words = *reinterpret_cast<const uint4*>(chunk + thread * 16);
    const uint32_t scales = *reinterpret_cast<const uint32_t*>(chunk + 2048 + thread / 4 * 4);
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const uint32_t pair = scales >> (step / 2 * 16);
      const uint32_t low = ScalePair(pair & 0xFF, kRepair), high = ScalePair(pair >> 8 & 0xFF, kRepair);
      a[step][0] = ptx::MulBf16x2(Spread<1>(word[step] >> 8), low);
      a[step][1] = ptx::MulBf16x2(Spread<0>(word[step] >> 8), high);
      a[step][2] = ptx::MulBf16x2(Spread<1>(word[step]), low);
      a[step][3] = ptx::MulBf16x2(Spread<0>(word[step]), high);
    }
  }
};

}  // namespace deepinfer::backend::cuda
