// SPDX-License-Identifier: Apache-2.0
// What each launch of a recorded pass adds to it. The graph is cut behind its first launch, its second, and so on; the
// differences of what the pieces take are the launches' costs where they stand, early starts and parallel branches included.
// Graphs are seen by way of the linker (--wrap=cudaGraphInstantiate), so programs that use this need that option.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

namespace deepinfer::bench {

struct LaunchTime {
  std::string kernel;  // or what else the node is
  dim3 grid;
  double seconds = 0;
};

// The graph that was instantiated last, cut into pieces, in the order of recording. Ends the process where CUDA fails.
std::vector<LaunchTime> TimeLaunches();

}  // namespace deepinfer::bench
