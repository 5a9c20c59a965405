// SPDX-License-Identifier: Apache-2.0
// The products of the router's gate, for packed bf16 gates.
//
// Accumulation contract: inputs are three bf16 parts (high, middle, low); they are cut into slices of 256, a slice into steps of
// 16, which one tensor-core accumulator takes in ascending order, per step the parts in theirs. Slices are added in ascending order
// in fp32: by the kernel where there are many rows, by the router where there are few and each slice is a block of its own.
#pragma once

#include "backend/api/ops.h"
#include "backend/cuda/context.h"

namespace deepinfer::backend::cuda {

struct GateProducts {
  const float* sums = nullptr;  // [slices, rows, experts]; nullptr: no memory, the error is recorded
  int slices = 0;               // to be added in ascending order
};

// Depends on the model's shape alone.
bool MultiplyGateTakes(const RouteParams& p);
// In scratch memory of the current op.
GateProducts MultiplyGate(Context& context, const RouteParams& p);

}  // namespace deepinfer::backend::cuda
