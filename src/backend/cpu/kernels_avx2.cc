// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd_avx2.h"
//
#include "backend/cpu/kernels-inl.h"

namespace deepinfer::backend::cpu {

constexpr Kernels kAvx2Kernels = MakeKernels("avx2");

}  // namespace deepinfer::backend::cpu
