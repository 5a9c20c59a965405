// SPDX-License-Identifier: Apache-2.0
// Launches a kernel that may begin while its predecessor in the stream still runs, if that calls ptx::GridTrigger: its launch and
// what it does before ptx::GridWait cost nothing then. Works in captured graphs. Behind a kernel of another branch it begins late.
// REQUIRES: every thread of the kernel that touches memory which another kernel of this or an earlier op writes or reads calls
// ptx::GridWait before (or is ordered behind one that did), and every block has a thread that calls it.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/context.h"

namespace deepinfer::backend::cuda {

template <typename... Params, typename... Args>
void LaunchWith(Context& context, bool together, void (*kernel)(Params...), dim3 grid, unsigned threads, size_t shared_bytes,
                const Args&... args) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = context.TakeCrossing() ? 0 : 1;
  attributes[1].id = cudaLaunchAttributeCooperative;
  attributes[1].val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = context.stream();
  config.attrs = attributes;
  config.numAttrs = together ? 2 : 1;
  context.Record(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), "launching a kernel");
}

template <typename... Params, typename... Args>
void LaunchAfter(Context& context, void (*kernel)(Params...), dim3 grid, unsigned threads, size_t shared_bytes, const Args&... args) {
  LaunchWith(context, false, kernel, grid, threads, shared_bytes, args...);
}

// The same for a kernel whose blocks wait for each other: all of them run at the same time, or the launch fails.
template <typename... Params, typename... Args>
void LaunchTogether(Context& context, void (*kernel)(Params...), dim3 grid, unsigned threads, size_t shared_bytes, const Args&... args) {
  LaunchWith(context, true, kernel, grid, threads, shared_bytes, args...);
}

}  // namespace deepinfer::backend::cuda
