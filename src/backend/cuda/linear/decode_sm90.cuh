// SPDX-License-Identifier: Apache-2.0
// From a chunk of packed weights in shared memory to the operand registers of its wgmma steps, exactly.
//
// Both small formats are decoded without tables: the sign, exponent and mantissa bits of a code are moved to their
// places in a bf16, which reads the code with bf16's exponent bias, and one multiplication by a power of two repairs the
// bias and applies the block's scale (it also makes subnormal codes normal). packed.h says where the bits lie.
#pragma once

#include "backend/cuda/linear/packed.h"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/pipeline.cuh"

namespace deepinfer::backend::cuda {

// Operand registers of 32 inputs: [step of the half chunk][register].
using Fragments = uint32_t[2][4];

// The two chunks that a warpgroup's rows come from: those with an even operand register from `even`, the others from `odd`.
// A warpgroup with 64 rows of one tile has the same chunk twice, and the rows of either parity in it. With gate and up it
// has the rows of one parity in gate's chunk and in up's. Shared addresses of this thread's words and scales.
struct ChunkPlaces {
  uint32_t even;
  uint32_t odd;
  uint32_t even_scales;
  uint32_t odd_scales;
};

// 2^(code - 127) of the codes in the two bytes of `scales`, as bf16.
__device__ inline uint32_t ScalePair(uint32_t scales) { return __byte_perm(scales, 0, 0x4140) << 7; }

// Places of a thread in a chunk at 0, for the rows of a parity. Load brings the thread's words, Decode<half> makes the operands
// of 32 inputs of them.
template <WeightFormat kFormat>
struct ChunkDecoder;

template <>
struct ChunkDecoder<WeightFormat::kBf16> {
  uint32_t even, odd;

  __device__ static uint32_t WordPlace(int thread, int parity) { return static_cast<uint32_t>(parity * 4096 + thread * 16); }
  __device__ static uint32_t ScalePlace(int, int) { return 0; }

  __device__ void Load(const ChunkPlaces& at) {
    even = at.even;
    odd = at.odd;
  }

  template <int kHalf>
  __device__ void Decode(Fragments& a) const {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      const uint4 words = ptx::LoadShared4((parity == 0 ? even : odd) + kHalf * 2048);
      a[0][parity] = words.x;
      a[0][2 + parity] = words.y;
      a[1][parity] = words.z;
      a[1][2 + parity] = words.w;
    }
  }
};

template <>
struct ChunkDecoder<WeightFormat::kFp8Tile32> {
  uint4 words[2];
  uint32_t scales[2];

  __device__ static uint32_t WordPlace(int thread, int parity) { return static_cast<uint32_t>(parity * 2048 + thread * 16); }
  __device__ static uint32_t ScalePlace(int thread, int) { return static_cast<uint32_t>(4096 + thread / 64 * 2); }

  __device__ void Load(const ChunkPlaces& at) {
    words[0] = ptx::LoadShared4(at.even);
    words[1] = ptx::LoadShared4(at.odd);
    scales[0] = ptx::LoadShared16(at.even_scales);
    scales[1] = ptx::LoadShared16(at.odd_scales);
  }

  template <int kHalf>
  __device__ void Decode(Fragments& a) const {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      const uint32_t scale = ScalePair(scales[parity]);
      const uint32_t pair[2] = {kHalf == 0 ? words[parity].x : words[parity].z, kHalf == 0 ? words[parity].y : words[parity].w};
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint32_t w = pair[step];
        a[step][parity] = ptx::MulBf16x2ByHalf<kHalf>(w & 0x87F087F0u, scale);
        a[step][2 + parity] = ptx::MulBf16x2ByHalf<kHalf>((w << 4 & 0x80F080F0u) | (w >> 4 & 0x07000700u), scale);
      }
    }
  }
};

template <>
struct ChunkDecoder<WeightFormat::kFp4Row32> {
  uint2 words[2];
  uint32_t scales[2];

  __device__ static uint32_t WordPlace(int thread, int parity) { return static_cast<uint32_t>(parity * 1024 + thread * 8); }
  __device__ static uint32_t ScalePlace(int thread, int parity) { return static_cast<uint32_t>(2048 + thread / 4 * 4 + parity * 2); }

  __device__ void Load(const ChunkPlaces& at) {
    words[0] = ptx::LoadShared2(at.even);
    words[1] = ptx::LoadShared2(at.odd);
    scales[0] = ptx::LoadShared16(at.even_scales);
    scales[1] = ptx::LoadShared16(at.odd_scales);
  }

  // Register i of the eight that two words hold.
  template <int kRegister>
  __device__ static uint32_t Spread(const uint2& w) {
    constexpr bool kMixed = kRegister == 4 || kRegister == 7, kFirst = kRegister == 0 || kRegister == 2 || kRegister == 5;
    const uint32_t source = kMixed ? ptx::SelectBits(kFp4FirstMask, w.x, w.y) : kFirst ? w.x : w.y;
    const uint32_t turned = kRegister < 5 ? __funnelshift_r(source, source, 2 * kRegister) : source << (16 - 2 * kRegister);
    return turned & 0x81C081C0u;
  }

  template <int kHalf>
  __device__ void Decode(Fragments& a) const {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      const uint32_t scale = ScalePair(scales[parity]);
      const uint2& w = words[parity];
      a[0][parity] = ptx::MulBf16x2ByHalf<kHalf>(Spread<4 * kHalf>(w), scale);
      a[0][2 + parity] = ptx::MulBf16x2ByHalf<kHalf>(Spread<4 * kHalf + 1>(w), scale);
      a[1][parity] = ptx::MulBf16x2ByHalf<kHalf>(Spread<4 * kHalf + 2>(w), scale);
      a[1][2 + parity] = ptx::MulBf16x2ByHalf<kHalf>(Spread<4 * kHalf + 3>(w), scale);
    }
  }
};

}  // namespace deepinfer::backend::cuda
