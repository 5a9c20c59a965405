// SPDX-License-Identifier: Apache-2.0
// Inputs for aligned matrices (packed.h): rounded as MXFP8 rounds them, then relative to the row's largest scale. A row's codes
// depend on that row alone.
#pragma once

#include "backend/cuda/linear/inputs.h"

namespace deepinfer::backend::cuda {

// Fills `packed`. REQUIRES: p.cols % 128 == 0, at most kAlignedColsMax in all problems.
void PackAlignedInputs(Context& context, const PackInputsParams& p, const PackedInputs& packed);

// Row i of the result, in scratch memory, is row row_map[i] of `from`, or zeros for -1.
PackedInputs GatherAlignedInputs(Context& context, const PackedInputs& from, int64_t chunks, const int32_t* row_map, int64_t rows);

}  // namespace deepinfer::backend::cuda
