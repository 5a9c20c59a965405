// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd_portable.h"
//
#include "backend/cpu/kernels-inl.h"

namespace deepinfer::backend::cpu {

constexpr Kernels kPortableKernels = MakeKernels("portable");

}  // namespace deepinfer::backend::cpu
