// SPDX-License-Identifier: Apache-2.0
// What other ops of this backend use of the row ops.
#pragma once

#include "backend/api/ops.h"
#include "backend/cuda/context.h"

namespace deepinfer::backend::cuda {

// RmsNorm of rows that are the sum, ascending, of so many spans, span_stride apart. p.y may be p.x only where there is one.
void RmsNormOfSpans(Context& context, const RmsNormParams& p, int spans, int64_t span_stride);

}  // namespace deepinfer::backend::cuda
