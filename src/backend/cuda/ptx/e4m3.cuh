// SPDX-License-Identifier: Apache-2.0
// Conversions of pairs of e4m3 codes.
#pragma once

#include <cstdint>

namespace deepinfer::backend::cuda::ptx {

// Rounded to nearest even and clamped to the format's range; low in the lower byte.
__device__ inline uint32_t PackE4m3x2(float low, float high) {
  uint16_t d;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(d) : "f"(high), "f"(low));
  return d;
}

// The values of the two lower bytes.
__device__ inline void UnpackE4m3x2(uint32_t codes, float* low, float* high) {
  asm("{\n.reg .b32 both;\n.reg .b16 a, b;\ncvt.rn.f16x2.e4m3x2 both, %2;\nmov.b32 {a, b}, both;\ncvt.f32.f16 %0, a;\n"
      "cvt.f32.f16 %1, b;\n}\n"
      : "=f"(*low), "=f"(*high)
      : "h"(static_cast<uint16_t>(codes)));
}

}  // namespace deepinfer::backend::cuda::ptx
