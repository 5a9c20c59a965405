// SPDX-License-Identifier: Apache-2.0
// From a chunk of aligned weights (packed.h) in shared memory to the e4m3 operand registers of its wgmma steps, exactly.
#pragma once

#include "backend/cuda/linear/decode_sm90.cuh"

namespace deepinfer::backend::cuda {

// Where a thread's words and scales for the rows of its even operand registers lie; those of the odd ones lie odd_words and
// odd_scales further.
struct AlignedPlaces {
  uint32_t words;
  uint32_t scales;
  uint32_t odd_words;
  uint32_t odd_scales;
};

// Load brings a thread's words of half a chunk (64 inputs), Decode makes the operands of its two steps of them. kParityWords,
// kParityScales: how far the places of odd registers lie behind those of even ones in a chunk.
template <WeightFormat kFormat>
struct AlignedDecoder;

template <>
struct AlignedDecoder<WeightFormat::kFp8Aligned> {
  static constexpr uint32_t kParityWords = 4096, kParityScales = 0;

  uint32_t even, odd;

  __device__ static uint32_t ScalePlace(int) { return 0; }

  template <int kHalf>
  __device__ void Load(const AlignedPlaces& at) {
    even = at.words + kHalf * 2048;
    odd = even + at.odd_words;
  }

  __device__ void Decode(Fragments& a) const {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      const uint4 words = ptx::LoadShared4(parity == 0 ? even : odd);
      a[0][parity] = words.x;
      a[0][2 + parity] = words.y;
      a[1][parity] = words.z;
      a[1][2 + parity] = words.w;
    }
  }
};

template <>
struct AlignedDecoder<WeightFormat::kFp4Aligned> {
  static constexpr uint32_t kParityWords = 2048, kParityScales = 4;

  uint2 words[2];
  uint32_t scales[2];

  __device__ static uint32_t ScalePlace(int thread) { return static_cast<uint32_t>(4096 + thread / 4 * 8); }

  template <int kHalf>
  __device__ void Load(const AlignedPlaces& at) {
    words[0] = ptx::LoadShared2(at.words + kHalf * 8);
    words[1] = ptx::LoadShared2(at.words + at.odd_words + kHalf * 8);
    scales[0] = ptx::LoadShared16(at.scales + kHalf * 2);
    scales[1] = ptx::LoadShared16(at.scales + at.odd_scales + kHalf * 2);
  }

  // prmt looks up four codes at once in the table of a block's eight magnitudes.
  __device__ void Decode(Fragments& a) const {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint32_t w = step == 0 ? words[parity].x : words[parity].y;
        const uint32_t scale = step == 0 ? scales[parity] & 0xFF : scales[parity] >> 8;
        const uint32_t low = Fp4AlignedTable(scale, false), high = Fp4AlignedTable(scale, true), magnitudes = w & 0x77777777u;
        a[step][parity] = ptx::PermuteBytes(low, high, magnitudes) | (w & 0x80808080u);
        a[step][2 + parity] = ptx::PermuteBytes(low, high, magnitudes >> 16) | (w << 4 & 0x80808080u);
      }
    }
  }
};

}  // namespace deepinfer::backend::cuda
