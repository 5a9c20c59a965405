// SPDX-License-Identifier: Apache-2.0
// Queries and index keys as integers. Twice an e2m1 value is one of 0, 1, 2, 3, 4, 6, 8, 12 and a scale is a power of two, so a
// dot product of 128 channels is an exact integer times a power of two wherever the scales of both sides lie close together:
//
// - of a query's head, all channels are integers of at most 127 times one power of two;
// - of a key, the four scales differ by at most 2^2, and its integers, shifted up by up to two bits, are at most 48: with an offset
//   of 64 they are bytes below 128, which is what a look-up of four codes an instruction can give.
//
// All sums stay below 2^23. In floating point, tensor cores get the same number: every partial sum is a multiple of one unit and less
// than 2^24 of it. An integer n from 0 to 2^23 is, as the bits of a float, n * 2^-149: so it goes into the sum over heads
// without a conversion. The powers of two that are missing stand with the head's weight and with the key's factor. Their ranges
// are checked as well, so that nothing overflows or loses bits: a score does not depend on which way it was computed, and a few keys
// with scales far apart can send their neighbours the other way with them.
#pragma once

#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/ptx/bf16.cuh"

namespace deepinfer::backend::cuda {

inline constexpr int kIntegerHeads = 32, kIntegerChannels = 128;
inline constexpr int kIntegerLanes = kIntegerChannels / 8;  // that hold a head, eight neighbouring channels each
inline constexpr int kOffset = 64;                         // of a key's integers as bytes without a sign
// Of a head: exponents of its queries, and of weight * unit; what makes up for the 2^-149 in part. The rest stands with the key.
inline constexpr int kQueryRange = 60, kLeastWeight = -60, kMostWeight = 19, kQueryLift = 107, kKeyLift = 149 - kQueryLift;
// Of a key's scales, biased.
inline constexpr int kLeastScale = 87, kMostScale = 160, kShiftMost = 2;

// What a thread finds out about its eight channels of a head.
struct QueryIntegers {
  uint32_t words[2];  // a byte each
  int start;          // of the head: takes the offset of the keys off its sum
  float weight;       // of the head, times its unit and 2^kQueryLift
  bool fits;          // if not, the rest means nothing
};

__device__ inline float PowerOfTwo(int exponent) { return __int_as_float((exponent + 127) << 23); }
__device__ inline int ExponentOf(float value) { return (__float_as_int(value) >> 23 & 0xFF) - 127; }

__device__ inline QueryIntegers FindIntegers(const float (&q)[8], float weight) {
  constexpr int kBits = 6;  // below the first one of the largest
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) most = fmaxf(most, fabsf(q[i]));
#pragma unroll
  for (int offset = kIntegerLanes / 2; offset > 0; offset /= 2) most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
  const int exponent = most == 0.0f ? 0 : ExponentOf(most), with_weight = ExponentOf(weight) + exponent - kBits;
  QueryIntegers to{};
  to.fits = exponent >= -kQueryRange && exponent <= kQueryRange &&
            (weight == 0.0f || (with_weight >= kLeastWeight && with_weight <= kMostWeight));
  const float factor = PowerOfTwo(to.fits ? kBits - exponent : 0), unit = PowerOfTwo(to.fits ? exponent - kBits : 0);
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int n = __float2int_rn(q[i] * factor);
    to.fits = to.fits && static_cast<float>(n) * unit == q[i];  // not by the product above, which may be zero for what is not
    sum += n;
    to.words[i / 4] |= (static_cast<uint32_t>(n) & 0xFF) << (8 * (i % 4));
  }
#pragma unroll
  for (int offset = kIntegerLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
  to.start = -kOffset * sum;
  to.weight = to.fits ? weight * unit * PowerOfTwo(kQueryLift) : 0.0f;
  return to;
}

// What a lane knows of a key from its four scales, one a byte.
struct KeyScales {
  uint32_t shifts;  // 2^(bits up), a byte each
  float factor;     // of the sum over heads
  bool fits;        // if not, the rest means nothing

  __device__ explicit KeyScales(uint32_t scales) {
    const uint32_t a = scales & 0xFF, b = scales >> 8 & 0xFF, c = scales >> 16 & 0xFF, d = scales >> 24;
    const uint32_t least = min(min(a, b), min(c, d)), up = scales - least * 0x01010101u;
    fits = ((up & 0xFCFCFCFCu) | (up & up >> 1 & 0x01010101u)) == 0 && least - kLeastScale <= kMostScale - kShiftMost - kLeastScale;
    // 1 or 2, and that or four times that.
    const uint32_t ones = 0x01010101u + (up & 0x01010101u);
    shifts = ones + (ones & (up >> 1 & 0x01010101u) * 3) * 3;
    // 2^(least - 127), half of it for twice the value.
    factor = __int_as_float(static_cast<int>(least - 1 + kKeyLift) << 23);
  }
};

// The integers of a group of codes, by a look-up of four a time. `prmt` takes a byte of the table by the lower three bits of a
// selector; where its upper bit is set it gives the byte's upper bit eight times, here 0. So of two tables, one looked up by the codes
// and one by the codes with their signs turned, each gives 0 where the other has the value.
class KeyTable {
 public:
  // `by`: 1, 2 or 4.
  __device__ explicit KeyTable(uint32_t by)
      : low_(0x03020100 * by + kOffsets), high_(0x0C080604 * by + kOffsets), less_low_(kOffsets - 0x03020100 * by),
        less_high_(kOffsets - 0x0C080604 * by) {}

  // Codes 0 to 3 of a word and 4 to 7, with kOffset added. `half`: 2^16, which the compiler does not know, for a product moves the upper
  // half down in another pipe than a shift.
  __device__ void Decode(uint32_t codes, uint32_t half, uint32_t* first, uint32_t* second) const {
    const uint32_t turned = codes ^ 0x88888888u;
    const uint32_t upper = ptx::UpperProduct(codes, half), upper_turned = ptx::UpperProduct(turned, half);
    *first = ptx::PermuteBytes(low_, high_, codes) + ptx::PermuteBytes(less_low_, less_high_, turned);
    *second = ptx::PermuteBytes(low_, high_, upper) + ptx::PermuteBytes(less_low_, less_high_, upper_turned);
  }

 private:
  static constexpr uint32_t kOffsets = kOffset * 0x01010101u;
  uint32_t low_, high_, less_low_, less_high_;
};

}  // namespace deepinfer::backend::cuda
