// SPDX-License-Identifier: Apache-2.0
// Recordings as CUDA graphs: what the context's stream would run between BeginGraph and EndGraph. See backend/api/backend.h.
#pragma once

#include <memory>

#include "backend/api/backend.h"
#include "backend/cuda/context.h"

namespace deepinfer::backend::cuda {

void BeginGraph(Context& context);
// kInternal, with the first error since BeginGraph, where an op did what a graph cannot hold; kResourceExhausted.
Result<std::unique_ptr<Recording>> EndGraph(Context& context);

}  // namespace deepinfer::backend::cuda
