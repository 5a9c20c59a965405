// SPDX-License-Identifier: Apache-2.0
// Launches a kernel that may begin while its predecessor in the stream still runs, if that calls ptx::GridTrigger: its launch and
// what it does before ptx::GridWait cost nothing then. Works in captured graphs. Behind a kernel of another branch it begins late.
// REQUIRES: every thread of the kernel that touches memory which another kernel of this or an earlier op writes or reads calls
// ptx::GridWait before (or is ordered behind one that did), and every block has a thread that calls it.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/context.h"

namespace deepinfer::backend::cuda {

struct LaunchKind {
  unsigned cluster = 1;   // blocks
  bool together = false;  // blocks wait for each other: all of them run at the same time, or the launch fails
};

// Returns whether the kernel was launched; if not, the error is recorded.
template <typename... Params, typename... Args>
bool LaunchWith(Context& context, const LaunchKind& kind, void (*kernel)(Params...), dim3 grid, unsigned threads, size_t shared_bytes,
                const Args&... args) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[count++].val.programmaticStreamSerializationAllowed = context.TakeCrossing() ? 0 : 1;
  if (kind.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {kind.cluster, 1, 1};
  } else if (kind.together) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = context.stream();
  config.attrs = attributes;
  config.numAttrs = count;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
  context.Record(error, "launching a kernel");
  return error == cudaSuccess;
}

template <typename... Params, typename... Args>
bool LaunchAfter(Context& context, void (*kernel)(Params...), dim3 grid, unsigned threads, size_t shared_bytes, const Args&... args) {
  return LaunchWith(context, {}, kernel, grid, threads, shared_bytes, args...);
}

}  // namespace deepinfer::backend::cuda
