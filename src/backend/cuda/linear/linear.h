// SPDX-License-Identifier: Apache-2.0
// What other ops of this backend use of linears.
#pragma once

#include "backend/api/ops.h"
#include "backend/cuda/linear/gemm_launch.h"

namespace deepinfer::backend::cuda {

// Linear that leaves it to the caller to add up spans; p.y is written only where there is one.
SpanSums LinearApart(Context& context, const LinearParams& p);

}  // namespace deepinfer::backend::cuda
