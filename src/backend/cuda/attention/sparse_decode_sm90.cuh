// SPDX-License-Identifier: Apache-2.0
// From cached keys to bf16 operands in shared memory, exactly: a window row is e4m3 with e8m0 scales, a latent e2m1 with
// e4m3 scales; every product fits bf16's eight bits. One warp decodes a key, lane l its channels 16 l .. 16 l + 15.
#pragma once

#include "backend/cuda/attention/keys.cuh"
#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/ptx/bf16.cuh"

namespace deepinfer::backend::cuda {

// Where a key lies; codes == nullptr: none, read as zeros.
struct KeyPlace {
  const uint8_t* codes;
  const uint8_t* scales;
};

__device__ inline KeyPlace FindKey(const AttentionParams& p, int64_t row, const Keys& keys, int key) {
  if (key >= keys.count) return {nullptr, nullptr};
  if (key < keys.window) {
    const WindowRow in = FindWindowRow(p.window_cache, p.requests[row], keys.first + key);
    return {in.codes, in.scales};
  }
  const GlobalRow in = FindGlobalRow(p.latent_cache, p.requests[row], p.selected[row * p.topk + key - keys.window]);
  return {in.latent_codes, in.latent_scales};
}

// What a lane loads of a key before it decodes it.
struct KeyBytes {
  uint4 codes;     // a latent uses x and y
  uint32_t scale;
};

__device__ inline KeyBytes LoadKey(const KeyPlace& place, bool is_window, int lane) {
  KeyBytes bytes{};
  if (place.codes == nullptr) return bytes;
  if (is_window) {
    bytes.codes = *reinterpret_cast<const uint4*>(place.codes + 16 * lane);
    bytes.scale = place.scales[lane / 2];
  } else {
    const uint2 codes = *reinterpret_cast<const uint2*>(place.codes + 8 * lane);
    bytes.codes.x = codes.x;
    bytes.codes.y = codes.y;
    bytes.scale = place.scales[lane];
  }
  return bytes;
}

// Codes with the exponent bias of bf16, repaired by a power of two (linear/decode_sm90.cuh), then times the scale.
__device__ inline uint32_t DecodeE4m3Pair(uint32_t spread, uint32_t scale) {
  constexpr uint32_t kRepair = 0x7B807B80;  // 2^120
  const uint32_t raw = (spread & 0x80008000u) | (spread >> 4 & 0x07F007F0u);
  return ptx::MulBf16x2(ptx::MulBf16x2(raw, kRepair), scale);
}
__device__ inline uint32_t DecodeE2m1Pair(uint32_t word, uint32_t scale) {
  constexpr uint32_t kRepair = 0x7E807E80;  // 2^126
  const uint32_t raw = (word & 0x80008000u) | (word >> 6 & 0x01C001C0u);
  return ptx::MulBf16x2(ptx::MulBf16x2(raw, kRepair), scale);
}

// Channels of one 16-byte unit (8 of them) of a latent: nibble i of the word is channel i.
__device__ inline uint4 DecodeLatentUnit(uint32_t word, uint32_t scale) {
  uint32_t v[4];  // nibbles 3 - i and 7 - i
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = DecodeE2m1Pair(word << (4 * i), scale);
  return make_uint4(__byte_perm(v[3], v[2], 0x5410), __byte_perm(v[1], v[0], 0x5410), __byte_perm(v[3], v[2], 0x7632),
                    __byte_perm(v[1], v[0], 0x7632));
}

__device__ inline uint4 DecodeWindowUnit(uint32_t low, uint32_t high, uint32_t scale) {
  return make_uint4(DecodeE4m3Pair(__byte_perm(low, 0, 0x1404), scale), DecodeE4m3Pair(__byte_perm(low, 0, 0x3424), scale),
                    DecodeE4m3Pair(__byte_perm(high, 0, 0x1404), scale), DecodeE4m3Pair(__byte_perm(high, 0, 0x3424), scale));
}

// The lane's 16 channels as two units.
__device__ inline void DecodeKey(const KeyBytes& bytes, bool is_window, uint4 (&units)[2]) {
  if (is_window) {
    const uint32_t scale = (bytes.scale == 0 ? 0x40u : bytes.scale << 7) * 0x10001u;
    units[0] = DecodeWindowUnit(bytes.codes.x, bytes.codes.y, scale);
    units[1] = DecodeWindowUnit(bytes.codes.z, bytes.codes.w, scale);
  } else {
    constexpr uint32_t kOne = 0x3F803F80;
    const uint32_t scale = DecodeE4m3Pair(bytes.scale << 8 | bytes.scale << 24, kOne);
    units[0] = DecodeLatentUnit(bytes.codes.x, scale);
    units[1] = DecodeLatentUnit(bytes.codes.y, scale);
  }
}

}  // namespace deepinfer::backend::cuda
