// SPDX-License-Identifier: Apache-2.0
// Two bf16 values, or four bytes, in a register.
#pragma once

#include <cstdint>

namespace deepinfer::backend::cuda::ptx {

// Product, rounded to nearest; subnormal inputs and results count.
__device__ inline uint32_t MulBf16x2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

// Both halves of a times the half kHalf of b.
template <int kHalf>
__device__ inline uint32_t MulBf16x2ByHalf(uint32_t a, uint32_t b) {
  uint32_t d;
  if constexpr (kHalf == 0) {
    asm("{\n.reg .b16 low, high;\n.reg .b32 twice;\nmov.b32 {low, high}, %2;\n"
        "mov.b32 twice, {low, low};\nmul.rn.bf16x2 %0, %1, twice;\n}\n"
        : "=r"(d)
        : "r"(a), "r"(b));
  } else {
    asm("{\n.reg .b16 low, high;\n.reg .b32 twice;\nmov.b32 {low, high}, %2;\n"
        "mov.b32 twice, {high, high};\nmul.rn.bf16x2 %0, %1, twice;\n}\n"
        : "=r"(d)
        : "r"(a), "r"(b));
  }
  return d;
}

// Bits of a where the mask has ones, of b elsewhere: one instruction, which the compiler makes two or four of.
__device__ inline uint32_t SelectBits(uint32_t mask, uint32_t a, uint32_t b) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(d) : "r"(mask), "r"(a), "r"(b));
  return d;
}

// Byte i of the result is the byte of `b a` that the lower three bits of nibble i of `selector` name; where the nibble's upper bit is
// set, its upper bit eight times.
__device__ inline uint32_t PermuteBytes(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
  return d;
}

// The upper half of a product, by the instruction that has both, which is twice as fast as the one that has this alone.
__device__ inline uint32_t UpperProduct(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("{\n.reg .b64 both;\nmul.wide.u32 both, %1, %2;\nmov.b64 {_, %0}, both;\n}\n" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

// low and high rounded to nearest even.
__device__ inline uint32_t PackBf16x2(float low, float high) {
  uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

}  // namespace deepinfer::backend::cuda::ptx
