// SPDX-License-Identifier: Apache-2.0
// Two bf16 values in a register.
#pragma once

#include <cstdint>

namespace deepinfer::backend::cuda::ptx {

// Product, rounded to nearest; subnormal inputs and results count.
__device__ inline uint32_t MulBf16x2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

// low and high rounded to nearest even.
__device__ inline uint32_t PackBf16x2(float low, float high) {
  uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

}  // namespace deepinfer::backend::cuda::ptx
