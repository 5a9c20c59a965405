// SPDX-License-Identifier: Apache-2.0
// From cached keys to bf16 operands in shared memory, exactly: a window row is e4m3 with e8m0 scales, a latent e2m1 with
// e4m3 scales; every product fits bf16's eight bits. Keys are kept times 2^-8 (kKeyRepair): so a latent needs one
// multiplication, which moves the exponent bias and applies the scale, without leaving bf16's range.
//
// A lane decodes 16 neighbouring channels into two 16-byte units, A and B, in an order that costs no byte moves:
//   A: (0, 4) (2, 6) (8, 12) (10, 14)     B: (1, 5) (3, 7) (9, 13) (11, 15)
// The query takes the same order (sparse_produce_sm90.cuh), and the thread that holds column pair c of A and of B holds
// channels base(c), base(c) + 1, base(c) + 4, base(c) + 5 of the outputs, base = 0, 2, 8, 10.
#pragma once

#include "backend/cuda/attention/keys.cuh"
#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/ptx/bf16.cuh"

namespace deepinfer::backend::cuda {

inline constexpr float kKeyRepair = 256.0f;

// Codes with the exponent bias of bf16 (linear/decode_sm90.cuh); bytes 1 and 3 count.
__device__ inline uint32_t SpreadE4m3(uint32_t word) { return (word & 0x80008000u) | (word >> 4 & 0x07F007F0u); }

// Nibbles 0 and 4, or 1 and 5, of a word: one product puts the sign and the rest of both in place.
template <int kNibble>
__device__ inline uint32_t DecodeLatentPair(uint32_t word, uint32_t scale) {
  static_assert(kNibble < 2);
  const uint32_t moved = (word & 0x000F000Fu << 4 * kNibble) * (0x1040u >> 4 * kNibble);
  return ptx::MulBf16x2(moved & 0x81C081C0u, scale);
}

// Two e4m3 scales of neighbouring blocks of a latent, each as the factor of its codes, twice.
__device__ inline void LatentScales(uint32_t codes, uint32_t (&scales)[2]) {
  constexpr uint32_t kScaleRepair = 0x7B807B80;  // 2^120
  constexpr uint32_t kRepair = 0x7A807A80;       // 2^118 = 2^(126 - 8)
  const uint32_t both = ptx::MulBf16x2(ptx::MulBf16x2(SpreadE4m3(__byte_perm(codes, 0, 0x1404)), kScaleRepair), kRepair);
  scales[0] = __byte_perm(both, 0, 0x1010);
  scales[1] = __byte_perm(both, 0, 0x3232);
}

// The two units from the 16 nibbles of low and high.
__device__ inline void DecodeLatent(uint32_t low, uint32_t high, uint32_t scale, uint4 (&units)[2]) {
  const uint32_t low2 = low >> 8, high2 = high >> 8;
  units[0] = make_uint4(DecodeLatentPair<0>(low, scale), DecodeLatentPair<0>(low2, scale), DecodeLatentPair<0>(high, scale),
                        DecodeLatentPair<0>(high2, scale));
  units[1] = make_uint4(DecodeLatentPair<1>(low, scale), DecodeLatentPair<1>(low2, scale), DecodeLatentPair<1>(high, scale),
                        DecodeLatentPair<1>(high2, scale));
}

// Bytes i of two words.
template <int kByte>
__device__ inline uint32_t DecodeWindowPair(uint32_t low, uint32_t high, uint32_t scale) {
  constexpr uint32_t kRepair = 0x77807780;  // 2^112 = 2^(120 - 8)
  return ptx::MulBf16x2(ptx::MulBf16x2(SpreadE4m3(__byte_perm(low, high, 0x4000 + 0x1010 * kByte)), kRepair), scale);
}

__device__ inline uint32_t WindowScale(uint32_t code) { return (code == 0 ? 0x40u : code << 7) * 0x10001u; }

// The two units from 16 e4m3 codes.
__device__ inline void DecodeWindow(const uint32_t* word, uint32_t scale, uint4 (&units)[2]) {
  units[0] = make_uint4(DecodeWindowPair<0>(word[0], word[1], scale), DecodeWindowPair<2>(word[0], word[1], scale),
                        DecodeWindowPair<0>(word[2], word[3], scale), DecodeWindowPair<2>(word[2], word[3], scale));
  units[1] = make_uint4(DecodeWindowPair<1>(word[0], word[1], scale), DecodeWindowPair<3>(word[0], word[1], scale),
                        DecodeWindowPair<1>(word[2], word[3], scale), DecodeWindowPair<3>(word[2], word[3], scale));
}

}  // namespace deepinfer::backend::cuda
