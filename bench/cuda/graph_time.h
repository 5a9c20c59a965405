// SPDX-License-Identifier: Apache-2.0
// How long a graph takes on the card.
#pragma once

#include <cuda_runtime_api.h>

namespace deepinfer::bench {

// Ends the process with a message where CUDA failed.
void Must(cudaError_t error, const char* what);

// The median of `runs` single launches behind `warmups` others, by events.
double MedianSeconds(cudaGraphExec_t exec, cudaStream_t stream, int warmups, int runs);

}  // namespace deepinfer::bench
