// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd_avx512.h"
//
#include "backend/cpu/kernels-inl.h"

namespace deepinfer::backend::cpu {

constexpr Kernels kAvx512Kernels = MakeKernels("avx512");

}  // namespace deepinfer::backend::cpu
