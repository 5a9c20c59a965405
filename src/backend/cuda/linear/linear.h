// SPDX-License-Identifier: Apache-2.0
// What other ops of this backend use of linears.
#pragma once

#include "backend/api/ops.h"
#include "backend/cuda/linear/gemm_launch.h"

namespace deepinfer::backend::cuda {

// Linear that leaves it to the caller to add up spans. Where they lie is open: p.y is written only where it is given and there is one.
// No data where memory is short, the error is recorded.
SpanSums LinearApart(Context& context, const LinearParams& p);

}  // namespace deepinfer::backend::cuda
