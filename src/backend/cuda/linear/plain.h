// SPDX-License-Identifier: Apache-2.0
// Linears over matrices that the tensor-core kernel does not take (kF32, kFp8Row32), in plain fp32: one warp an output,
// lane l takes columns l, l + 32, ... in order, then the fixed tree of WarpSum.
#pragma once

#include "backend/api/ops.h"
#include "backend/cuda/context.h"

namespace deepinfer::backend::cuda {

// Takes every format, bound as Weights binds it: the slow twin of the tensor-core kernel on the device.
void PlainLinear(Context& context, const LinearParams& p);

}  // namespace deepinfer::backend::cuda
