// SPDX-License-Identifier: Apache-2.0
// A recording as a CUDA graph: what the context's streams would run between Context::BeginCapture and EndGraph.
#pragma once

#include <memory>

#include "backend/api/backend.h"
#include "backend/cuda/context.h"

namespace deepinfer::backend::cuda {

// kInternal where an op did what a graph cannot hold; kResourceExhausted.
Result<std::unique_ptr<Recording>> EndGraph(Context& context);

}  // namespace deepinfer::backend::cuda
