// SPDX-License-Identifier: Apache-2.0
// mma.sync: D[16, 8] += A[16, 16] B[16, 8], bf16 in, fp32 sums, one warp. Lane = g * 4 + c holds of A, in register reg, row
// g + 8 * (reg & 1) and K 2 c + 8 * (reg >> 1) + {0, 1}; of B, in register reg, column g and K 2 c + 8 * reg + {0, 1}; of D
// in d[2 * h + e] row g + 8 * h and column 2 c + e.
#pragma once

#include <cstdint>

namespace deepinfer::backend::cuda::ptx {

__device__ inline void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// D[16, 8] += A[16, 32] B[32, 8] of bytes, A's without a sign, B's with one, in 32-bit integers. Lane = g * 4 + c holds of A, in
// register reg, row g + 8 * (reg & 1) and K 4 c + 16 * (reg >> 1) + {0 .. 3}; of B, in register reg, column g and
// K 4 c + 16 * reg + {0 .. 3}; of D as above.
__device__ inline void MmaBytes(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four matrices of 8 x 8 bf16: lane 8 i + r gives the address of row r of matrix i, and gets of each, in word i, the row lane / 4 and
// the columns 2 (lane % 4) + {0, 1}: rows that are columns of B make its operands.
__device__ inline void LoadMatrices(uint32_t shared, uint32_t (&words)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared)
               : "memory");
}

// D[16, 8] += A[16, 8] B[8, 8] of TF32 values. Lane = g * 4 + c holds of A, in register reg, row g + 8 * (reg & 1) and K
// c + 4 * (reg >> 1); of B, in register reg, column g and K c + 4 * reg; of D as above.
__device__ inline void MmaTf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace deepinfer::backend::cuda::ptx
